"""Small run folders, written by hand or simulated without training."""

import json
from pathlib import Path
from typing import Any

import tomli_w

from fedcompass.experiment import Experiment
from fedcompass.simulation.run import simulate

PAPER_PACES = [6.0, 12.0, 15.0, 24.0, 30.0]  # seconds per step; the figure's 10 to 2 steps/min


def paper_run(folder: Path, horizon: float = 2040.0, change: float | None = None) -> Path:
    """The run of the paper's overview figure; `change` is client 2's pace from round 1 on."""
    changes = [] if change is None else [{"client": 2, "from_round": 1, "seconds_per_step": change}]
    experiment = Experiment(
        fleet={"clients": 5, "paces": PAPER_PACES, "jitter": 0.0, "changes": changes},
        strategy={"name": "fedcompass", "min_steps": 20, "max_steps": 100, "latest": 1.2},
        horizon=horizon,
    )
    simulate(experiment, executor="none", folder=folder)
    return folder


def written_run(
    folder: Path,
    rows: list[dict[str, Any]],
    journal: list[dict[str, Any]] | None = None,
    finished: bool = True,
    **settings: Any,
) -> Path:
    """A folder with these evaluations and journal lines; settings are those of the experiment."""
    folder.mkdir(parents=True)
    usual = {"seed": 0, "horizon": 10.0, "strategy": {"name": "fedcompass"}}
    (folder / "experiment.toml").write_text(tomli_w.dumps({**usual, **settings}))
    header = {"journal": 1, "strategy": {"name": "fedcompass"}, "seed": 0}
    _write_lines(folder / "journal.jsonl", [header, *(journal or [])])
    _write_lines(folder / "metrics.jsonl", rows)
    if finished:
        summary = {"global_updates": len(rows), "time_to_target": None}
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def accuracies(*points: tuple[float, float]) -> list[dict[str, Any]]:
    """Rows of evaluations at (time, accuracy)."""
    return [{"time": t, "version": n, "accuracy": a} for n, (t, a) in enumerate(points)]


def _write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
