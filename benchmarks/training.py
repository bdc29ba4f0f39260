"""What training costs beside a bare PyTorch loop, and what worker processes gain. Ratios, one run."""

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcompass.aggregation.layout import FlatState
from fedcompass.simulation.executors import (
    Executor,
    ProcessesExecutor,
    SerialExecutor,
    TrainJob,
)
from fedcompass.training import LocalSettings, LocalTrainer, Problem

SAMPLES, CLIENTS, STEPS, ROUNDS = 2_000, 10, 20, 7
SETTINGS = LocalSettings(optimizer="adam", learning_rate=0.003, batch_size=64)


def mnist_cnn() -> nn.Module:
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


def pixels_to_floats(pixels: Tensor) -> Tensor:
    return pixels.to(torch.float32).mul_(1 / 255)


def mnist_like() -> Problem:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (SAMPLES, 1, 28, 28), dtype=torch.uint8, generator=generator)
    y = torch.randint(0, 10, (SAMPLES,), generator=generator)
    parts = torch.randperm(SAMPLES, generator=generator).chunk(CLIENTS)
    return Problem.from_tensors(
        mnist_cnn, train=(x, y), test=(x, y), parts=parts, transform=pixels_to_floats
    )


def bare_loop(problem: Problem, fused: bool | None) -> Callable[[], None]:
    """The loop a user would write: model, optimizer and float data at hand, nothing else."""
    module = mnist_cnn()
    samples = problem.clients[0]
    assert samples.indices is not None
    inputs = pixels_to_floats(samples.inputs[samples.indices])
    targets = samples.targets[samples.indices]

    def train() -> None:
        optimizer = torch.optim.Adam(module.parameters(), lr=0.003, fused=fused)
        for _ in range(STEPS):
            rows = torch.randint(len(targets), (64,))
            optimizer.zero_grad()
            loss = functional.cross_entropy(module(inputs[rows]), targets[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return train


def our_training(problem: Problem) -> Callable[[], None]:
    trainer = LocalTrainer(problem, SETTINGS, seed=0)
    start = trainer.initial_state()
    update = trainer.layout.empty()

    def train() -> None:
        trainer.train(start, client=0, local_round=0, steps=STEPS, payload="delta", out=update)

    return train


def timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def interleaved(*works: Callable[[], None]) -> list[list[float]]:
    """Seconds of each in turn, round by round, after one round to warm up."""
    for work in works:
        work()
    return [list(column) for column in zip(*([timed(w) for w in works] for _ in range(ROUNDS)))]


def jobs(start: FlatState) -> list[TrainJob]:
    return [
        TrainJob(
            key=client,
            client=client,
            local_round=0,
            steps=STEPS,
            start=start,
            payload="delta",
            needed_at=1.0,
        )
        for client in range(CLIENTS)
    ]


def run_all(executor: Executor, start: FlatState) -> Callable[[], None]:
    def run() -> None:
        tasks = jobs(start)
        for job in tasks:
            executor.submit(job)
        for job in tasks:
            executor.result(job)

    return run


def compare_with_bare_loop(problem: Problem) -> None:
    ours, same, default = interleaved(
        our_training(problem), bare_loop(problem, fused=True), bare_loop(problem, fused=None)
    )
    per_step = 1000 / STEPS
    print(f"local training, MNIST CNN, {STEPS} steps of 64, Adam, 1 thread, {ROUNDS} rounds")
    for name, seconds in (("ours", ours), ("bare", same), ("bare, default Adam", default)):
        print(f"  {name:<20} {statistics.median(seconds) * per_step:7.2f} ms a step")
    for name, seconds in (("bare loop", same), ("bare loop with default Adam", default)):
        ratio = statistics.median(a / b for a, b in zip(ours, seconds, strict=True))
        print(f"  ours / {name:<28} {ratio:5.3f}   goal <= 1.05")


def compare_executors(problem: Problem) -> None:
    with (
        SerialExecutor(problem, SETTINGS, seed=0) as serial,
        ProcessesExecutor(problem, SETTINGS, seed=0, workers=2) as processes,
    ):
        start = serial.trainer.initial_state()
        one, two = interleaved(run_all(serial, start), run_all(processes, start))
    gain = statistics.median(a / b for a, b in zip(one, two, strict=True))
    print(f"{CLIENTS} equal tasks of {STEPS} steps, 2 cores")
    print(f"  serial               {statistics.median(one):7.2f} s")
    print(f"  2 worker processes   {statistics.median(two):7.2f} s")
    print(f"  serial / processes   {gain:7.2f}     goal >= 1.70")


def main() -> None:
    torch.set_num_threads(1)
    problem = mnist_like()
    compare_with_bare_loop(problem)
    compare_executors(problem)


if __name__ == "__main__":
    main()
