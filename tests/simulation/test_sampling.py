"""How clients' batches are drawn: the same rows whoever trains, in which order and when."""

from collections import defaultdict
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from tests.simulation.tiny_runs import (
    CLIENTS,
    PACES,
    assert_same_run,
    eventful,
    experiment,
    problem,
    resumed,
    stopped_run,
)

from fedcompass.errors import SettingsError
from fedcompass.experiment import Experiment
from fedcompass.settings.training import LocalSettings, Sampling
from fedcompass.simulation.executors import (
    Job,
    ProcessesExecutor,
    SerialExecutor,
    TrainJob,
)
from fedcompass.simulation.executors.stacked import StackedExecutor
from fedcompass.simulation.run import simulate

SAMPLINGS = get_args(Sampling)


class Watched(SerialExecutor):
    """Notes the tasks in the order in which they were given."""

    def __init__(self, chosen: Experiment) -> None:
        super().__init__(problem(), chosen.local, chosen.seed)
        self.tasks: dict[int, list[TrainJob]] = defaultdict(list)

    def submit(self, job: Job) -> None:
        if isinstance(job, TrainJob):
            self.tasks[job.client].append(job)
        super().submit(job)


@pytest.mark.whatever_is_learned
@pytest.mark.parametrize("name", ["fedasync", "fedcompass", "metronome"])
def test_a_clients_tasks_read_its_epochs_one_after_the_other(name: str) -> None:
    chosen = experiment(name, local={"sampling": "epochs"})
    executor = Watched(chosen)
    simulate(chosen, problem=problem(), executor=executor)
    for client in range(CLIENTS):
        tasks = executor.tasks[client]
        assert len(tasks) > 1
        before = 0
        for task in tasks:
            assert task.steps_before == before
            before += task.steps


