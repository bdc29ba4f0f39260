"""Executors give the same bits, in the order asked, and fail with one clear error."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.child_processes import PATIENCE, started
from torch import Tensor, nn
from torch.nn import functional

from fedcompass.aggregation.layout import FlatState
from fedcompass.errors import SettingsError, TaskFailed
from fedcompass.simulation.executors import (
    EvalJob,
    ProcessesExecutor,
    SerialExecutor,
    TrainJob,
)
from fedcompass.training import LocalSettings, Problem

torch.set_num_threads(1)
SETTINGS = LocalSettings(batch_size=16)


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


def normed() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 32), nn.BatchNorm1d(32), nn.Dropout(0.5), nn.Linear(32, 10)
    )


def to_float(pixels: Tensor) -> Tensor:
    return pixels.float() / 255


def jiggled(inputs: Tensor, generator: torch.Generator) -> Tensor:
    return inputs + 0.01 * torch.randn(inputs.shape, generator=generator)


def odd_label_fails(outputs: Tensor, targets: Tensor) -> Tensor:
    if bool((targets == 99).any()):
        raise ValueError("label 99")
    return functional.cross_entropy(outputs, targets)


def slow(outputs: Tensor, targets: Tensor) -> Tensor:
    time.sleep(0.05)
    return functional.cross_entropy(outputs, targets)


def dying(outputs: Tensor, targets: Tensor) -> Tensor:
    os.kill(os.getpid(), signal.SIGKILL)
    return functional.cross_entropy(outputs, targets)


def tells_its_folder(outputs: Tensor, targets: Tensor) -> Tensor:
    raise ValueError(f"in {Path.cwd().name}")


def problem_of(model=normed, **options) -> Problem:  # type: ignore[no-untyped-def]
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (240, 1, 28, 28), dtype=torch.uint8, generator=generator)
    y = torch.arange(240) % 10
    return Problem.from_tensors(
        model,
        train=(x, y),
        test=(x, y),
        parts=torch.arange(240).chunk(4),
        transform=to_float,
        **options,
    )


def train_job(start: FlatState, key: int, *, steps: int = 3, needed_at: float = 0.0) -> TrainJob:
    return TrainJob(
        key=key,
        client=key % 4,
        local_round=key // 4,
        steps=steps,
        start=start,
        payload="model" if key % 3 == 2 else "delta",
        needed_at=needed_at,
    )


def start_of(problem: Problem) -> FlatState:
    return SerialExecutor(problem, SETTINGS, seed=0).trainer.initial_state()


@contextlib.contextmanager
def two_workers(problem: Problem) -> Iterator[ProcessesExecutor]:
    with ProcessesExecutor(problem, SETTINGS, seed=0, workers=2) as executor:
        yield executor


def workers_of(executor: ProcessesExecutor) -> list[int]:
    return [w.process.pid for w in executor._workers if w.process.pid is not None]


def keeps_nothing(executor: ProcessesExecutor) -> bool:
    busy = any(worker.job for worker in executor._workers)
    return not (busy or executor._finished or executor._waiting)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


AT_ONCE = 20.0  # seconds; a busy machine is slow, but the tasks would take minutes


def gone_soon(pids: list[int]) -> bool:
    until = time.monotonic() + PATIENCE
    while any(alive(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.01)
    return not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("model", [cnn, normed])
def test_the_same_job_gives_the_same_bits_in_every_executor(model) -> None:  # type: ignore[no-untyped-def]
    problem = problem_of(model, augment=jiggled)
    with SerialExecutor(problem, SETTINGS, seed=0) as serial, two_workers(problem) as processes:
        start = serial.trainer.initial_state()
        jobs = [train_job(start, key) for key in range(6)]
        for job in jobs:
            processes.submit(job)
        for job in reversed(jobs):
            here, there = serial.result(job), processes.result(job)
            for one, other in zip(
                here.update.tensors().values(), there.update.tensors().values(), strict=True
            ):
                assert torch.equal(one, other)
            assert there.steps == job.steps
            assert there.seconds > 0


def test_the_serial_executor_trains_with_one_thread_whatever_the_process_uses() -> None:
    problem = problem_of(cnn)
    with SerialExecutor(problem, SETTINGS, seed=0) as serial:
        start = serial.trainer.initial_state()
        expected = serial.result(train_job(start, 0)).update.clone()
        torch.set_num_threads(2)
        try:
            assert torch.equal(
                serial.result(train_job(start, 0)).update.trainable, expected.trainable
            )
            assert torch.get_num_threads() == 2
        finally:
            torch.set_num_threads(1)


def test_an_evaluation_gives_the_same_numbers_in_every_executor() -> None:
    problem = problem_of()
    with SerialExecutor(problem, SETTINGS, seed=0) as serial, two_workers(problem) as processes:
        job = EvalJob(
            key=1,
            state=serial.trainer.initial_state(),
            metrics=("loss", "accuracy", "balanced_accuracy"),
            client_metrics=("accuracy",),
        )
        processes.submit(job)
        here, there = serial.result(job), processes.result(job)
        assert here.metrics == there.metrics
        assert here.by_client == there.by_client
        assert len(there.by_client) == 4


@pytest.mark.whatever_is_learned
def test_a_result_may_be_asked_for_in_any_order_and_is_not_kept() -> None:
    problem = problem_of()
    start = start_of(problem)
    with two_workers(problem) as executor:
        for wave in range(5):
            jobs = [train_job(start, 10 * wave + i) for i in range(10)]
            for job in jobs:
                executor.submit(job)
            for job in jobs[::-1]:
                executor.result(job)
        assert keeps_nothing(executor)


@pytest.mark.whatever_is_learned
def test_the_job_whose_result_is_waited_for_goes_first() -> None:
    problem = problem_of(loss=slow)
    start = start_of(problem)
    with ProcessesExecutor(problem, SETTINGS, seed=0, workers=1) as executor:
        jobs = [train_job(start, key, needed_at=key) for key in range(6)]
        for job in jobs:
            executor.submit(job)
        executor.result(jobs[-1])
        assert jobs[-2].key in executor._waiting


@pytest.mark.whatever_is_learned
def test_discarded_jobs_leave_nothing_behind() -> None:
    problem = problem_of()
    start = start_of(problem)
    with two_workers(problem) as executor:
        jobs = [train_job(start, key) for key in range(12)]
        for job in jobs:
            executor.submit(job)
        for job in jobs[:-1]:
            executor.discard(job)
        executor.result(jobs[-1])
        while any(worker.job for worker in executor._workers):
            executor._exchange(block=True)
        assert keeps_nothing(executor)


@pytest.mark.whatever_is_learned
def test_a_finished_job_can_be_discarded() -> None:
    problem = problem_of()
    start = start_of(problem)
    with two_workers(problem) as executor:
        job = train_job(start, 0)
        executor.submit(job)
        while not executor._finished:
            executor._exchange(block=True)
        executor.discard(job)
        assert keeps_nothing(executor)


@pytest.mark.whatever_is_learned
def test_a_job_that_was_never_submitted_is_an_error_not_a_hang() -> None:
    problem = problem_of()
    with two_workers(problem) as executor, pytest.raises(ValueError, match="was not submitted"):
        executor.result(train_job(start_of(problem), 0))


@pytest.mark.whatever_is_learned
def test_an_exception_in_a_task_reaches_the_one_who_asks_and_others_go_on() -> None:
    x = torch.zeros(8, 1, 28, 28)
    y = torch.tensor([0, 0, 0, 0, 99, 99, 99, 99])
    problem = Problem.from_tensors(
        normed,
        train=(x, y),
        test=(x, y),
        parts=y.new_tensor(range(8)).chunk(2),
        loss=odd_label_fails,
    )
    start = start_of(problem)
    with two_workers(problem) as executor:
        bad, good = train_job(start, 1), train_job(start, 0)
        unwanted = EvalJob(key=7, state=start, metrics=("loss",))
        for job in (bad, good, unwanted):
            executor.submit(job)
        with pytest.raises(
            TaskFailed, match=r"client 1 .*local round 0.*ValueError: label 99"
        ) as e:
            executor.result(bad)
        assert "odd_label_fails" in e.value.__notes__[0]
        executor.result(good)
        with pytest.raises(TaskFailed, match="evaluation failed on the test samples"):
            executor.result(unwanted)
        assert keeps_nothing(executor)


@pytest.mark.whatever_is_learned
def test_a_killed_worker_is_one_clear_error_at_once() -> None:
    problem = problem_of(loss=slow)
    start = start_of(problem)
    with two_workers(problem) as executor:
        job = train_job(start, 0, steps=10_000)
        executor.submit(job)
        (victim,) = [w.process.pid for w in executor._workers if w.job is job]
        pids = workers_of(executor)
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises(
            TaskFailed,
            match=rf"worker process {victim} died while training client 0, local round 0",
        ):
            executor.result(job)
        assert time.monotonic() - began < AT_ONCE
        assert gone_soon(pids)
        with pytest.raises(TaskFailed, match="died"):
            executor.submit(train_job(start, 1))


@pytest.mark.whatever_is_learned
def test_a_worker_that_kills_itself_is_an_error_for_every_kind_of_job() -> None:
    problem = problem_of(loss=dying)
    start = start_of(problem)
    with two_workers(problem) as executor:
        job = EvalJob(key=3, state=start, metrics=("loss",))
        executor.submit(job)
        with pytest.raises(TaskFailed, match="died while evaluating the model"):
            executor.result(job)


@pytest.mark.whatever_is_learned
def test_a_worker_is_in_the_folder_that_the_simulation_is_in_when_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(loss=tells_its_folder)
    start = start_of(problem)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        with ProcessesExecutor(problem, SETTINGS, seed=0, workers=1) as executor:
            job = train_job(start, 0)
            executor.submit(job)
            with pytest.raises(TaskFailed, match=f"in {name}"):
                executor.result(job)


@pytest.mark.whatever_is_learned
def test_closing_ends_busy_workers_at_once() -> None:
    problem = problem_of(loss=slow)
    start = start_of(problem)
    with two_workers(problem) as executor:
        for key in range(8):
            executor.submit(train_job(start, key, steps=10_000))
        pids = workers_of(executor)
        began = time.monotonic()
        executor.close()
        assert time.monotonic() - began < AT_ONCE
        assert gone_soon(pids)
        executor.close()
    with pytest.raises(TaskFailed, match="closed; make a new one"):
        executor.result(train_job(start, 7))


@pytest.mark.whatever_is_learned
def test_an_executor_that_is_forgotten_ends_its_workers() -> None:
    problem = problem_of()
    executor = ProcessesExecutor(problem, SETTINGS, seed=0, workers=1)
    pids = workers_of(executor)
    del executor
    gc.collect()
    assert gone_soon(pids)


def test_a_function_that_cannot_be_sent_is_refused_at_once() -> None:
    with pytest.raises(
        SettingsError, match=r"cannot be sent to worker processes .*serial executor"
    ):
        ProcessesExecutor(problem_of(lambda: normed()), SETTINGS, seed=0, workers=1)
    with pytest.raises(SettingsError, match="workers is 0"):
        ProcessesExecutor(problem_of(), SETTINGS, seed=0, workers=0)


SCRIPT = """
import sys, torch
from torch import nn
from fedcompass.simulation.executors import ProcessesExecutor, TrainJob
from fedcompass.training import LocalSettings, Problem

