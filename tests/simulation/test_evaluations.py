"""When the model is measured: by updates, by time, both, and always at the two ends."""

import weakref
from collections.abc import Generator
from itertools import count
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.simulation.tiny_runs import experiment, problem
from torch import Tensor, nn

from fedcompass.experiment import Experiment
from fedcompass.setting_tables import merged
from fedcompass.simulation.executors import EvalJob, EvalResult, Job, TrainJob
from fedcompass.simulation.executors.serial import NoTraining
from fedcompass.simulation.result import Result
from fedcompass.simulation.run import Run, simulate
from fedcompass.training import LocalTrainer, evaluate, evaluate_clients
from fedcompass.training.problem import Problem


def clockwork(every_updates: int | None, every_seconds: float | None, **more: Any) -> Experiment:
    """FedAvg of two equal clients: version k comes at k seconds, up to six."""
    return experiment(
        "fedavg",
        strategy={"steps": 10},
        fleet={"paces": [0.1, 0.1], "jitter": 0.0},
        evaluation={"every_updates": every_updates, "every_seconds": every_seconds},
        horizon=6.5,
        **more,
    )


def times_and_versions(chosen: Experiment) -> list[tuple[float, int]]:
    curve = simulate(chosen, problem=problem(2)).curve
    return [(round(row["time"], 6), row["version"]) for row in curve]


@pytest.mark.parametrize(
    ("every_updates", "every_seconds", "expected"),
    [
        (1, None, [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6)]),
        (4, None, [(0, 0), (4, 4), (6, 6)]),
        (None, 1.75, [(0, 0), (1.75, 1), (3.5, 3), (5.25, 5), (6, 6)]),
        (3, 2.5, [(0, 0), (2.5, 2), (3, 3), (5, 4), (6, 6)]),
        (None, 3.25, [(0, 0), (3.25, 3), (6.5, 6)]),
        (None, None, [(0, 0), (6, 6)]),
        (None, 0.4, [(0, 0), (1.2, 1), (2.4, 2), (3.2, 3), (4.4, 4), (5.2, 5), (6.4, 6)]),
    ],
)
def test_the_model_is_measured_when_asked_and_at_both_ends(
    every_updates: int | None, every_seconds: float | None, expected: list[tuple[float, int]]
) -> None:
    assert times_and_versions(clockwork(every_updates, every_seconds)) == expected


def test_a_run_ended_by_its_updates_is_not_measured_after_its_end() -> None:
    chosen = clockwork(None, 2.5, max_updates=3)
    assert times_and_versions(chosen) == [(0, 0), (2.5, 2), (3, 3)]


def test_measuring_does_not_change_the_run() -> None:
    often = simulate(clockwork(1, 0.3), problem=problem(2))
    seldom = simulate(clockwork(None, None), problem=problem(2))
    assert all(torch.equal(often.model[name], seldom.model[name]) for name in often.model)
    assert often.curve[-1]["loss"] == seldom.curve[-1]["loss"]


def test_every_clients_own_samples_are_measured_on_request() -> None:
    chosen = experiment("fedavg", evaluation={"per_client": True, "every_updates": None})
    tiny = problem()
    result = simulate(chosen, problem=tiny)
    trainer = LocalTrainer(tiny, chosen.local, chosen.seed)
    final = trainer.layout.flatten(result.model)
    own = evaluate_clients(trainer, final, ["accuracy"])
    assert result.curve[-1]["clients"] == [metrics["accuracy"] for metrics in own]
    assert len(result.curve[0]["clients"]) == 4
    assert "clients" not in simulate(experiment("fedavg"), problem=tiny).curve[0]


