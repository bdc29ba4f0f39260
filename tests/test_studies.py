"""The studies in `studies/`: plans that can be read, on seeds that no setting was chosen with."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedcompass.sweeps.sweep_file import Sweep

STUDIES = sorted((Path(__file__).parents[1] / "studies").glob("*.toml"))


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