def model():
    return nn.Linear(4, 2)

def run(steps):
    x, y = torch.randn(20, 4), torch.arange(20) % 2
    problem = Problem.from_tensors(model, train=(x, y), test=(x, y), parts=[torch.arange(20)])
    with ProcessesExecutor(problem, LocalSettings(), seed=0, workers=2) as executor:
        start = executor.layout.state_of(model())
        job = TrainJob(key=0, client=0, local_round=0, steps=steps, start=start,
                       payload="delta", needed_at=0.0)
        executor.submit(job)
        print(*[w.process.pid for w in executor._workers], flush=True)
        executor.result(job)
        print("done", flush=True)

{guard}run(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
"""


def script(folder: Path, guard: str = 'if __name__ == "__main__": ') -> Path:
    path = folder / "my_script.py"
    path.write_text(SCRIPT.replace("{guard}", guard))
    return path


@pytest.mark.whatever_is_learned
def test_a_model_defined_in_a_script_works(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, script(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("done\n")
    assert done.stderr == ""


@pytest.mark.whatever_is_learned
def test_a_model_defined_in_the_main_module_of_a_package_works(tmp_path: Path) -> None:
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    script(tmp_path).rename(package / "__main__.py")
    done = subprocess.run(
        [sys.executable, "-m", "my_package"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.stdout.endswith("done\n"), done.stderr
    assert done.stderr == ""


@pytest.mark.whatever_is_learned
def test_a_script_without_a_guard_is_told_to_add_one(tmp_path: Path) -> None:
    path = script(tmp_path, guard="")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "put the lines that run the simulation under: if __name__ ==" in done.stderr


@pytest.mark.whatever_is_learned
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_an_interrupted_simulation(
    tmp_path: Path, number: signal.Signals
) -> None:
    before = set(Path("/dev/shm").glob("*fedcompass*"))
    with started(
        [sys.executable, script(tmp_path), "1000000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as run:
        assert run.stdout is not None
        pids = [int(pid) for pid in run.stdout.readline().split()]
        if number == signal.SIGINT:
            os.killpg(run.pid, number)  # as a terminal does: to the whole group
        else:
            run.send_signal(number)
        assert run.wait(PATIENCE) != 0
    assert len(pids) == 2
    assert gone_soon(pids)
    assert set(Path("/dev/shm").glob("*fedcompass*")) == before
