"""Running lists of experiments: each once, the same however it is done, and whatever stops it."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.sweeps.small_sweeps import experiments

from fedcompass.errors import DataError, RunFolderError, SettingsError, TaskFailed
from fedcompass.experiment import Experiment
from fedcompass.simulation.run import Run, simulate
from fedcompass.sweeps.one_at_a_time import nowhere, run_one
from fedcompass.sweeps.record import Record, record_of
from fedcompass.sweeps.running import run_all
from fedcompass.sweeps.stacked_runs import stacked_runs
from fedcompass.sweeps.store import Store

MODELS = "tests.sweeps.small_sweeps"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results.jsonl")


def after(calls: int) -> Callable[[], bool]:
    """Says to stop from its so many-th call on."""
    numbers = count()
    return lambda: next(numbers) >= calls


@pytest.mark.whatever_is_learned
def test_records_are_those_of_simulate(store: Store) -> None:
    chosen = experiments()
    records = list(run_all(chosen, store, executor="serial"))
    assert records == [record_of(simulate(experiment), "cpu") for experiment in chosen]
    assert store.records() == records


@pytest.mark.whatever_is_learned
def test_what_is_done_is_not_run_again(store: Store) -> None:
    chosen = experiments()
    first = list(run_all(chosen[:3], store, executor="serial"))
    assert [record.key for record in first] == [experiment.key() for experiment in chosen[:3]]
    rest = list(run_all([*chosen, *chosen], store, executor="serial"))
    assert [record.key for record in rest] == [chosen[3].key()]
    assert list(run_all(chosen, store)) == []
    assert len(store.path.read_text().splitlines()) == 1 + 4


@pytest.mark.whatever_is_learned
def test_a_sweep_that_is_left_keeps_what_is_done_and_lets_go_of_the_rest(store: Store) -> None:
    chosen = experiments()
    with closing(run_all(chosen, store, executor="serial")) as records:
        first = next(records)
    assert store.records() == [first]
    rest = list(run_all(chosen, Store(store.path), executor="serial"))
    assert [record.key for record in rest] == [experiment.key() for experiment in chosen[1:]]


@pytest.mark.whatever_is_learned
def test_processes_give_the_same_records(store: Store, tmp_path: Path) -> None:
    chosen = experiments(3)
    kept = tmp_path / "in-progress"
    records = list(run_all(chosen, store, workers=2, folder=kept))
    alone = Store(tmp_path / "alone.jsonl")
    assert _by_key(records) == _by_key(run_all(chosen, alone, executor="serial"))
    assert list(kept.iterdir()) == []


def test_a_stack_gives_the_same_schedule_and_numbers_up_to_rounding(
    store: Store, tmp_path: Path
) -> None:
    chosen = experiments()
    kept = tmp_path / "in-progress"
    stacked = run_all(chosen, store, executor="stacked", max_stack=4, live=3, folder=kept)
    alone = _by_key(run_all(chosen, Store(tmp_path / "alone.jsonl"), executor="serial"))
    for record in stacked:
        other = alone.pop(record.key)
        assert record.device == "cpu, stacked"
        assert [point[:2] for point in record.curve] == [point[:2] for point in other.curve]
        assert record.outcome is not None
        assert other.outcome is not None
        assert record.outcome.local_steps == other.outcome.local_steps
        assert record.outcome.top == pytest.approx(other.outcome.top, abs=0.02)
    assert alone == {}
    assert list(kept.iterdir()) == []


def _by_key(records: Any) -> dict[str, Record]:
    return {record.key: record for record in records}


def test_nothing_starts_once_the_budget_is_spent(store: Store) -> None:
    for executor in ("serial", "stacked"):
        assert list(run_all(experiments(), store, executor=executor, budget=0.0)) == []
    assert store.records() == []


@pytest.mark.whatever_is_learned
def test_a_run_stopped_on_the_way_goes_on_to_the_same_end(store: Store, tmp_path: Path) -> None:
    experiment = experiments(1)[0].with_settings({"horizon": 6.0})
    kept = tmp_path / "in-progress"
    path = kept / experiment.key()
    for _ in range(2):
        assert run_one(experiment, device="cpu", path=path, stops=after(3)) is None
        assert (path / "checkpoint.safetensors").exists()
    (record,) = run_all([experiment], store, executor="serial", folder=kept)
    assert record == record_of(simulate(experiment), "cpu")
    assert not path.exists()


@pytest.mark.whatever_is_learned
def test_a_folder_with_a_name_stays_and_is_that_of_simulate(store: Store, tmp_path: Path) -> None:
    experiment = experiments(1)[0].with_settings({"horizon": 6.0})
    path = tmp_path / "runs" / "mine"
    assert run_one(experiment, device="cpu", path=path, stops=after(3)) is None
    runs = tmp_path / "runs"
    (record,) = run_all(
        [experiment], store, executor="serial", folder=runs, keep_as=lambda _: "mine"
    )
    whole = simulate(experiment, folder=tmp_path / "whole")
    assert record == record_of(whole, "cpu")
    names = sorted(file.name for file in (tmp_path / "whole").iterdir())
    assert sorted(file.name for file in path.iterdir()) == names
    for name in names:
        if name != "origin.json":  # when it ran
            assert (path / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_runs_stopped_in_a_stack_go_on_too(store: Store, tmp_path: Path) -> None:
    chosen = [e.with_settings({"horizon": 6.0}) for e in experiments(2)]
    kept = tmp_path / "in-progress"
    stopped = stacked_runs(
        chosen,
        device="cpu",
        max_stack=None,
        live=None,
        place=lambda e: kept / e.key(),
        stops=after(4),
    )
    assert list(stopped) == []
    assert len(list(kept.glob("*/checkpoint.safetensors"))) == 2
    records = list(run_all(chosen, store, executor="serial", folder=kept))
    assert [record.key for record in records] == [experiment.key() for experiment in chosen]
    for record, experiment in zip(records, chosen, strict=True):
        whole = record_of(simulate(experiment), "cpu")
        assert [point[:2] for point in record.curve] == [point[:2] for point in whole.curve]


def test_without_a_folder_a_stopped_run_leaves_nothing(tmp_path: Path) -> None:
    assert run_one(experiments(1)[0], device="cpu", path=None, stops=after(2)) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.whatever_is_learned
@pytest.mark.parametrize("file", ["checkpoint.safetensors", "experiment.toml"])
def test_a_damaged_folder_is_begun_anew(store: Store, tmp_path: Path, file: str) -> None:
    experiment = experiments(1)[0]
    path = tmp_path / "in-progress" / experiment.key()
    run_one(experiment, device="cpu", path=path, stops=after(2))
    (path / file).write_text("damaged")
    (record,) = run_all([experiment], store, executor="serial", folder=tmp_path / "in-progress")
    assert record == record_of(simulate(experiment), "cpu")


@pytest.mark.whatever_is_learned
def test_a_failed_run_is_recorded_in_one_line_and_tried_again(store: Store) -> None:
    chosen = experiments(2, base={"model": f"{MODELS}:fails_when_called_second"})
    first, second = run_all(chosen, store, executor="serial")
    told = f"model '{MODELS}:fails_when_called_second' raised ValueError: not this time ("
    assert str(first.error).startswith(told)
    assert re.search(r"small_sweeps\.py:\d+ in fails_when_called_second\)$", str(first.error))
    assert second.is_done
    assert [record.is_done for record in store.records()] == [True, False]
    (again,) = run_all(chosen, Store(store.path), executor="serial")
    assert (again.key, again.is_done) == (first.key, True)
    assert all(record.is_done for record in Store(store.path).records())


@pytest.mark.whatever_is_learned
def test_a_failing_run_in_a_stack_leaves_the_others_alone(store: Store, tmp_path: Path) -> None:
    good, other = experiments(2)
    path = tmp_path / "in-progress" / other.key()
    path.parent.mkdir()
    path.touch()  # a file where its folder would be
    runs = run_all([other, good], store, executor="stacked", folder=tmp_path / "in-progress")
    records = _by_key(runs)
    assert records[good.key()].is_done
    assert "exists already" in str(records[other.key()].error)


def test_a_setting_that_does_not_go_with_the_device_fails_its_own_runs_only(
    store: Store,
) -> None:
    good = experiments(1)
    bad = experiments(1, base={"local": {"precision": "bfloat16"}})
    with pytest.warns(UserWarning, match="one at a time"):
        found = list(run_all([*bad, *good], store, executor="stacked"))
    errors = {record.key: record.error for record in found}
    assert errors[good[0].key()] is None
    assert "precision is 'bfloat16' and the device is cpu" in str(errors[bad[0].key()])


@pytest.mark.whatever_is_learned
def test_a_process_that_dies_is_one_line(store: Store) -> None:
    chosen = experiments(2, base={"model": f"{MODELS}:dies_in_a_worker_process"})
    with pytest.raises(TaskFailed, match=r"a process died .*the same command goes on"):
        list(run_all(chosen, store, workers=2))
    assert store.records() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": "magic"}, "executor is 'magic'; allowed: serial, processes, stacked"),
        ({"device": "abacus"}, "device is 'abacus', which cannot be used"),
        ({"device": "cuda", "executor": "processes"}, "goes with serial or stacked only"),
        ({"max_stack": 4}, "max_stack is 4; allowed: at least 1, and with the stacked executor"),
        ({"max_stack": 0, "executor": "stacked"}, "max_stack is 0; allowed: at least 1"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(
    store: Store, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        list(run_all(experiments(1), store, **options))
    assert not store.path.exists()


def test_missing_data_and_models_are_said_before_anything_runs(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = experiments(1)
    with pytest.raises(SettingsError, match="no_such"):
        list(run_all([*good, Experiment(model="no_such")], store, executor="serial"))
    for name in ("FEDCOMPASS_DATA", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    with pytest.raises(DataError, match="cifar10"):
        list(run_all([*good, Experiment(data={"name": "cifar10"})], store, executor="serial"))
    assert store.records() == []


def test_a_run_of_a_stack_whose_result_cannot_be_written_fails_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(_run: Run) -> NoReturn:
        raise RunFolderError("the disk is full")

    monkeypatch.setattr(Run, "result", full)
    short = [experiment.with_settings({"horizon": 1.0}) for experiment in experiments(2)]
    records = stacked_runs(
        short, device="cpu", max_stack=None, live=None, place=nowhere, stops=lambda: False
    )
    assert [record.error for record in records] == ["the disk is full", "the disk is full"]


@pytest.mark.whatever_is_learned
def test_as_many_runs_go_on_side_by_side_as_have_so_many_clients() -> None:
    """Small runs after large ones fill the stacks, too."""
    live: list[int] = []  # clients of the live runs when another one is begun
    begun = ended = 0  # clients of these runs

    def runs() -> Iterator[Experiment]:
        nonlocal begun
        for clients in (16, 16, 16, 12, *[2] * 6):
            live.append(begun - ended)
            begun += clients
            yield experiments(1)[0].with_settings({"fleet": {"clients": clients}, "horizon": 1.0})

    for record in stacked_runs(
        runs(), device="cpu", max_stack=None, live=None, place=nowhere, stops=lambda: False
    ):
        ended += record.experiment["fleet"]["clients"]
    assert ended == begun == 72
    assert live[:6] == [0, 16, 32, 48, 60, 62]
    assert all(clients < 64 for clients in live[6:])


@pytest.mark.whatever_is_learned
def test_of_runs_whose_tasks_train_alone_only_a_few_go_on_at_a_time() -> None:
    """What is not begun is left to other processes, and to the next time if it is stopped."""
    begun, live = count(1), []
    ended: list[Record] = []

    def runs() -> Iterator[Experiment]:
        for experiment in experiments(7, base={"model": f"{MODELS}:draws_at_random"}):
            live.append(next(begun) - len(ended))
            yield experiment.with_settings({"horizon": 1.0})

    records = stacked_runs(
        runs(), device="cpu", max_stack=None, live=None, place=nowhere, stops=lambda: False
    )
    with pytest.warns(UserWarning, match="one at a time"):
        ended.append(next(records))
    while record := next(records, None):  # not all at once: `runs` counts those that have ended
        ended.append(record)
    assert len(ended) == 7
    assert max(live) == 4
