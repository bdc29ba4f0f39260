"""Local steps per second of the stacked executor, beside one client at a time.

python -m benchmarks.stacked            # one NVIDIA GPU, MNIST from $FEDCOMPASS_DATA
python -m benchmarks.stacked --toy      # any machine: tiny sizes, to see that it works
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from fedcompass import models, strategies
from fedcompass.coordinator import Coordinator
from fedcompass.data.catalogue import load
from fedcompass.data.dataset import Dataset
from fedcompass.data.partition import partition
from fedcompass.experiment import Experiment
from fedcompass.simulation.executors.stacked import StackedExecutor, StackedJobs, drive_stacked
from fedcompass.simulation.run import Run
from fedcompass.training import LocalSettings, LocalTrainer, Problem, Samples
from fedcompass.training.bound import build_module
from fedcompass.training.stacked import StackedTask, StackedTrainer
from fedcompass.training.streams import RowStream, batch_rows, stream_key

EQUAL_GOAL, SWEEP_GOAL, PLAIN_GOAL, BEST_GOAL = 20_000, 14_000, 35, 7


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much to measure."""

    dataset: str
    model: str
    tasks: tuple[int, ...]
    step_budget: int
    runs: int
    clients: int
    horizon: float
    repeats: int


FULL = Sizes("mnist", "mnist_cnn", (1, 5, 20, 50, 200, 500), 20_000, 100, 5, 75.0, 3)
TOY = Sizes("mnist-mini", "mlp", (1, 3), 20, 4, 3, 6.0, 1)


ADAM = LocalSettings(optimizer="adam", learning_rate=0.003, batch_size=64)
SGD = LocalSettings(optimizer="sgd", learning_rate=0.05, batch_size=64)


def problem_of(dataset: Dataset, experiment: Experiment) -> Problem:
    """As `build_problem`, with the samples in memory once for all runs."""
    parts = partition(
        dataset.train_targets,
        dataset.classes,
        experiment.fleet.clients,
        experiment.partition,
        experiment.seed,
    )
    shape, classes = dataset.input_shape, dataset.classes
    return Problem(
        model=partial(models.build, experiment.model, input_shape=shape, classes=classes),
        clients=[Samples(dataset.train_inputs, dataset.train_targets, part) for part in parts],
        test=Samples(dataset.test_inputs, dataset.test_targets),
        transform=dataset.normalize,
    )


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def rate(work: Callable[[], int], device: torch.device, repeats: int) -> float:
    """Steps per second, median; `work` says how many it did. Warmed up once."""
    work()
    rates = []
    for _ in range(repeats):
        synchronize(device)
        began = time.perf_counter()
        steps = work()
        synchronize(device)
        rates.append(steps / (time.perf_counter() - began))
    return statistics.median(rates)


