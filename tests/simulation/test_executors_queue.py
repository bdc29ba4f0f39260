"""Which job goes next, how jobs travel, and what a worker does, without processes."""

import contextlib
import os
import string
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.machinery import ModuleSpec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from threading import Thread
from types import ModuleType
from typing import Any, cast

import pytest
import torch
from torch import nn

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.errors import SettingsError, TaskFailed
from fedcompass.simulation.executors.parallel import next_job
from fedcompass.simulation.executors.protocol import EvalJob, EvalResult, Job, TrainJob
from fedcompass.simulation.executors.shared_memory import (
    load_in_worker,
    nameless_file,
    save_for_workers,
    shared_models,
)
from fedcompass.simulation.executors.training_worker import Trained, serve
from fedcompass.simulation.executors.worker_start import WorkerHandle
from fedcompass.training import LocalSettings, LocalTrainer, Problem

torch.set_num_threads(1)
EMPTY = FlatState(torch.empty(0), torch.empty(0), torch.empty(0, dtype=torch.int64))


def train_job(key: int, needed_at: float = 0.0, steps: int = 1, client: int = 0) -> TrainJob:
    return TrainJob(
        key=key,
        client=client,
        local_round=0,
        steps=steps,
        start=EMPTY,
        payload="delta",
        needed_at=needed_at,
    )


def eval_job(key: int) -> EvalJob:
    return EvalJob(key=key, state=EMPTY, metrics=("loss", "accuracy"))


def order_of(*jobs: Job, now: float = 0.0, most_evaluations: int = 4) -> list[int]:
    waiting = list(jobs)
    picked = []
    while waiting:
        picked.append(next_job(waiting, now=now, most_evaluations=most_evaluations))
        waiting.remove(picked[-1])
    return [job.key for job in picked]


def test_the_earliest_needed_goes_first() -> None:
    assert order_of(train_job(0, 30.0), train_job(1, 10.0), train_job(2, 20.0)) == [1, 2, 0]


def test_among_jobs_needed_at_about_the_same_time_the_longest_goes_first() -> None:
    jobs = [train_job(0, 100.0, 5), train_job(1, 104.0, 50), train_job(2, 106.0, 500)]
    assert order_of(*jobs) == [1, 0, 2]


def test_how_near_is_near_shrinks_as_the_time_comes() -> None:
    assert order_of(train_job(0, 100.0, 5), train_job(1, 104.0, 50), now=90.0) == [0, 1]


def test_evaluations_wait_for_training_until_too_many_wait() -> None:
    jobs: list[Job] = [*map(eval_job, range(4)), train_job(10, 10.0), train_job(11, 11.0)]
    assert order_of(*jobs, most_evaluations=2) == [0, 1, 10, 11, 2, 3]


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))


def small_problem() -> Problem:
    x, y = torch.randn(20, 4, generator=torch.manual_seed(0)), torch.arange(20) % 2
    return Problem.from_tensors(linear, train=(x, y), test=(x, y), parts=[torch.arange(20)])


def test_a_worker_reports_what_came_of_each_job() -> None:
    trainer = LocalTrainer(small_problem(), LocalSettings(), seed=0)
    ours, theirs = Pipe()
    worker = WorkerHandle(cast("ForkServerProcess", None), ours, *memory_for(trainer.layout))
    jobs: list[Job] = [train_job(1, steps=2), train_job(2, client=5), eval_job(3)]
    reports = []
    with ours, theirs:
        serving = Thread(target=served, args=(theirs, trainer, worker.start, worker.update))
        serving.start()
        for job in jobs:
            worker.give(with_model(job, trainer.initial_state()))
            reports.append(ours.recv())
        ours.close()
        serving.join()
    assert [type(report) for report in reports] == [Trained, TaskFailed, EvalResult]
    expected = trainer.train(worker.start, client=0, local_round=0, steps=2, payload="delta")
    assert torch.equal(worker.update.trainable, expected.trainable)


def served(connection: Connection, *given: Any) -> None:
    with contextlib.suppress(EOFError):
        serve(connection, *given)


def with_model(job: Job, state: FlatState) -> Job:
    return replace(job, start=state) if isinstance(job, TrainJob) else replace(job, state=state)


def test_a_job_travels_without_its_model() -> None:
    large = replace(train_job(1), start=FlatState(*(torch.zeros(100_000) for _ in range(3))))
    ours, theirs = Pipe()
    worker = WorkerHandle(cast("ForkServerProcess", None), ours, large.start.clone(), EMPTY)
    with ours, theirs:
        worker.give(large)
        assert len(theirs.recv_bytes()) < 500


def memory_for(layout: Layout) -> tuple[FlatState, FlatState]:
    descriptor = nameless_file()
    models = shared_models(descriptor, layout)
    os.close(descriptor)
    return models


def test_shared_models_show_what_the_other_process_wrote() -> None:
    layout = Layout.of(linear())
    descriptor = nameless_file()
    ours, theirs = (shared_models(descriptor, layout) for _ in range(2))
    os.close(descriptor)
    for number, state in enumerate(ours):
        for vector in state.tensors().values():
            vector.fill_(number + 1)
    for number, state in enumerate(theirs):
        assert {s: len(v) for s, v in state.tensors().items()} == layout.sizes
        for segment, vector in state.tensors().items():
            assert vector.dtype == layout.dtypes[segment]
            assert bool((vector == number + 1).all())


def sent(given: object) -> tuple[Mapping[str, Any] | None, Any]:
    """How a worker is to import our main script, and what it loads."""
    descriptor = nameless_file()
    try:
        main = save_for_workers(given, descriptor)
        return main, load_in_worker(descriptor, None)
    finally:
        os.close(descriptor)


def test_a_model_defined_at_a_prompt_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def model() -> nn.Module:
        return linear()

    prompt = ModuleType("__main__")
    prompt.model = model  # type: ignore[attr-defined]
    model.__module__, model.__qualname__ = "__main__", "model"
    monkeypatch.setitem(sys.modules, "__main__", prompt)
    with pytest.raises(SettingsError, match="'model' is defined in a notebook or at a prompt"):
        sent(model)


def test_a_model_defined_in_a_module_run_as_main_is_found_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec("string", None)
    main.Template = string.Template  # type: ignore[attr-defined]
    monkeypatch.setattr(string.Template, "__module__", "__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    needed, loaded = sent(string.Template)
    assert needed is not None
    assert needed["init_main_from_name"] == "string"
    assert loaded is string.Template


def test_a_problem_arrives_whole_with_shared_tensors_stored_once() -> None:
    problem = small_problem()
    needed, arrived = sent(problem)
    assert needed is None
    assert torch.equal(arrived.clients[0].tensor, problem.clients[0].tensor)
    assert torch.equal(arrived.test.targets, problem.test.targets)
    assert arrived.clients[0].tensor.data_ptr() == arrived.test.tensor.data_ptr()
