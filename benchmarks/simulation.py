"""What a simulated run costs: beside its training, in processes, in memory, untrained."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from typing import Any

import torch
from torch.nn import functional

from benchmarks.resident import resident
from benchmarks.training import mnist_cnn, pixels_to_floats
from fedcompass.experiment import Experiment
from fedcompass.freed_memory import keep_freed_memory
from fedcompass.simulation.executors import Executor, ProcessesExecutor, SerialExecutor
from fedcompass.simulation.problems import nothing_to_train
from fedcompass.simulation.run import Run, simulate
from fedcompass.training.problem import Problem

UPDATES = {"fedavg": 4, "fedasync": 90, "fedbuff": 30, "fedcompass": 30}
"""Runs end with a merge, so that no strategy's tasks in flight weigh more than another's."""


def problem(clients: int, samples: int = 2_000) -> Problem:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (samples, 1, 28, 28), dtype=torch.uint8, generator=generator)
    y = torch.randint(0, 10, (samples,), generator=generator)
    parts = torch.randperm(samples, generator=generator).chunk(clients)
    return Problem.from_tensors(
        mnist_cnn, train=(x, y), test=(x[:10], y[:10]), parts=parts, transform=pixels_to_floats
    )


def experiment(strategy: str, clients: int, horizon: float, **settings: Any) -> Experiment:
    fixed = {"steps": 40} if strategy != "fedcompass" else {"min_steps": 8, "max_steps": 40}
    return Experiment(
        fleet={"clients": clients, "mean_seconds_per_step": 0.15, "floor": 0.2},
        strategy={"name": strategy, **fixed, **settings},
        horizon=horizon,
    )


def drive(steps: Generator[Any, Any, None], executor: Any) -> float:
    """Run to the end; seconds spent waiting for results."""
    waited = 0.0
    try:
        job = next(steps)
        while True:
            began = time.perf_counter()
            result = executor.result(job)
            waited += time.perf_counter() - began
            job = steps.send(result)
    except StopIteration:
        return waited


def bare_loop(task: Problem, steps: int) -> float:
    """CPU seconds of a plain PyTorch loop of so many steps, the same optimizer and batch size."""
    module, samples = mnist_cnn(), task.clients[0]
    assert samples.indices is not None
    x, y = pixels_to_floats(samples.tensor[samples.indices]), samples.targets[samples.indices]
    optimizer = torch.optim.Adam(module.parameters(), lr=0.003, fused=True)
    began = time.process_time()
    for _ in range(steps):
        rows = torch.randint(len(y), (64,))
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(x[rows]), y[rows])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return time.process_time() - began


def beside_bare_loop(rounds: int = 5) -> None:
    task, ratios, shares = problem(5), [], []
    for number in range(rounds + 1):
        with SerialExecutor(task, experiment("fedcompass", 5, 8).local, 0) as executor:
            run = Run(experiment("fedcompass", 5, 8), task, executor, evaluates=False)
            wall, began = time.perf_counter(), time.process_time()
            waited = drive(run.steps(), executor)
            spent, wall = time.process_time() - began, time.perf_counter() - wall
        bare = bare_loop(task, run.simulation.steps)
        if number:  # the first round warms up
            ratios.append(spent / bare)
            shares.append((wall - waited) / wall)
    print(f"fedcompass run of {run.simulation.steps} steps, serial, no evaluation, CPU time")
    print(f"  run / bare loop of the same steps   {statistics.median(ratios):6.3f}  goal <= 1.05")
    print(f"  scheduling and bookkeeping          {statistics.median(shares):6.2%}  goal <= 1%")


def processes_beside_serial(rounds: int = 2) -> None:
    task = problem(10)
    for strategy, updates in UPDATES.items():
        steps = {"min_steps": 4, "max_steps": 20} if strategy == "fedcompass" else {"steps": 20}
        settings = experiment(strategy, 10, 1e6, **steps)
        settings = settings.with_settings({"max_updates": updates})
        gains = []
        for _ in range(rounds):
            seconds = []
            executors: list[Executor] = [
                SerialExecutor(task, settings.local, 0),
                ProcessesExecutor(task, settings.local, 0, workers=2),
            ]
            for executor in executors:
                with executor:
                    run = Run(settings, task, executor, evaluates=False)
                    began = time.perf_counter()
                    drive(run.steps(), executor)
                    seconds.append(time.perf_counter() - began)
            gains.append(seconds[0] / seconds[1])
        print(
            f"  {strategy:<10} {_range(steps):<9} {run.simulation.steps:>5} steps  "
            f"serial / 2 workers {statistics.median(gains):5.2f}x  goal >= 1.70",
            flush=True,
        )
    print(f"  (needs two idle cores; load average {os.getloadavg()[0]:.1f})")


def _range(steps: dict[str, int]) -> str:
    return "Q " + " to ".join(str(value) for value in steps.values())


def peak_memory(clients: int) -> float:
    """Peak resident MiB of a process that runs fedcompass with so many clients of the CNN."""
    command = [sys.executable, "-m", "benchmarks.simulation", "memory", str(clients)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(output) / 2**20


def _memory(clients: int) -> None:
    torch.set_num_threads(1)
    settings = Experiment(
        fleet={"clients": clients, "mean_seconds_per_step": 0.15, "floor": 0.2},
        strategy={"name": "fedcompass", "min_steps": 1, "max_steps": 5},
        horizon=3.0,
    )
    with SerialExecutor(problem(clients), settings.local, 0) as executor:
        run = Run(settings, problem(clients), executor, evaluates=False)
        drive(run.steps(), executor)
    print(resident("VmHWM"))


def memory() -> None:
    model = sum(p.numel() * 4 for p in mnist_cnn().parameters()) / 2**20
    few, many = peak_memory(2), peak_memory(100)
    print("peak resident memory of a fedcompass run of the CNN, serial (data: 1.6 MiB)")
    print(f"  2 clients {few:.0f} MiB, 100 clients {many:.0f} MiB; a model is {model:.1f} MiB")
    print(f"  growth per client: {(many - few) / 98 / model:.2f} models")


def without_training() -> None:
    costs = {}
    for clients in (100, 1_000, 10_000):
        settings = experiment("fedcompass", clients, 1e9, min_steps=40, max_steps=200)
        settings = settings.with_settings({"max_updates": clients + 20})
        began = time.process_time()
        result = simulate(settings, problem=nothing_to_train(clients), executor="none")
        costs[clients] = (time.process_time() - began) / result.summary["updates"]
    print("fedcompass without training (schedule, coordinator and bookkeeping), CPU time an update")
    for clients, cost in costs.items():
        print(f"  {clients:>6,} clients  {cost * 1e6:7.1f} µs  {cost / costs[100]:5.2f}x")
    print(f"  10,000 vs 100: {costs[10_000] / costs[100]:.2f}x  goal <= 2")


def main() -> None:
    torch.set_num_threads(1)
    beside_bare_loop()
    without_training()
    memory()
    print("processes beside serial, 10 clients, the same allocator settings in both", flush=True)
    keep_freed_memory()
    processes_beside_serial()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["memory", clients]:
            _memory(int(clients))
        case _:
            main()