def plain_loop(problem: Problem, device: torch.device, steps: int) -> Callable[[], int]:
    """One client as a user would write it: default Adam, float data on the device, no sync."""
    module = problem.model().to(device)
    samples = problem.clients[0]
    assert samples.indices is not None
    inputs = problem.prepared(samples.tensor[samples.indices].to(device))
    targets = samples.targets[samples.indices].to(device)

    def work() -> int:
        optimizer = torch.optim.Adam(module.parameters(), lr=0.003)
        for _ in range(steps):
            rows = torch.randint(len(targets), (64,), device=device)
            optimizer.zero_grad()
            functional.cross_entropy(module(inputs[rows]), targets[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return steps

    return work


def best_loop(problem: Problem, device: torch.device, steps: int) -> Callable[[], int]:
    """One client at its best: fused Adam, the whole step with its sampling as a CUDA graph."""
    module = problem.model().to(device)
    samples = problem.clients[0]
    assert samples.indices is not None
    inputs = problem.prepared(samples.tensor[samples.indices].to(device))
    targets = samples.targets[samples.indices].to(device)
    cuda = device.type == "cuda"
    optimizer = torch.optim.Adam(module.parameters(), lr=0.003, fused=True, capturable=cuda)

    def step() -> None:
        rows = torch.randint(len(targets), (64,), device=device)
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(module(inputs[rows]), targets[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    once = graphed(step) if cuda else step

    def work() -> int:
        for _ in range(steps):
            once()
        return steps

    return work


def graphed(step: Callable[[], None]) -> Callable[[], None]:
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def stack_of(
    trainer: StackedTrainer, problem: Problem, tasks: int, steps: int
) -> Callable[[], int]:
    start = trainer.layout.state_of(problem.model(), trainer.device)
    clients = problem.to(trainer.device).clients

    def work() -> int:
        trainer.train(
            [
                StackedTask(
                    start=start,
                    samples=clients[task % len(clients)],
                    stream=RowStream(stream_key(0, "batches", task)),
                    steps=steps,
                    payload="delta",
                )
                for task in range(tasks)
            ]
        )
        return tasks * steps

    return work


def new_trainer(
    problem: Problem, device: torch.device, settings: LocalSettings = ADAM
) -> StackedTrainer:
    return StackedTrainer(
        problem.model(), settings, problem.loss, transform=problem.transform, device=device
    )


def exactly(problem: Problem, client: int, steps: int, device: torch.device) -> Tensor:
    """A client's change in float64."""
    module = build_module(problem, 0).to(device).double()
    start = [parameter.detach().clone() for parameter in module.parameters()]
    optimizer = torch.optim.SGD(module.parameters(), lr=SGD.learning_rate)
    samples = problem.clients[client]
    rows = batch_rows(
        RowStream(stream_key(0, "batches", client)),
        steps=steps,
        batch_size=SGD.batch_size,
        samples=len(samples),
        device=device,
    )
    for batch in rows:
        inputs, targets = samples.batch(batch)
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(problem.prepared(inputs).double()), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    changes = zip(start, module.parameters(), strict=True)
    return torch.cat([(before - after).detach().flatten() for before, after in changes])


def show_agreement(problem: Problem, device: torch.device) -> None:
    """How far a short round of SGD is from float64: by the serial trainer, and in a stack.

    Without TF32, which alone moves it by 1e-2: MNIST's even background rounds always the same way.
    """
    allowed, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    alone, stacked = LocalTrainer(problem, SGD, 0, device), new_trainer(problem, device, SGD)
    start, steps = alone.initial_state().to(device), (3, 5, 4)
    tasks = [
        StackedTask(
            start=start,
            samples=alone.problem.clients[client],
            stream=RowStream(stream_key(0, "batches", client)),
            steps=count,
            payload="delta",
        )
        for client, count in enumerate(steps)
    ]
    print(f"rounds of {steps} steps of SGD without TF32, away from float64 (share of the change)")
    for client, update in enumerate(stacked.train(tasks)):
        count = steps[client]
        one = alone.train(start, client=client, local_round=0, steps=count, payload="delta")
        exact = exactly(alone.problem, client, count, device)
        serial, ours = ((u.trainable - exact).norm() / exact.norm() for u in (one, update))
        print(f"  client {client}: serial {serial:.1e}, stacked {ours:.1e}")
    torch.backends.cudnn.allow_tf32 = allowed
    torch.set_float32_matmul_precision(precision)


def show_curve(problem: Problem, device: torch.device, sizes: Sizes) -> None:
    alone = max(20, sizes.step_budget // 100)
    plain = rate(plain_loop(problem, device, alone), device, sizes.repeats)
    best = rate(best_loop(problem, device, alone), device, sizes.repeats)
    print("local steps per second, batch 64, Adam")
    print(f"  one client, plain loop with default Adam     {plain:9,.0f}")
    print(f"  one client, fused Adam and CUDA graph        {best:9,.0f}")
    trainer, top = new_trainer(problem, device), 0.0
    for tasks in sizes.tasks:
        steps = max(10, min(300, sizes.step_budget // tasks))
        stacked = rate(stack_of(trainer, problem, tasks, steps), device, sizes.repeats)
        goal = f"   goal >= {EQUAL_GOAL:,}" if tasks >= 200 else ""
        print(
            f"  {tasks:4} equal tasks in stacks                  {stacked:9,.0f}{goal}", flush=True
        )
        top = max(top, stacked)
    print(
        f"  stacked / plain loop                         {top / plain:9.1f}   goal >= {PLAIN_GOAL}"
    )
    print(f"  stacked / fused Adam and CUDA graph          {top / best:9.1f}   goal >= {BEST_GOAL}")


def experiments(sizes: Sizes) -> Iterator[Experiment]:
    """Every strategy in turn, each with new seeds; exponential paces."""
    names = strategies.names()
    for number in range(sizes.runs):
        yield Experiment(
            seed=number // len(names),
            data={"name": sizes.dataset},
            model=sizes.model,
            strategy={"name": names[number % len(names)]},
            fleet={"clients": sizes.clients, "speed": "exponential"},
            horizon=sizes.horizon,
        )


def started(experiment: Experiment, dataset: Dataset, stacked_jobs: StackedJobs) -> Run:
    """A run whose global model lies on the device of the stacks."""
    problem = problem_of(dataset, experiment)
    run = Run(
        experiment,
        problem,
        StackedExecutor(problem, experiment.local, experiment.seed, stacked_jobs=stacked_jobs),
    )
    here = run.simulation.coordinator
    run.simulation.coordinator = Coordinator(
        experiment.chosen_strategy(),
        here.layout,
        here.model.to(stacked_jobs.device),
        here.journal,
    )
    return run


def show_sweep(dataset: Dataset, device: torch.device, sizes: Sizes) -> None:
    stacked_jobs = StackedJobs(device)
    # Compiled and captured before the clock starts, for every size of stack.
    short = replace(sizes, horizon=sizes.horizon / 8)
    warm = [started(experiment, dataset, stacked_jobs) for experiment in experiments(short)]
    list(drive_stacked((run.steps() for run in warm), stacked_jobs))
    runs = [started(experiment, dataset, stacked_jobs) for experiment in experiments(sizes)]
    synchronize(device)
    began = time.perf_counter()
    for _, error in drive_stacked((run.steps() for run in runs), stacked_jobs):
        assert error is None, error
    synchronize(device)
    seconds = time.perf_counter() - began
    steps = sum(run.simulation.steps for run in runs)
    measured = sum(len(run.simulation.evaluations.rows) for run in runs)
    print(
        f"{len(runs)} mixed runs, {sizes.clients} clients each, horizon {sizes.horizon:g} s: "
        f"{steps:,} steps and {measured:,} evaluations in {seconds:.1f} s"
    )
    print(
        f"  sustained steps per second                   {steps / seconds:9,.0f}"
        f"   goal >= {SWEEP_GOAL:,}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toy", action="store_true", help="tiny sizes")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    sizes, device = TOY if options.toy else FULL, torch.device(options.device)
    torch.set_float32_matmul_precision("high")  # for the one-client loops too
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}, {sizes.model} on {sizes.dataset}")
    dataset = load(sizes.dataset)
    problem = problem_of(dataset, next(experiments(sizes)))
    show_agreement(problem, device)
    show_curve(problem, device, sizes)
    show_sweep(dataset, device, sizes)


if __name__ == "__main__":
    main()
