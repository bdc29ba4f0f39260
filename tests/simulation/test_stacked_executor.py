"""The stacked executor: the serial one's schedule exactly, its models up to rounding."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedcompass.aggregation.layout import FlatState
from fedcompass.errors import TaskFailed
from fedcompass.experiment import Experiment
from fedcompass.simulation.executors import EvalJob, SerialExecutor, TrainJob
from fedcompass.simulation.executors import stacked_jobs as stacked_jobs_module
from fedcompass.simulation.executors.stacked import StackedExecutor, StackedJobs, drive_stacked
from fedcompass.simulation.experiment_folder import create_run
from fedcompass.simulation.result import Result
from fedcompass.simulation.run import Run, simulate
from fedcompass.training import LocalSettings, Problem

torch.set_num_threads(1)
SETTINGS = LocalSettings(optimizer="sgd", learning_rate=0.05, batch_size=8)
STRATEGIES = ("fedcompass", "fedavg", "fedasync", "fedbuff", "fedat")


def cnn() -> nn.Module:
    """Smooth: with kinks, as ReLU has, a rounding can send hundreds of steps another way."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 5),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def random_layer() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(144, 10))


def problem_of(model: Callable[[], nn.Module] = cnn, **options: object) -> Problem:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(120) % 10
    x = torch.randn(120, 1, 12, 12, generator=generator) + y.view(-1, 1, 1, 1) / 5
    parts = torch.split(torch.randperm(120, generator=generator), [20, 60, 40])
    return Problem.from_tensors(
        model,
        train=(x, y),
        test=(x, y),
        parts=parts,
        **options,  # type: ignore[arg-type]
    )


def experiment_of(strategy: str, seed: int = 0) -> Experiment:
    return Experiment(
        seed=seed,
        strategy={"name": strategy},
        fleet={"clients": 3},
        local=SETTINGS.model_dump(),
        horizon=8.0,
    )


def train_job(start: FlatState, key: int, *, client: int = 0, steps: int = 2) -> TrainJob:
    return TrainJob(
        key=key,
        client=client,
        local_round=0,
        steps=steps,
        start=start,
        payload="delta",
        needed_at=0.0,
    )


def start_of(problem: Problem) -> FlatState:
    return SerialExecutor(problem, SETTINGS, seed=0).trainer.initial_state()