@pytest.mark.whatever_is_learned
def test_a_task_that_never_comes_back_skips_its_steps() -> None:
    chosen = experiment("fedasync", fleet={"dropouts": [[1, 0.9, 2.6]]})  # in epochs, as usual
    executor = Watched(chosen)
    simulate(chosen, problem=problem(), executor=executor)
    places = [task.steps_before for task in executor.tasks[1]]
    assert places == list(range(0, 4 * len(places), 4))
    away = next(task for task in executor.tasks[1] if task.needed_at > 0.9)
    assert away.needed_at < 2.6  # it was trained, but not answered: nobody reads its rows again


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_tasks_in_any_order_in_processes_and_in_stacks_give_the_same(sampling: Sampling) -> None:
    tiny = problem()
    settings = LocalSettings(optimizer="sgd", learning_rate=0.05, batch_size=8, sampling=sampling)
    serial = SerialExecutor(tiny, settings, seed=0)
    start = serial.trainer.initial_state()
    jobs = [
        TrainJob(
            key=key,
            client=key % CLIENTS,
            local_round=key // CLIENTS,
            steps=3 + key % 4,
            steps_before=5 * (key // CLIENTS),
            start=start,
            payload="delta",
            needed_at=0.0,
        )
        for key in range(2 * CLIENTS)
    ]
    wanted = [serial.result(job).update.trainable.clone() for job in jobs]
    for job, one in reversed(list(zip(jobs, wanted, strict=True))):
        assert torch.equal(serial.result(job).update.trainable, one)
    with (
        ProcessesExecutor(tiny, settings, seed=0, workers=1) as processes,
        StackedExecutor(tiny, settings, seed=0) as stacks,
    ):
        assert stacks.how == "stacked"
        for job in jobs:
            processes.submit(job)
            stacks.submit(job)
        for job, one in reversed(list(zip(jobs, wanted, strict=True))):
            assert torch.equal(processes.result(job).update.trainable, one)
            torch.testing.assert_close(
                stacks.result(job).update.trainable, one, rtol=1e-3, atol=2e-4
            )


@pytest.mark.parametrize("sampling", ["epochs", "rounds"])
def test_a_resumed_run_reads_on_where_it_stopped(sampling: Sampling, tmp_path: Path) -> None:
    chosen = eventful("fedcompass", local={"sampling": sampling})
    simulate(chosen, problem=problem(), folder=tmp_path / "whole")
    stopped_run(chosen, tmp_path / "stopped", saved=16, stopped=22)
    resumed(tmp_path / "stopped")
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_each_way_of_drawing_gives_another_model() -> None:
    ends = [
        simulate(experiment(local={"sampling": sampling}), problem=problem()).model["0.weight"]
        for sampling in SAMPLINGS
    ]
    for number, one in enumerate(ends):
        assert not any(torch.equal(one, other) for other in ends[:number])


def test_a_fleet_is_as_fast_however_batches_are_drawn(tmp_path: Path) -> None:
    for sampling in SAMPLINGS:
        chosen = experiment(fleet={"paces": PACES}, local={"sampling": sampling})
        simulate(chosen, problem=problem(), folder=tmp_path / sampling)
    journals = {(tmp_path / sampling / "journal.jsonl").read_bytes() for sampling in SAMPLINGS}
    assert len(journals) == 1


DATA = """\
import numpy as np


def data():
    draw = np.random.default_rng(0)
    y = draw.integers(0, 2, 60)
    x = draw.normal(size=(60, 3)) + y[:, None]
    return (x[:50], y[:50]), (x[50:], y[50:])
"""


@pytest.fixture(scope="module")
def own_data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a user's own data."""
    file = tmp_path_factory.mktemp("own") / "data_read_in_epochs.py"
    file.write_text(DATA)
    return f"{file}:data"


def on_own(data: str, **local: Any) -> Experiment:
    return Experiment(data={"name": data}, model="linear", partition={"kind": "iid"}, local=local)


def test_data_of_ones_own_are_read_in_epochs_and_built_in_data_drawn_with_replacement(
    own_data: str,
) -> None:
    for name in ("mnist-mini", "mnist", "cifar10"):
        assert Experiment(data={"name": name}).local.sampling == "replacement"
    assert on_own(own_data).local.sampling == "epochs"
    assert simulate(experiment(), problem=problem()).experiment.local.sampling == "epochs"
    chosen = Experiment(profile="own").with_settings({"data": on_own(own_data).data})
    assert chosen.local.sampling == "epochs"


def test_a_record_has_the_way_where_it_is_not_the_usual_one(own_data: str) -> None:
    usual, own = Experiment(), on_own(own_data)
    assert "sampling" not in usual.to_record()["local"]
    assert "sampling" not in own.to_record()["local"]
    assert Experiment(local={"sampling": "replacement"}).key() == usual.key()
    assert on_own(own_data, sampling="epochs").key() == own.key()
    epochs, replacement = (
        Experiment(local={"sampling": "epochs"}),
        on_own(own_data, sampling="replacement"),
    )
    assert epochs.to_record()["local"]["sampling"] == "epochs"
    assert replacement.to_record()["local"]["sampling"] == "replacement"
    for chosen in (usual, own, epochs, replacement):
        again = Experiment(**chosen.to_record())
        assert again == chosen
        assert again.local == chosen.local
    assert len({usual.key(), own.key(), epochs.key(), replacement.key()}) == 4


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_what_was_asked_for_holds_for_a_problem_given_in_python(
    sampling: Sampling, tmp_path: Path
) -> None:
    chosen = experiment(local={"sampling": sampling})
    result = simulate(chosen, problem=problem(), folder=tmp_path / "run")
    assert result.experiment.local.sampling == sampling
    kept = Experiment.from_toml(tmp_path / "run" / "experiment.toml")
    assert (kept, kept.local.sampling) == (result.experiment, sampling)
    again = simulate(result.experiment, problem=problem())
    assert again.experiment == result.experiment


def test_an_unknown_way_and_one_beside_a_privacy_budget_are_refused_in_one_line() -> None:
    with pytest.raises(SettingsError, match="sampling is 'epoch'; allowed: one of 'replacement'"):
        Experiment(local={"sampling": "epoch"})
    for sampling in SAMPLINGS:
        with pytest.raises(SettingsError, match=rf"^local.sampling is '{sampling}' with a priv"):
            Experiment(local={"sampling": sampling}, privacy={"epsilon": 8})
    assert Experiment(**Experiment(privacy={"epsilon": 8}).to_record()).privacy.is_on
