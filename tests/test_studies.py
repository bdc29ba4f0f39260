"""The studies in `studies/`: plans that can be read, on seeds that no setting was chosen with."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedcompass.advice.measured import RECOMMENDATIONS
from fedcompass.sweeps.store import Store
from fedcompass.sweeps.sweep_file import Sweep

ROOT = Path(__file__).parents[1]
STUDIES = sorted((ROOT / "studies").glob("*.toml"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_judges_on_seeds_that_nothing_was_chosen_with(path: Path) -> None:
    plan = Sweep.from_toml(path).plan()
    assert {planned.experiment.seed for planned in plan} <= set(range(20, 30))
    assert len({planned.experiment.key() for planned in plan}) == len(plan)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_row_is_judged_by_one_horizon_and_has_one_setting_in_all_cells(path: Path) -> None:
    horizons: set[float] = set()
    settings: dict[str, dict[str, Any]] = {}
    for planned in Sweep.from_toml(path).plan():
        horizons.add(planned.experiment.horizon)
        strategy = {
            key: value
            for key, value in planned.experiment.strategy.items()
            if key != "buffer_size"  # the paper's, by the number of clients
        }
        assert settings.setdefault(planned.labels["row"], strategy) == strategy
    assert len(horizons) == 1


def test_the_page_of_metronome_has_the_tables_that_the_results_give() -> None:
    script = Path(__file__).parents[1] / "scripts" / "study_tables.py"
    said = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr


def reached(row: str) -> int:
    """How many runs of a row reached the target in the two medical studies."""
    count = 0
    for name in ("metronome-heart", "metronome-brca"):
        plan = Sweep.from_toml(ROOT / "studies" / f"{name}.toml").plan()
        wanted = {planned.experiment.key() for planned in plan if planned.labels["row"] == row}
        done = [
            one for one in Store(ROOT / "results" / f"{name}.jsonl").done() if one.key in wanted
        ]
        assert len(done) == 20
        count += sum(one.numbers.time_to_target is not None for one in done)
    return count


def test_what_is_advised_for_clients_far_apart_is_what_the_studies_measured() -> None:
    because = RECOMMENDATIONS["far apart"].because
    assert f"metronome+n reached its target in {reached('metronome, normalized')} of 40" in because
    assert f"FedCompass in {reached('fedcompass')};" in because
    assert f"FedCompass with CA2FL did in {reached('fedcompass CA2FL')} " in because
