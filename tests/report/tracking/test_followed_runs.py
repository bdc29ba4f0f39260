"""Following a run's folder: everything once, in order, whatever a tool does."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedcompass.experiment import Experiment
from fedcompass.report.tracking import FollowedRun, Status, track
from fedcompass.simulation.run import simulate
from fedcompass.vocabulary import Seconds


class Noted:
    """A tracker that keeps what it is told."""

    keeps_files = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: dict[str, Any] = {}
        self.points: list[tuple[int, Seconds, dict[str, float]]] = []
        self.kept: list[str] = []
        self.end: tuple[dict[str, float], Status] | None = None

    def settings(self, values: Mapping[str, Any]) -> None:
        self.told = dict(values)

    def metrics(self, values: Mapping[str, float], *, step: int, at: Seconds) -> None:
        self.points.append((step, at, dict(values)))

    def flush(self) -> None:
        pass

    def files(self, paths: Sequence[Path]) -> None:
        assert all(path.stat().st_size for path in paths)
        self.kept = [path.name for path in paths]

    def close(self, summary: Mapping[str, float], status: Status) -> None:
        self.end = (dict(summary), status)


class WithoutRoom(Noted):
    def files(self, paths: Sequence[Path]) -> None:
        raise OSError("no room")


class Broken(Noted):
    def metrics(self, values: Mapping[str, float], *, step: int, at: Seconds) -> None:
        raise OSError("the server is gone\nand more")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("followed") / "run"
    simulate(Experiment(horizon=2.0, fleet={"clients": 3}), folder=folder, executor="serial")
    return folder


def test_a_finished_run_is_handed_over_whole(run: Path) -> None:
    noted = Noted("n")
    track(run, "n", [lambda _: noted])
    assert noted.told["strategy.name"] == "fedcompass"
    assert noted.told["fleet.clients"] == 3
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    measured = [(s, at, v) for s, at, v in noted.points if "test/accuracy" in v]
    assert measured == [
        (r["version"], r["time"], {"test/loss": r["loss"], "test/accuracy": r["accuracy"]})
        for r in rows
    ]
    summary = json.loads((run / "summary.json").read_text())
    assert noted.end is not None
    assert noted.end[1] == "finished"
    assert noted.end[0]["summary/global_updates"] == summary["global_updates"]


def test_a_growing_folder_is_read_on_from_where_it_was(run: Path, tmp_path: Path) -> None:
    whole = (run / "journal.jsonl").read_bytes()
    copy = tmp_path / "copy"
    copy.mkdir()
    noted = Noted("n")
    with FollowedRun(copy, "n", [lambda _: noted]) as followed:
        for size in range(0, len(whole), 997):  # cuts lines anywhere
            (copy / "journal.jsonl").write_bytes(whole[:size])
            followed.catch_up()
        (copy / "journal.jsonl").write_bytes(whole)
    at_once = Noted("m")
    track(run, "m", [lambda _: at_once])
    merges = [point for point in at_once.points if "updates" in point[2]]
    assert merges
    assert noted.points == merges


def test_updates_look_only_now_and_then(run: Path) -> None:
    seldom, often = Noted("seldom"), Noted("often")
    with FollowedRun(run, "n", [lambda _: seldom], every=1e9) as followed:
        followed.update()
        assert seldom.points == []
    with FollowedRun(run, "n", [lambda _: often], every=0.0) as followed:
        followed.update()
        assert often.points == seldom.points != []
        followed.update()
        assert often.points == seldom.points


def test_a_tool_that_fails_is_dropped_and_the_others_go_on(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken, noted = Broken("b"), Noted("n")
    with caplog.at_level(logging.WARNING):
        track(run, "n", [lambda _: broken, lambda _: noted])
    assert broken.end == ({}, "failed")
    assert noted.end is not None
    (record,) = caplog.records
    assert record.getMessage() == (
        f"Broken stopped tracking: the server is gone; the run goes on, its record in {run} "
        "is complete"
    )


def test_a_tool_that_cannot_begin_costs_a_comparison_nothing(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(name: str) -> Noted:
        raise OSError("no such server")

    begun = Noted("n")
    with caplog.at_level(logging.WARNING):
        track(run, "n", [lambda _: begun, refuse])
    assert begun.end == ({}, "failed")
    assert f"{run} was not tracked: no such server" in caplog.text


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt, "stopped"), (ValueError, "failed")]
)
def test_a_run_that_does_not_end_well_is_marked_so(
    error: type[BaseException], status: Status, tmp_path: Path
) -> None:
    noted = Noted("n")
    with pytest.raises(error), FollowedRun(tmp_path, "n", [lambda _: noted]):
        raise error
    assert noted.end == ({}, status)


def test_a_finished_runs_report_and_models_are_handed_over(run: Path) -> None:
    noted = Noted("n")
    track(run, "n", [lambda _: noted])
    assert noted.kept == ["report.html", "final.safetensors", "best.safetensors"]


def test_a_tool_that_cannot_keep_files_is_warned_about_and_left_out(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    full, noted = WithoutRoom("full"), Noted("n")
    track(run, "n", [lambda _: full, lambda _: noted])
    assert "WithoutRoom stopped tracking: no room" in caplog.text
    assert full.end == ({}, "failed")
    assert noted.end is not None
    assert noted.end[1] == "finished"
