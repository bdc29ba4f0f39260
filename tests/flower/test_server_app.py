"""The ServerApp with every strategy, its run folder, and going on after a crash."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.exactly_once import audit, check_exactly_once, records
from tests.flower.fake_grid import FakeGrid, TwinOfClientApp, server_context

import fedcompass.flower
from fedcompass import strategies
from fedcompass.errors import MissingExtra, RunFolderError, TransportBroken
from fedcompass.flower import app
from fedcompass.flower.flower_settings import read_settings
from fedcompass.runs.replay import replay

pytestmark = pytest.mark.usefixtures("in_a_run")


def serve(grid: FakeGrid, folder: Path, run_id: int = 7, **settings: Any) -> Path:
    """Run the ServerApp as Flower does; returns the run's folder."""
    context = server_context(folder, run_id, **settings)
    app(grid.as_grid(), context)
    return folder / str(settings.get("resume", context.run_id))


def summary(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return found


@pytest.mark.parametrize("name", strategies.names())
def test_every_strategy_runs_with_clients_that_only_read_steps(name: str, tmp_path: Path) -> None:
    run = serve(FakeGrid({1: "", 2: "", 3: ""}), tmp_path, strategy__name=name, max_updates=4)
    assert summary(run)["global_updates"] >= 4  # several answers may come with one poll
    assert summary(run)["strategy"] == name
    replay(run / "journal.jsonl")


def test_a_run_leaves_what_every_run_leaves(tmp_path: Path) -> None:
    grid = FakeGrid({1: "north", 2: "south"})
    run = serve(grid, tmp_path, min_clients=2, strategy__min_steps=3, strategy__max_steps=6)
    context = server_context(tmp_path, min_clients=2, strategy__min_steps=3, strategy__max_steps=6)
    check_exactly_once(run, read_settings(context.run_config)[1], TwinOfClientApp())
    joined = [(r["client"], r["samples"]) for r in records(run) if r.get("event") == "ClientJoined"]
    assert sorted(joined) == [("north", 11), ("south", 12)]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["version"] == summary(run)["global_updates"]
    assert "accuracy" in rows[-1]


def test_a_function_of_the_project_can_measure_instead(tmp_path: Path) -> None:
    grid = FakeGrid({1: ""})
    run = serve(grid, tmp_path, evaluate="tests.flower.fake_grid:global_evaluate")
    assert {m.metadata.message_type for m in grid.pushed.values()} == {"train"}
    last = (run / "metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["round"] == 3


def test_nothing_is_measured_where_nobody_asks(tmp_path: Path) -> None:
    grid = FakeGrid({1: ""})
    run = serve(grid, tmp_path, evaluate="none")
    assert {m.metadata.message_type for m in grid.pushed.values()} == {"train"}
    assert (run / "metrics.jsonl").read_text() == ""


def test_a_run_that_broke_goes_on_and_counts_every_update_once(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"evaluate": "none", "max_updates": 6, "strategy__min_steps": 3}
    grid = FakeGrid({1: "north", 2: "south"})
    grid.breaks_after = 7
    with pytest.raises(TransportBroken):
        serve(grid, tmp_path, **settings)
    before = audit(tmp_path / "7", "accepted")
    assert before
    run = serve(FakeGrid({1: "north", 2: "south"}), tmp_path, run_id=8, resume="7", **settings)
    assert run == tmp_path / "7"
    assert summary(run)["global_updates"] == 6
    assert audit(run, "accepted")[: len(before)] == before
    assert [line["who"] for line in audit(run, "returned")] == ["north", "south"]
    chosen = read_settings(server_context(tmp_path, **settings).run_config)[1]
    check_exactly_once(run, chosen, TwinOfClientApp())


def test_nodes_with_new_numbers_take_the_place_of_those_that_do_not_return(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"evaluate": "none", "strategy__name": "fedavg", "min_clients": 2}
    grid = FakeGrid({1: "", 2: ""})
    grid.breaks_after = 5
    with pytest.raises(TransportBroken):
        serve(grid, tmp_path, **settings)
    other = FakeGrid({3: "", 4: ""})
    run = serve(other, tmp_path, resume="7", return_within=0.1, watch_interval=0.01, **settings)
    assert summary(run)["global_updates"] == 3
    assert sorted(line["who"] for line in audit(run, "left")) == ["1", "2"]
    merged = {client for line in audit(run, "merged")[-1:] for client, *_ in line["contributors"]}
    assert merged == {"3", "4"}


def test_a_run_that_is_not_there_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="has no run to resume"):
        serve(FakeGrid({1: ""}), tmp_path, resume="99")


def test_without_flower_both_names_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("flwr", "flwr.app", "flwr.serverapp"):
        monkeypatch.setitem(sys.modules, name, None)
    for module in (
        "training_seconds",
        "server_app",
        "grid_transport",
        "measured_models",
        "records",
    ):
        monkeypatch.delitem(sys.modules, f"fedcompass.flower.{module}", raising=False)
    for name in ("app", "pace_mod"):
        with pytest.raises(MissingExtra, match=r"pip install -c constraints.txt '\.\[flower\]'"):
            getattr(fedcompass.flower, name)
