"""Runs on the medical data at hand: FLamby's centers that can be had, and a stand-in for Fed-IXI.

They are not the paper's data (its Fed-ISIC2019 has six centers, its Fed-IXI other volumes), so they
have blocks of their own and never stand beside its numbers. The settings are those that
`Experiment` fills in for the datasets; examples/medical_sweep.toml and
examples/medical_gpu_sweep.toml describe the same experiments. No torch here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedcompass.paper.cells import SPEEDS, Cell, pinned
from fedcompass.paper_settings import STRATEGY_KEYS, paper_settings, strategy_settings
from fedcompass.setting_tables import merged

__all__ = ["MEDICAL", "MedicalRuns", "medical_settings"]

_ON_A_GPU = tuple(name for name in STRATEGY_KEYS if name != "fedavgm")


@dataclass(frozen=True, slots=True, kw_only=True)
class MedicalRuns:
    """What is run on one dataset.

    settings: what differs from the settings filled in for it.
    steps: Q instead of the paper's, Q_min and Q_max in proportion; None: the paper's.
    """

    title: str
    settings: Mapping[str, Any]
    steps: int | None = None
    speeds: tuple[str, ...] = tuple(SPEEDS)
    rows: tuple[str, ...] = tuple(STRATEGY_KEYS)


def _by_time(seconds: float) -> dict[str, Any]:
    """Measured by virtual time: after every update it would cost more than the training."""
    return {"every_updates": "none", "every_seconds": seconds}


MEDICAL = {
    "heart": MedicalRuns(
        title="Fed-Heart-Disease, all four centers, logistic regression",
        settings={"horizon": 300.0},  # 100 mean rounds
    ),
    "brca": MedicalRuns(
        title="Fed-TCGA-BRCA, all six regions, Cox regression",
        settings={"horizon": 60.0},  # 30 mean rounds
    ),
    "isic": MedicalRuns(
        title="Fed-ISIC2019, 4 centers of 6, reduced resolution, EfficientNet-B0 from random "
        "weights",
        settings={
            "model": "quick_efficientnet_b0",
            "horizon": 240.0,  # 8 mean rounds
            "evaluation": _by_time(20.0),
        },
        steps=20,
        speeds=("exp",),
        rows=_ON_A_GPU,
    ),
    "hippocampus": MedicalRuns(
        title="MSD hippocampus dealt to three artificial sites, a stand-in for Fed-IXI, 3-D U-Net",
        settings={"horizon": 128.0, "evaluation": _by_time(8.0)},  # 8 mean rounds
        steps=20,
        speeds=("exp",),
        rows=_ON_A_GPU,
    ),
}
"""By block."""


def medical_settings(cell: Cell, row: str, seed: int) -> dict[str, Any]:
    """Everything `Experiment` needs for one run."""
    dataset, runs = cell.settings.dataset, MEDICAL[cell.block]
    known = strategy_settings(dataset, cell.clients, row)
    if runs.steps is not None:
        known |= {
            "steps": runs.steps,
            "min_steps": runs.steps * 2 // 5,
            "max_steps": 2 * runs.steps,
        }
    strategy = {key: known[key] for key in STRATEGY_KEYS[row] if key in known}
    own: dict[str, Any] = {
        "seed": seed,
        "profile": "paper",
        "data": {"name": dataset},
        "fleet": {
            "speed": SPEEDS[cell.speed],
            "jitter": 0.05,
            "floor": 0.02,
            "resample_probability": 0.0,
        },
        "local": {"momentum": 0.0, "rate_decay": 1.0},
        "strategy": {"name": row, **strategy, **pinned(dataset, row)},
        "target": cell.settings.target,
        "run_at_least": 0.0,
    }
    return merged(paper_settings(dataset, cell.clients), own, runs.settings)
