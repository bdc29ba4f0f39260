"""A run that diverged, or that nobody is left to train, says so wherever its result is shown."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.simulation.tiny_runs import experiment, problem
from tests.sweeps.small_sweeps import FILE, made_record
from typer.testing import CliRunner

from fedcompass.cli import app
from fedcompass.cli.deploy_words import summary_line
from fedcompass.simulation.ending import trouble
from fedcompass.simulation.run import simulate
from fedcompass.sweeps.record import Record
from fedcompass.sweeps.store import Store

TOO_FAST = ("--learning-rate", "1e30")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fedcompass(*arguments: str, code: int) -> Result:
    result = CliRunner(mix_stderr=False).invoke(app, arguments)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_a_run_that_diverges_says_so_last_and_fails() -> None:
    last = fedcompass("run", *TOO_FAST, "--executor", "serial", code=1).stdout.splitlines()[-1]
    assert last == (
        "  WARNING            broke off at 10.2 s of 80 s: nobody is left to train; 15 updates "
        "refused for NaN or infinity; in quarantine at the end: 5 clients (0 1 2 3 4); if training "
        "diverged, lower local.learning_rate"
    )


def test_a_comparison_marks_the_run_that_broke_off_shows_the_others_and_fails() -> None:
    slow_enough = ("--strategies", "fedavg,fedcompass", "--seeds", "1", "--horizon", "12")
    output = fedcompass("compare", *slow_enough, *TOO_FAST, "--workers", "1", code=1).stdout
    assert " 0/1, 1 broke off " in output
    assert output.splitlines()[-2:] == [
        "broke off, nobody was left to train: fedcompass seed 0",
        "refused for NaN or infinity: 19 updates of fedavg seed 0; fedcompass seed 0",
    ]
    avg = next(line for line in output.splitlines() if line.startswith("fedavg "))
    assert "broke off" not in avg


def test_a_sweep_keeps_a_run_that_broke_off_and_says_so() -> None:
    diverging = FILE.replace("horizon = 2.0", "horizon = 40.0").replace("seeds = 2", "seeds = 1")
    Path("small.toml").write_text(f"{diverging}\n[base.local]\nlearning_rate = 1e30\n")
    result = fedcompass("sweep", "small.toml", "--executor", "serial", code=0)
    words = "2 of 2 done, 2 of them broke off: nobody was left to train; see them: fedcompass "
    assert result.stdout.splitlines()[1].startswith(words)
    assert "broke off: nobody is left to train; 9 updates refused for NaN" in result.stderr
    again = fedcompass("sweep", "small.toml", "--executor", "serial", code=0)
    assert again.stdout.splitlines()[1:] == result.stdout.splitlines()[1:]
    for record in Store("runs/small/results.jsonl").records():
        assert record.outcome is not None
        assert (record.outcome.ended, record.outcome.refused_not_finite) == ("nobody left", 9)


def stored(*records: Record) -> None:
    store = Store("results.jsonl")
    for record in records:
        store.append(record)


def broken(name: str, seed: int) -> Record:
    record = made_record(name, seed, time=None)
    assert record.outcome is not None
    outcome = replace(record.outcome, ended="nobody left", refused_not_finite=3)
    return replace(record, outcome=outcome)


@pytest.mark.parametrize("shape", [(), ("--columns", "strategy.name")])
def test_a_table_marks_cells_whose_runs_broke_off(shape: tuple[str, ...]) -> None:
    stored(broken("fedavg", 0), made_record("fedavg", 1), made_record("fedcompass", 0))
    output = fedcompass("table", "results.jsonl", *shape, code=0).stdout
    assert "1/2, 1 broke off" in output
    assert "broke off, nobody was left to train: fedavg seed 0\n" in output
    assert "refused for NaN or infinity: 3 updates of fedavg seed 0\n" in output


def test_every_number_counts_runs_that_broke_off() -> None:
    stored(broken("fedavg", 0), made_record("fedavg", 1))
    header, row = fedcompass("table", "results.jsonl", "--format", "csv", code=0).stdout.split()
    assert header.endswith(",broke_off,refused_not_finite")
    assert row.endswith(",1,3")


def test_records_of_old_do_not_say_how_they_ended_and_are_read() -> None:
    line = json.loads(made_record("fedavg", 0).to_json())
    del line["outcome"]["ended"], line["outcome"]["refused_not_finite"]
    read = Record.from_json(line)
    assert read.outcome is not None
    assert read.outcome.ended is None
    assert not read.outcome.broke_off


def test_a_run_whose_clients_all_left_for_good_broke_off() -> None:
    gone = experiment("fedavg", fleet={"dropouts": [[client, 1.0 + client] for client in range(4)]})
    result = simulate(gone, problem=problem(), executor="none")
    assert result.summary["ended"] == "nobody left"
    assert trouble(result.summary) == "broke off at 4.0 s of 6 s: nobody is left to train"


def test_a_run_whose_clients_are_too_few_for_a_merge_broke_off_and_says_so() -> None:
    left = {"dropouts": [[client, 1.0 + client] for client in range(2)]}
    strategy = {"name": "fedbuff", "steps": 5, "buffer_size": 2, "merge_at_least": 3}
    given = experiment("fedbuff", fleet=left, strategy=strategy)
    result = simulate(given, problem=problem(), executor="none")
    assert result.summary["ended"] == "too few left"
    said = trouble(result.summary)
    assert said is not None
    assert said.endswith("s of 6 s: too few are left for a merge (merge_at_least), and wait")


def test_a_run_that_waits_for_clients_to_return_did_not_break_off() -> None:
    away = experiment(fleet={"dropouts": [[client, 1.0, 99.0] for client in range(4)]})
    assert simulate(away, problem=problem(), executor="none").summary["ended"] == "horizon"


def test_a_run_with_one_broken_client_goes_on_and_says_so() -> None:
    result = simulate(experiment("fedasync"), problem=problem(broken=2))
    assert (result.summary["ended"], result.summary["quarantined"]) == ("horizon", [2])
    assert trouble(result.summary) == (
        "3 updates refused for NaN or infinity; in quarantine at the end: 1 client (2); if "
        "training diverged, lower local.learning_rate"
    )


@pytest.mark.parametrize(
    ("settings", "ended"),
    [({"max_updates": 2}, "max_updates"), ({"target": 0.1, "stop_at_target": True}, "target")],
)
def test_a_run_says_what_ended_it(settings: dict[str, Any], ended: str) -> None:
    result = simulate(experiment(**settings), problem=problem())
    assert (result.summary["ended"], trouble(result.summary)) == (ended, None)


def test_the_last_line_of_a_federation_tells_refused_updates_and_quarantine(tmp_path: Path) -> None:
    summary = {"target_metric": "accuracy", "reason": "max_updates", "seconds": 5.0}
    told = {"global_updates": 3, "refused_not_finite": 4, "quarantined": ["north"]}
    (tmp_path / "summary.json").write_text(json.dumps({**summary, **told}))
    assert summary_line(tmp_path) == (
        "over (max_updates) after 5 s and 3 global updates; 4 updates refused for NaN or "
        f"infinity; in quarantine: north; see {tmp_path}"
    )
