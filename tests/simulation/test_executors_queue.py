"""Which job goes next, how orders travel, and what a worker does, without processes."""

import os
import string
import sys
from importlib.machinery import ModuleSpec
from multiprocessing import Pipe
from types import ModuleType

import pytest
import torch
from torch import nn

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.errors import SettingsError
from fedcompass.simulation.executors.orders import order_record, read_order
from fedcompass.simulation.executors.protocol import EvalJob, TrainJob
from fedcompass.simulation.executors.shared import SharedMemory, SharedStates
from fedcompass.simulation.executors.shipping import pack, unpack
from fedcompass.simulation.executors.waiting import WaitingJobs
from fedcompass.simulation.executors.worker import Failed, Measured, Took, Trained, serve
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


def order_of(waiting: WaitingJobs) -> list[int]:
    return [waiting.pop().key for _ in range(len(waiting))]


def test_the_earliest_needed_goes_first() -> None:
    waiting = WaitingJobs(most_evaluations=4)
    for key, needed_at in enumerate([30.0, 10.0, 20.0]):
        waiting.add(train_job(key, needed_at))
    assert order_of(waiting) == [1, 2, 0]


def test_among_jobs_needed_at_about_the_same_time_the_longest_goes_first() -> None:
    waiting = WaitingJobs(most_evaluations=4)
    for key, (needed_at, steps) in enumerate([(100.0, 5), (104.0, 50), (106.0, 500)]):
        waiting.add(train_job(key, needed_at, steps))
    assert order_of(waiting) == [1, 0, 2]


def test_how_near_is_near_shrinks_as_the_time_comes() -> None:
    waiting = WaitingJobs(most_evaluations=4)
    waiting.now = 90.0
    for key, (needed_at, steps) in enumerate([(100.0, 5), (104.0, 50)]):
        waiting.add(train_job(key, needed_at, steps))
    assert order_of(waiting) == [0, 1]


def test_evaluations_wait_for_training_until_too_many_wait() -> None:
    waiting = WaitingJobs(most_evaluations=2)
    for key in range(4):
        waiting.add(eval_job(key))
    for key in (10, 11):
        waiting.add(train_job(key, needed_at=key))
    assert order_of(waiting) == [0, 1, 10, 11, 2, 3]


def test_a_certain_job_can_be_taken_out() -> None:
    waiting = WaitingJobs(most_evaluations=2)
    for job in (train_job(1), eval_job(2)):
        waiting.add(job)
        assert job.key in waiting
        assert waiting.remove(job.key) is job
        assert job.key not in waiting


def test_orders_come_out_of_a_pipe_as_they_went_in() -> None:
    readable, writable = os.pipe()
    states = [EMPTY, EMPTY.clone()]
    os.write(writable, order_record(train_job(5, steps=7, client=3), 1, 0))
    os.write(writable, order_record(eval_job(6), 0, None))
    os.close(writable)
    first, second = (read_order(readable, states.__getitem__) for _ in range(2))
    assert first is not None
    assert second is not None
    job, out = first
    assert isinstance(job, TrainJob)
    assert (job.key, job.client, job.local_round, job.steps, job.payload) == (5, 3, 0, 7, "delta")
    assert (job.start, out) == (states[1], 0)
    measured, nothing = second
    assert isinstance(measured, EvalJob)
    assert (measured.metrics, measured.client_metrics) == (("loss", "accuracy"), ())
    assert nothing is None
    assert read_order(readable, states.__getitem__) is None
    os.close(readable)


def test_an_order_that_does_not_fit_a_record_is_refused() -> None:
    job = EvalJob(key=1, state=EMPTY, metrics=("loss",) * 100)
    with pytest.raises(ValueError, match="at most 256 fit"):
        order_record(job, 0, None)


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))


def small_problem() -> Problem:
    x, y = torch.randn(20, 4, generator=torch.manual_seed(0)), torch.arange(20) % 2
    return Problem.from_tensors(linear, train=(x, y), test=(x, y), parts=[torch.arange(20)])


def test_a_worker_reports_what_it_took_and_what_came_of_it() -> None:
    trainer = LocalTrainer(small_problem(), LocalSettings(), seed=0)
    states = SharedStates(trainer.layout)
    start, out = states.take(), states.take()
    states[start].copy_(trainer.initial_state())
    readable, writable = os.pipe()
    os.write(writable, order_record(train_job(1, steps=2), start, out))
    os.write(writable, order_record(train_job(2, client=5), start, out))
    os.write(writable, order_record(eval_job(3), start, None))
    os.close(writable)
    ours, theirs = Pipe()
    serve(theirs, readable, trainer, states)
    reports = [ours.recv() for _ in range(6)]
    assert [type(report) for report in reports] == [Took, Trained, Took, Failed, Took, Measured]
    assert [report.key for report in reports] == [1, 1, 2, 2, 3, 3]
    expected = trainer.train(states[start], client=0, local_round=0, steps=2, payload="delta")
    assert torch.equal(states[out].trainable, expected.trainable)
    for end in (ours, theirs):
        end.close()
    os.close(readable)
    states.close()


def test_shared_slots_keep_their_values_while_the_memory_grows() -> None:
    layout = Layout.of(linear())
    ours = SharedStates(layout)
    theirs = SharedStates(layout, os.dup(ours.memory.descriptor))
    slots = [ours.take() for _ in range(3)]
    for slot in slots:
        ours[slot].trainable.fill_(slot)
    slots += [ours.take() for _ in range(200)]
    for slot in slots:
        ours[slot].trainable.fill_(slot)
        ours[slot].counted.fill_(slot)
    for slot in slots:
        assert bool((theirs[slot].trainable == slot).all())
        assert bool((theirs[slot].counted == slot).all())
    ours.give_back(slots[7])
    assert ours.take() == slots[7]
    for states in (ours, theirs):
        states.close()
        states.close()


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
        pack(model, SharedMemory())


def test_a_model_defined_in_a_module_run_as_main_is_found_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec("string", None)
    main.Template = string.Template  # type: ignore[attr-defined]
    monkeypatch.setattr(string.Template, "__module__", "__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    memory = SharedMemory()
    parcel = pack(string.Template, memory)
    assert parcel.main == "string"
    assert unpack(parcel, memory) is string.Template
    memory.close()


def test_a_problem_arrives_whole_with_shared_tensors_stored_once() -> None:
    memory = SharedMemory()
    problem = small_problem()
    arrived = unpack(pack(problem, memory), memory)
    assert isinstance(arrived, Problem)
    assert torch.equal(arrived.clients[0].inputs, problem.clients[0].inputs)
    assert torch.equal(arrived.test.targets, problem.test.targets)
    assert arrived.clients[0].inputs.data_ptr() == arrived.test.inputs.data_ptr()
    memory.close()
