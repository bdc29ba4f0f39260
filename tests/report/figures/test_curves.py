"""Curves over seeds, and which runs belong to one curve."""

from pathlib import Path

import pytest
from tests.report.figures.run_folders import accuracies, written_run

from fedcompass.errors import RunFolderError, SettingsError
from fedcompass.report.figures.curves import mean_curve
from fedcompass.report.figures.run_records import RunRecord, read_runs, seed_groups, seeds_note
from fedcompass.report.figures.staleness_bars import staleness_bins


def two_seeds(tmp_path: Path) -> list[RunRecord]:
    written_run(tmp_path / "0", accuracies((0, 0.1), (2, 0.5), (6, 0.7)), seed=0)
    written_run(tmp_path / "1", accuracies((0, 0.3), (4, 0.9)), seed=1)
    return read_runs([tmp_path])


def test_a_value_holds_until_the_next_evaluation_and_to_the_horizon(tmp_path: Path) -> None:
    band = mean_curve(two_seeds(tmp_path), "accuracy")
    assert band.times.tolist() == [0, 2, 4, 6, 10]
    assert band.mean.tolist() == pytest.approx([0.2, 0.4, 0.7, 0.8, 0.8])
    assert band.spread is not None
    assert band.spread[2] == pytest.approx(0.4 / 2**0.5)  # of 0.5 and 0.9
    assert band.runs == 2


def test_a_single_run_has_no_band(tmp_path: Path) -> None:
    written_run(tmp_path / "run", accuracies((0, 0.1), (2, 0.5)))
    assert mean_curve(read_runs([tmp_path / "run"]), "accuracy").spread is None


def test_a_mean_ends_where_the_first_seed_stopped(tmp_path: Path) -> None:
    rows = accuracies((0, 0.1), (2, 0.5), (6, 0.7))
    written_run(tmp_path / "0", rows, seed=0, max_updates=3)
    written_run(tmp_path / "1", accuracies((0, 0.1), (1, 0.4), (3, 0.6)), seed=1, max_updates=3)
    assert mean_curve(read_runs([tmp_path]), "accuracy").times.tolist() == [0, 1, 2, 3]


def test_an_unfinished_run_is_known_up_to_its_last_whole_line(tmp_path: Path) -> None:
    folder = written_run(tmp_path / "run", accuracies((0, 0.1), (2, 0.5)), finished=False)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"time": 3, "vers')
    (run,) = read_runs([folder])
    assert (len(run.curve), run.end) == (2, 2.0)


def test_a_metric_that_was_not_measured_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="has no 'dice'; measured were: accuracy"):
        mean_curve(two_seeds(tmp_path), "dice")


def test_damaged_metrics_are_one_line(tmp_path: Path) -> None:
    folder = written_run(tmp_path / "run", [])
    (folder / "metrics.jsonl").write_text("{\n")
    with pytest.raises(RunFolderError, match=r"metrics\.jsonl: line 1 is damaged: .*; leave"):
        _ = read_runs([folder])[0].curve


def test_runs_that_differ_in_their_seed_only_share_a_curve(tmp_path: Path) -> None:
    for seed in (0, 1):
        written_run(tmp_path / f"avg{seed}", [], seed=seed, strategy={"name": "fedavg"})
        for latest in (1.2, 1.5):
            strategy = {"name": "fedcompass", "latest": latest}
            written_run(tmp_path / f"compass{latest}-{seed}", [], seed=seed, strategy=strategy)
    groups = seed_groups(read_runs([tmp_path]))
    assert [group.label for group in groups] == [
        "fedavg",
        "fedcompass (latest 1.2)",
        "fedcompass (latest 1.5)",
    ]
    assert [len(group.runs) for group in groups] == [2, 2, 2]
    assert seeds_note(groups) == "mean ± standard deviation, 2 seeds"
    assert seeds_note(seed_groups(read_runs([tmp_path / "avg0"]))) is None


def test_bins_of_staleness_double_where_there_are_many() -> None:
    assert staleness_bins(2) == [(0, 0), (1, 1), (2, 2)]
    assert staleness_bins(9) == [(0, 0), (1, 1), (2, 2), (3, 4), (5, 8), (9, 16)]