class Window(nn.Module):
    """One number; an input within 1 of it is of class 1."""

    def __init__(self) -> None:
        super().__init__()
        self.middle = nn.Parameter(torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        inside = 1 - (inputs - self.middle).abs()
        return torch.stack([torch.zeros_like(inside), inside], dim=1)


def passing_by() -> Problem:
    """Training takes the window from 0 to the clients' inputs at 9, past the test inputs at 4."""
    ones = torch.ones(40, dtype=torch.int64)
    return Problem.from_tensors(
        Window,
        train=(torch.full((40,), 9.0), ones),
        test=(torch.full((5,), 4.0), ones[:5]),
        parts=torch.arange(40).chunk(4),
    )


@pytest.mark.parametrize(("target", "best"), [("accuracy", max), ("loss", min)])
def test_the_best_model_is_the_one_of_the_best_row(target: str, best: Any) -> None:
    """On the way to the last model, which is worse by far, however a processor rounds."""
    chosen = experiment(
        "fedasync",
        local={"learning_rate": 0.5},
        evaluation={"metrics": ["loss", "accuracy"], "target_metric": target},
    )
    tiny = passing_by()
    result = simulate(chosen, problem=tiny)
    trainer = LocalTrainer(tiny, chosen.local, chosen.seed)
    state = trainer.layout.flatten(result.best_model)
    again = evaluate(trainer, state, tiny.test, ["loss", "accuracy"])
    values = [row[target] for row in result.curve]
    first = values.index(best(values))
    assert 0 < first < len(values) - 1
    row = result.curve[first]
    assert again == {"loss": row["loss"], "accuracy": row["accuracy"]}
    assert result.top() == row[target]
    assert result.summary["time_of_top"] == row["time"]
    assert result.time_to(row[target]) == row["time"]


def fed(values: list[float], target: str = "accuracy") -> tuple[Run, dict[int, Tensor]]:
    """A run without training whose measurements are given, and the model of each version."""
    tiny, executor = problem(2), NoTraining()
    chosen = clockwork(1, None).with_settings(
        {"evaluation": {"metrics": [target], "target_metric": target}, "horizon": len(values) - 0.5}
    )
    run = Run(chosen, tiny, executor)
    models: dict[int, Tensor] = {}
    given = iter(values)
    steps: Generator[Job, Any, None] = run.steps()
    job = next(steps)
    try:
        while True:
            if isinstance(job, EvalJob):
                models[len(models)] = job.state.trainable
                job = steps.send(EvalResult(metrics={target: next(given)}, seconds=0.0))
            else:
                job = steps.send(executor.result(job))
    except StopIteration:
        return run, models


@pytest.mark.parametrize(
    ("target", "values", "best"),
    [
        ("accuracy", [0.1, 0.5, 0.5, 0.2], 1),
        ("accuracy", [nan, 0.1, nan, 0.3], 3),
        ("accuracy", [nan, nan], 0),
        ("loss", [2.0, nan, 0.5, 1.0], 2),
        ("loss", [inf, 9.0, 8.0], 2),
    ],
)
def test_a_measurement_that_is_not_a_number_is_never_the_best(
    target: str, values: list[float], best: int
) -> None:
    run, models = fed(values, target)
    state = run.simulation.evaluations.best
    assert state is not None
    assert state.trainable is models[best]
    assert run.result().summary["time_of_top"] == pytest.approx(float(best))


class CountingExecutor(NoTraining):
    """Knows which models handed out with jobs are still in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.models: list[weakref.ref[Tensor]] = []
        self.evaluations = 0

    def submit(self, job: Job) -> None:
        model = job.state if isinstance(job, EvalJob) else job.start
        if all(known() is not model.trainable for known in self.models):
            self.models.append(weakref.ref(model.trainable))
        self.evaluations += isinstance(job, EvalJob)

    def alive(self) -> int:
        return sum(model() is not None for model in self.models)


def test_only_a_few_models_wait_to_be_measured() -> None:
    chosen = experiment("fedasync", horizon=40.0)
    executor, most = CountingExecutor(), 0

    def look(_simulation: object) -> None:
        nonlocal most
        most = max(most, executor.alive())

    simulate(chosen, problem=problem(), executor=executor, on_progress=look)
    assert executor.evaluations > 150
    # eight that wait, one in flight for each client, the best and the present one
    assert most <= 8 + 4 + 2


def test_a_problem_of_ones_own_names_its_own_metrics() -> None:
    tiny: Problem = problem(2)
    chosen = clockwork(2, None).with_settings({"evaluation": {"metrics": ["accuracy"]}})
    result = simulate(chosen, problem=tiny)
    assert list(result.curve[0]) == ["time", "version", "accuracy"]


def test_job_keys_are_unique_among_runs_that_share_an_executor() -> None:
    keys = count()
    tiny, executor = problem(2), NoTraining()
    seen: list[int] = []
    for _ in range(2):
        steps = Run(clockwork(1, None), tiny, executor, keys=keys).steps()
        job = next(steps)
        for _ in range(6):
            seen.append(job.key)
            result: Any = executor.result(job)
            job = steps.send(result)
        steps.close()
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("every_seconds", [None, 0.7])
def test_a_run_can_end_when_its_target_is_reached(every_seconds: float | None) -> None:
    changes = {
        "target": 0.8,
        "horizon": 15.0,
        "local": {"learning_rate": 0.05},
        "evaluation": {
            "every_updates": 1 if every_seconds is None else None,
            "every_seconds": every_seconds,
        },
    }
    whole = simulate(experiment("fedasync", **changes), problem=problem())
    ended = simulate(experiment("fedasync", **changes, stop_at_target=True), problem=problem())
    reached = whole.time_to(0.8)
    assert reached is not None
    assert ended.time_to(0.8) == ended.summary["time_to_target"] == reached
    rows = [row for row in whole.curve if row["time"] <= reached]
    assert ended.curve[: len(rows)] == rows
    assert len(ended.curve) <= len(rows) + 1  # a version that came while the model was measured
    assert ended.summary["virtual_seconds"] < 10.0


LONG: dict[str, Any] = {
    "target": 0.8,
    "horizon": 15.0,
    "local": {"learning_rate": 0.05},
    "evaluation": {"every_updates": None, "every_seconds": 0.5},
}


def stopping(at_least: float, **more: Any) -> Result:
    changes = merged(LONG, {"stop_at_target": True, "run_at_least": at_least, **more})
    return simulate(experiment("fedasync", **changes), problem=problem())


def test_a_run_that_reached_its_target_early_goes_on_at_least_so_long() -> None:
    """And is the very run that has its horizon there."""
    ended = stopping(11.0)
    shorter = simulate(experiment("fedasync", **{**LONG, "horizon": 11.0}), problem=problem())
    reached = shorter.time_to(0.8)
    assert reached is not None
    assert reached < 11.0
    assert ended.curve == shorter.curve
    assert ended.curve[-1]["time"] == 11.0  # the version of then, measured then
    assert ended.summary["time_to_target"] == reached
    assert ended.summary["virtual_seconds"] == shorter.summary["virtual_seconds"] <= 11.0
    assert ended.summary["local_steps"] == shorter.summary["local_steps"]
    assert all(torch.equal(ended.model[name], shorter.model[name]) for name in ended.model)


def test_a_run_that_comes_late_to_its_target_ends_there() -> None:
    whole = simulate(experiment("fedasync", **LONG), problem=problem())
    reached = whole.time_to(0.8)
    assert reached is not None
    at_once, later = stopping(0.0), stopping(reached - 1.0)
    assert later.curve == at_once.curve
    assert later.summary == at_once.summary
    assert later.summary["virtual_seconds"] < reached + 1.0


def test_a_run_may_stop_some_evaluations_late_so_that_training_need_not_wait_for_each() -> None:
    at_once, late = stopping(0.0), stopping(0.0, stop_late_by=3)
    reached = at_once.summary["time_to_target"]
    assert late.summary["time_to_target"] == reached
    until = [row for row in at_once.curve if row["time"] <= reached]
    assert late.curve[: len(until)] == until
    ticks = [row["time"] for row in late.curve[len(until) :]]
    assert ticks[:3] == [reached + 0.5, reached + 1.0, reached + 1.5]
    assert late.summary["virtual_seconds"] < reached + 2.0


def test_when_a_late_run_stops_does_not_depend_on_which_results_are_in(tmp_path: Path) -> None:
    """A checkpoint takes in every result, so a run saved after each event has them all."""
    settings = merged(LONG, {"stop_at_target": True, "stop_late_by": 3})
    saved = simulate(
        experiment("fedasync", **settings),
        problem=problem(),
        folder=tmp_path / "run",
        checkpoint_every=0.0,
    )
    assert saved.curve == stopping(0.0, stop_late_by=3).curve


def test_a_run_that_never_comes_to_its_target_goes_on_to_the_horizon() -> None:
    whole = simulate(experiment("fedasync", **{**LONG, "target": 1.0}), problem=problem())
    assert whole.summary["time_to_target"] is None
    ended = stopping(4.0, target=1.0)
    assert ended.curve == whole.curve
    assert ended.summary == whole.summary
    assert stopping(15.0).curve == whole.curve


def test_a_run_that_starts_at_its_target_does_nothing_unless_it_must() -> None:
    assert [row["time"] for row in stopping(0.0, target=0.0).curve] == [0.0]
    assert stopping(3.0, target=0.0).curve[-1]["time"] == 3.0


class RecordingExecutor(NoTraining):
    """Knows when each task that it was given is due."""

    def __init__(self) -> None:
        super().__init__()
        self.due: list[float] = []
        self.open: set[Job] = set()

    def submit(self, job: Job) -> None:
        self.open.add(job)
        if isinstance(job, TrainJob):
            self.due.append(job.needed_at)

    def result(self, job: Any) -> Any:
        self.open.remove(job)
        return super().result(job)

    def discard(self, job: Job) -> None:
        self.open.remove(job)


@pytest.mark.parametrize(("target", "latest"), [(0.0, 4.0), (1.0, 15.0)])
def test_a_task_that_nobody_may_ask_for_is_not_trained(target: float, latest: float) -> None:
    executor = RecordingExecutor()
    changes = merged(
        LONG,
        {
            "target": target,
            "stop_at_target": True,
            "run_at_least": 4.0,
            "fleet": {"dropout_probability": 0.2, "dropout_seconds": 0.5},
        },
    )
    simulate(experiment("fedasync", **changes), problem=problem(), executor=executor)
    assert latest - 1.0 < max(executor.due) <= latest
    assert not executor.open
