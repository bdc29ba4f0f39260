"""Local steps per second of a model that fills a GPU by itself: ResNet-18, batch 128, SGD.

Beside plain PyTorch in float32 (TF32 allowed for both) in the same run, taking turns. The pictures
are random ones of CIFAR-10's size, on the device: their values do not change the time.

    python -m benchmarks.large_model            # one NVIDIA GPU
    python -m benchmarks.large_model --toy      # any machine: tiny sizes, to see that it works
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcompass import models
from fedcompass.training import LocalSettings, LocalTrainer, Problem, Samples
from fedcompass.training.bound import build_module
from fedcompass.training.stacked.chosen_trainer import work_of
from fedcompass.training.streams import RowStream, batch_rows, stream_key

FLOAT32_GOAL, BFLOAT16_GOAL = 1.2, 2.0
RATE = 0.001  # a small one: from the same start rounding grows little in a few steps


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much to measure."""

    model: str
    shape: tuple[int, int, int]
    batch_size: int
    samples: int
    steps: int
    repeats: int


FULL = Sizes("resnet18", (3, 32, 32), 128, 10_000, 200, 5)
TOY = Sizes("mlp", (1, 28, 28), 8, 100, 3, 1)


def normalized(pixels: Tensor) -> Tensor:
    return (pixels.float() / 255 - 0.47) / 0.25


def problem_of(sizes: Sizes) -> Problem:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (sizes.samples, *sizes.shape), generator=generator)
    labels = torch.randint(10, (sizes.samples,), generator=generator)
    samples = Samples(pixels.to(torch.uint8), labels)
    return Problem(
        model=partial(models.build, sizes.model, input_shape=sizes.shape, classes=10),
        clients=[samples],
        test=samples,
        transform=normalized,
    )


def settings_of(sizes: Sizes) -> LocalSettings:
    return LocalSettings(optimizer="sgd", learning_rate=RATE, batch_size=sizes.batch_size)


def plain_loop(problem: Problem, device: torch.device, sizes: Sizes) -> Callable[[], None]:
    """As a user would write it: default SGD, float data on the device, no needless sync."""
    module = build_module(problem, 0).to(device)
    samples = problem.clients[0]
    inputs, targets = normalized(samples.tensor.to(device)), samples.targets.to(device)
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)

    def work() -> None:
        for _ in range(sizes.steps):
            rows = torch.randint(len(targets), (sizes.batch_size,), device=device)
            optimizer.zero_grad()
            functional.cross_entropy(module(inputs[rows]), targets[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return work


def our_round(trainer: LocalTrainer, steps: int) -> Callable[[], None]:
    """A client's whole task: start model in, update out, the batches drawn on the way."""
    start = trainer.initial_state().to(trainer.device)

    def work() -> None:
        trainer.train(start, client=0, local_round=0, steps=steps, payload="delta")

    return work


def rates(works: dict[str, Callable[[], None]], device: torch.device, sizes: Sizes) -> None:
    """Print each one's steps per second, median of repeats that take turns."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(sizes.repeats + 1):  # the first is to warm up
        for name, work in works.items():
            _synchronize(device)
            began = time.perf_counter()
            work()
            _synchronize(device)
            if repeat:
                found[name].append(sizes.steps / (time.perf_counter() - began))
    plain = statistics.median(found["plain PyTorch, float32"])
    goals = {"fedcompass, float32": FLOAT32_GOAL, "fedcompass, bfloat16": BFLOAT16_GOAL}
    print("steps per second, median (least to most), and over plain PyTorch")
    for name, each in found.items():
        middle, goal = statistics.median(each), goals.get(name)
        wanted = "" if goal is None else f"   goal >= {goal}"
        spread = f"({min(each):,.0f}-{max(each):,.0f})"
        print(f"  {name:<24} {middle:8,.1f} {spread:<16} {middle / plain:6.2f}x{wanted}")


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def show_agreement(trainers: dict[str, LocalTrainer], device: torch.device, steps: int = 3) -> None:
    """How far a short round is from float64, in shares of the change; plain PyTorch beside it."""
    some = next(iter(trainers.values()))
    exact = _by_hand(some, device, steps, torch.float64)
    plain = _by_hand(some, device, steps, torch.float32)
    print(f"a round of {steps} steps away from float64 (share of the change)")
    print(f"  plain PyTorch, float32   {_share(plain, exact):.1e}")
    for name, trainer in trainers.items():
        start = trainer.initial_state().to(device)
        got = trainer.train(start, client=0, local_round=0, steps=steps, payload="delta")
        print(f"  {name:<24} {_share(got.trainable, exact):.1e}   ({trainer.how})", flush=True)


def _share(one: Tensor, exact: Tensor) -> float:
    return float((one.double() - exact).norm() / exact.norm())


def _by_hand(trainer: LocalTrainer, device: torch.device, steps: int, dtype: torch.dtype) -> Tensor:
    problem = trainer.problem
    module: nn.Module = build_module(problem, 0).to(device, dtype)
    start = [parameter.detach().clone() for parameter in module.parameters()]
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    samples = problem.clients[0]
    rows = batch_rows(
        RowStream(stream_key(0, "batches", 0, 0)),
        steps=steps,
        batch_size=trainer.settings.batch_size,
        samples=len(samples),
        device=device,
    )
    for batch in rows:
        inputs, targets = samples.batch(batch)
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(problem.prepared(inputs).to(dtype)), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    ends = zip(start, module.parameters(), strict=True)
    return torch.cat([(before - after).detach().double().flatten() for before, after in ends])


def show_ceilings(device: torch.device) -> None:
    """What the device can do: the floor under any version."""
    side = 8192
    for name, dtype in (("TF32", torch.float32), ("bfloat16", torch.bfloat16)):
        a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
        seconds = _median_seconds(partial(torch.mm, a, b), device)
        print(f"  a product of matrices {name:<9} {2 * side**3 / seconds / 1e12:8.1f} TFLOP/s")
    x = torch.randn(1 << 28, device=device)
    seconds = _median_seconds(x.clone, device)
    print(f"  a copy                          {2 * x.nbytes / seconds / 1e12:8.2f} TB/s")


def _median_seconds(work: Callable[[], Tensor], device: torch.device) -> float:
    seconds = []
    for _ in range(12):
        _synchronize(device)
        began = time.perf_counter()
        work()
        _synchronize(device)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toy", action="store_true", help="tiny sizes")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    sizes, device = TOY if options.toy else FULL, torch.device(options.device)
    torch.set_float32_matmul_precision("high")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}, {sizes.model}, batch {sizes.batch_size}, SGD")
    problem = problem_of(sizes)
    print(f"  {work_of(problem, settings_of(sizes)) / 1e9:.0f} GFLOP a step")
    settings = {"float32": settings_of(sizes)}
    if device.type == "cuda":
        show_ceilings(device)
        settings["bfloat16"] = settings["float32"].model_copy(update={"precision": "bfloat16"})
    trainers = {
        f"fedcompass, {precision}": LocalTrainer(problem, chosen, 0, device)
        for precision, chosen in settings.items()
    }
    show_agreement(trainers, device)
    works = {"plain PyTorch, float32": plain_loop(problem, device, sizes)}
    works |= {name: our_round(trainer, sizes.steps) for name, trainer in trainers.items()}
    rates(works, device, sizes)


if __name__ == "__main__":
    main()