def assert_same_run(ours: Result, serial: Result, here: Path, there: Path) -> None:
    assert (here / "journal.jsonl").read_text() == (there / "journal.jsonl").read_text()
    assert [row["time"] for row in ours.curve] == [row["time"] for row in serial.curve]
    for one, other in zip(ours.curve, serial.curve, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
    for name, tensor in serial.model.items():
        torch.testing.assert_close(ours.model[name], tensor, rtol=1e-3, atol=1e-4)


def test_runs_driven_together_have_the_serial_schedule_and_model(tmp_path: Path) -> None:
    problem, stacked_jobs = problem_of(), StackedJobs(max_stack=8)
    runs = []
    for strategy in STRATEGIES:
        experiment = experiment_of(strategy)
        folder = create_run(tmp_path / f"{strategy}-stacked", experiment)
        executor = StackedExecutor(
            problem, experiment.local, experiment.seed, stacked_jobs=stacked_jobs
        )
        assert executor.how == "stacked"
        runs.append(Run(experiment, problem, executor, folder=folder))
    steps = (run.steps() for run in runs)
    ended = list(drive_stacked(steps, stacked_jobs, has_room=lambda live: live < 3))
    assert sorted(ended) == [(number, None) for number in range(len(runs))]
    for strategy, run in zip(STRATEGIES, runs, strict=True):
        alone = tmp_path / f"{strategy}-serial"
        serial = simulate(experiment_of(strategy), problem=problem, folder=alone)
        assert_same_run(run.result(), serial, tmp_path / f"{strategy}-stacked", alone)


@pytest.mark.parametrize(
    "pieces",
    [
        {"name": "metronome", "absent": "remember", "covered": 0.4},
        {"name": "fedcompass", "calibrated": True},
        {"name": "metronome", "since_last": True},
    ],
    ids=["remember", "calibrated", "since_last"],
)
def test_what_is_kept_of_clients_outlives_the_stack_they_trained_in(
    pieces: dict[str, Any], tmp_path: Path
) -> None:
    few = {"min_steps": 2, "max_steps": 10, **pieces}
    uneven = {"strategy": few, "fleet": {"paces": [0.1, 0.2, 1.5]}, "horizon": 8.0}
    chosen = experiment_of("metronome").with_settings(uneven)
    serial = simulate(chosen, problem=problem_of(), folder=tmp_path / "serial")
    ours = simulate(chosen, problem=problem_of(), executor="stacked", folder=tmp_path / "stacked")
    assert_same_run(ours, serial, tmp_path / "stacked", tmp_path / "serial")
    said = (tmp_path / "stacked" / "journal.jsonl").read_text()
    assert ("FoldAgain" in said) == ("absent" in pieces)


@pytest.mark.parametrize("target", [0.2, 0.4, 0.99], ids=["early", "later", "never"])
def test_runs_that_stop_at_their_target_stop_where_the_serial_ones_do(
    target: float, tmp_path: Path
) -> None:
    problem, experiment = (
        problem_of(),
        experiment_of("fedasync").with_settings(
            {
                "target": target,
                "stop_at_target": True,
                "run_at_least": 6.0,
                "evaluation": {"every_updates": None, "every_seconds": 0.5},
            }
        ),
    )
    serial = simulate(experiment, problem=problem, folder=tmp_path / "serial")
    ours = simulate(experiment, problem=problem, executor="stacked", folder=tmp_path / "stacked")
    assert_same_run(ours, serial, tmp_path / "stacked", tmp_path / "serial")
    for name in ("virtual_seconds", "time_to_target", "local_steps"):
        assert ours.summary[name] == serial.summary[name]


def test_one_run_works_with_it_like_with_any_executor(tmp_path: Path) -> None:
    problem, experiment = problem_of(), experiment_of("fedcompass", seed=3)
    with StackedExecutor(problem, experiment.local, experiment.seed) as executor:
        ours = simulate(experiment, problem=problem, executor=executor, folder=tmp_path / "stacked")
    serial = simulate(experiment, problem=problem, folder=tmp_path / "serial")
    assert_same_run(ours, serial, tmp_path / "stacked", tmp_path / "serial")


def test_evaluations_are_batched_and_equal_those_of_the_serial_executor() -> None:
    problem = problem_of()
    start = start_of(problem)
    with (
        StackedExecutor(problem, SETTINGS, seed=0) as stacked,
        SerialExecutor(problem, SETTINGS, seed=0) as serial,
    ):
        jobs = [
            EvalJob(key=0, state=start, metrics=("loss", "accuracy")),
            EvalJob(key=1, state=start, metrics=("accuracy",), client_metrics=("accuracy",)),
        ]
        for job in jobs:
            stacked.submit(job)
        for job in jobs:
            ours, theirs = stacked.result(job), serial.result(job)
            assert ours.metrics == pytest.approx(theirs.metrics, rel=1e-5)
            assert ours.by_client == theirs.by_client
            assert ours.seconds > 0


def test_a_model_that_cannot_be_stacked_is_trained_alone_and_it_says_so_once() -> None:
    problem, stacked_jobs = problem_of(random_layer), StackedJobs()
    with pytest.warns(UserWarning, match=r"one at a time \(.*random"):
        executor = StackedExecutor(problem, SETTINGS, 0, stacked_jobs=stacked_jobs)
    StackedExecutor(
        problem, SETTINGS, 1, stacked_jobs=stacked_jobs
    )  # says nothing: a warning would fail the test
    assert executor.how.startswith("one at a time (")
    job = train_job(start_of(problem), 0)
    executor.submit(job)
    with SerialExecutor(problem, SETTINGS, seed=0) as serial:
        wanted = serial.result(job).update
        assert torch.equal(executor.result(job).update.trainable, wanted.trainable)


class RandomFeatures(nn.Module):
    """Has a buffer that is not saved, and depends on the seed."""

    def __init__(self) -> None:
        super().__init__()
        self.features: torch.Tensor
        self.register_buffer("features", torch.randn(144, 20), persistent=False)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(20, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.drop(x.flatten(1) @ self.features))
        return out


def test_runs_side_by_side_do_not_share_what_their_seeds_tell_apart() -> None:
    problem, stacked_jobs = problem_of(RandomFeatures), StackedJobs()
    with pytest.warns(UserWarning, match="one at a time"):
        executors = [
            StackedExecutor(problem, SETTINGS, s, stacked_jobs=stacked_jobs) for s in (1, 2)
        ]
    for seed, executor in enumerate(executors, start=1):
        job = train_job(start_of(problem), seed)
        executor.submit(job)
        with SerialExecutor(problem, SETTINGS, seed=seed) as serial:
            wanted = serial.result(job).update
        assert torch.equal(executor.result(job).update.trainable, wanted.trainable)


def test_a_failing_client_is_named_and_the_others_go_on() -> None:
    x, y = torch.zeros(8, 1, 12, 12), torch.tensor([0, 0, 0, 0, 99, 99, 99, 99])
    parts = torch.arange(8).chunk(2)
    problem = Problem.from_tensors(cnn, train=(x, y), test=(x, y), parts=parts)
    start = start_of(problem)
    executor = StackedExecutor(problem, SETTINGS, seed=0)
    good, bad = train_job(start, 0), train_job(start, 1, client=1)
    executor.submit(good)
    executor.submit(bad)
    with pytest.warns(UserWarning, match="a stack of tasks failed"):
        assert executor.result(good).steps == 2
    with pytest.raises(TaskFailed, match="client 1 failed in local round 0"):
        executor.result(bad)


def test_an_error_ends_its_own_simulation_only() -> None:
    x, y = torch.zeros(6, 1, 12, 12), torch.tensor([0, 1, 2, 99, 99, 99])
    stacked_jobs, runs = StackedJobs(), []
    for rows in ([[0], [1], [2]], [[3], [4], [5]]):
        parts = [torch.tensor(part) for part in rows]
        problem = Problem.from_tensors(cnn, train=(x, y), test=(x[:2], y[:2]), parts=parts)
        experiment = experiment_of("fedasync")
        runs.append(
            Run(
                experiment,
                problem,
                StackedExecutor(problem, experiment.local, 0, stacked_jobs=stacked_jobs),
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the stack that held the failing task
        ended = dict(drive_stacked([run.steps() for run in runs], stacked_jobs))
    assert ended[0] is None
    assert isinstance(ended[1], TaskFailed)
    assert "failed in local round 0" in str(ended[1])


def test_of_many_tasks_the_awaited_and_then_the_next_of_each_run_are_trained_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stacked_jobs_module, "_TASKS_AT_ONCE", 3)
    problem, stacked_jobs = problem_of(), StackedJobs()
    start = start_of(problem)
    jobs: dict[str, TrainJob] = {}
    for run, due in (("a", (1.0, 2.0, 3.0)), ("b", (8.0, 7.0))):
        context = stacked_jobs.context(problem, SETTINGS, seed=ord(run))
        for number, needed_at in enumerate(due):
            job = replace(train_job(start, len(jobs)), needed_at=needed_at)
            stacked_jobs.submit(job, context)
            jobs[f"{run}{number}"] = job
    stacked_jobs.work([jobs["a2"]])
    assert [name for name, job in jobs.items() if stacked_jobs.is_done(job)] == ["a0", "a2", "b1"]
    stacked_jobs.work()
    assert all(stacked_jobs.is_done(job) for job in jobs.values())


def test_where_tasks_train_alone_none_is_trained_before_it_is_needed() -> None:
    problem, stacked_jobs = problem_of(random_layer), StackedJobs()
    with pytest.warns(UserWarning, match="one at a time"):
        context = stacked_jobs.context(problem, SETTINGS, seed=0)
    start = start_of(problem)
    needed, later = (train_job(start, key, client=key) for key in range(2))
    for job in (needed, later):
        stacked_jobs.submit(job, context)
    stacked_jobs.work([needed])
    assert [stacked_jobs.is_done(job) for job in (needed, later)] == [True, False]
    assert stacked_jobs.result(later).seconds > 0


def test_tasks_whose_learning_rates_fall_share_a_stack_with_the_others() -> None:
    falling = SETTINGS.model_copy(update={"rate_decay": 0.5, "rate_decay_steps": 1})
    problem, stacked_jobs = problem_of(), StackedJobs()
    contexts = [stacked_jobs.context(problem, settings, seed=0) for settings in (SETTINGS, falling)]
    assert contexts[0].trainer is contexts[1].trainer
    start = start_of(problem)
    jobs = [train_job(start, key) for key in range(2)]
    for job, context in zip(jobs, contexts, strict=True):
        stacked_jobs.submit(job, context)
    norms = [float(stacked_jobs.result(job).update.trainable.norm()) for job in jobs]  # type: ignore[union-attr]
    assert 0 < norms[1] < 0.5 * norms[0]


def test_discarded_and_closed_jobs_are_not_trained() -> None:
    problem, stacked_jobs = problem_of(), StackedJobs()
    start = start_of(problem)
    one, other = (
        StackedExecutor(problem, SETTINGS, seed, stacked_jobs=stacked_jobs) for seed in (0, 1)
    )
    kept, dropped, closed = (train_job(start, key) for key in range(3))
    one.submit(kept)
    one.submit(dropped)
    other.submit(closed)
    one.discard(dropped)
    other.close()
    one.result(kept)
    for job in (kept, dropped, closed):
        with pytest.raises(ValueError, match="was not submitted"):
            one.result(job)


def test_runs_of_another_kind_do_not_share_a_stack() -> None:
    problem, stacked_jobs = problem_of(), StackedJobs()
    faster = LocalSettings(optimizer="sgd", learning_rate=0.5, batch_size=8)
    executors = [
        StackedExecutor(problem, settings, 0, stacked_jobs=stacked_jobs)
        for settings in (SETTINGS, faster)
    ]
    start = start_of(problem)
    jobs = [train_job(start, key) for key in range(2)]
    for executor, job in zip(executors, jobs, strict=True):
        executor.submit(job)
    slow, fast = (e.result(job).update for e, job in zip(executors, jobs, strict=True))
    assert fast.trainable.norm() > 3 * slow.trainable.norm()
