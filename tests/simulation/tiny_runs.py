"""A problem that trains in milliseconds, and runs of it that a test can stop where it wants."""

import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcompass.experiment import Experiment
from fedcompass.setting_tables import merged
from fedcompass.simulation.engine import Simulation
from fedcompass.simulation.executors import Executor, Job
from fedcompass.simulation.experiment_folder import create_run, resume_run
from fedcompass.simulation.result import Result
from fedcompass.simulation.run import simulate
from fedcompass.training.problem import Problem

torch.set_num_threads(1)

STRATEGIES = (
    "fedavg",
    "fedasync",
    "fedbuff",
    "fedat",
    "fedcompass",
    "fedcompass+m",
    "fedcompass+n",
    "metronome",
)
CLIENTS = 4
PACES = (0.1, 0.2, 0.25, 0.5)
RECORDS = (
    "experiment.toml",
    "journal.jsonl",
    "metrics.jsonl",
    "clients.json",
    "summary.json",
    "final.safetensors",
    "best.safetensors",
)


def network() -> nn.Module:
    """Small, but with all kinds of state: parameters, running averages, a counter."""
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))


def refuses_label_nine(outputs: Tensor, targets: Tensor) -> Tensor:
    if bool((targets == 9).any()):
        raise ValueError("label 9")
    return functional.cross_entropy(outputs, targets)


def problem(clients: int = CLIENTS, *, broken: int | None = None, **options: Any) -> Problem:
    """Twenty samples per client; the inputs of a `broken` client are not numbers."""
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(20 * clients, 6, generator=generator)
    targets = (inputs[:, 0] + inputs[:, 1] > 0).long()
    parts = torch.arange(20 * clients).chunk(clients)
    test = (inputs.clone(), targets.clone())
    if broken is not None:
        inputs[parts[broken]] = torch.nan
    return Problem.from_tensors(network, train=(inputs, targets), test=test, parts=parts, **options)


def steps_of(name: str, steps: int = 4) -> dict[str, Any]:
    """A strategy with few steps."""
    if name == "metronome":
        return {"name": name, "min_steps": 2, "max_steps": 2 * steps, "absent": "remember"}
    if name.startswith("fedcompass"):
        return {"name": name, "min_steps": 2, "max_steps": 2 * steps}
    return {"name": name, "steps": steps, **({"buffer_size": 2} if name == "fedbuff" else {})}


def experiment(name: str = "fedcompass", **changes: Any) -> Experiment:
    """Four clients, at most five times apart, for six virtual seconds."""
    usual = {
        "strategy": steps_of(name),
        "fleet": {"paces": PACES},
        "local": {"learning_rate": 0.01, "batch_size": 8},
        "horizon": 6.0,
        "target": 0.7,
    }
    return Experiment(**merged(usual, changes))


def eventful(name: str, **changes: Any) -> Experiment:
    """Everything that can happen to a fleet, measured in every way."""
    return experiment(
        name,
        **merged(
            {
                "fleet": {
                    "dropouts": [[1, 0.9, 2.6], [3, 3.7]],
                    "dropout_probability": 0.1,
                    "dropout_seconds": 0.4,
                    "resample_probability": 0.2,
                    "latency_seconds": 0.02,
                },
                "horizon": 10.0,
                "evaluation": {"every_updates": 3, "every_seconds": 0.7, "per_client": True},
            },
            changes,
        ),
    )


def events_of(folder: Path) -> list[dict[str, Any]]:
    """A run's journal without its header."""
    lines = (folder / "journal.jsonl").read_text().splitlines()[1:]
    return [json.loads(line) for line in lines]


def of_kind(records: list[dict[str, Any]], kind: str, **values: Any) -> list[dict[str, Any]]:
    """The records of one kind of event or command that have these values."""
    return [
        record
        for record in records
        if kind in (record.get("event"), record.get("command"))
        and all(record[key] == value for key, value in values.items())
    ]


def assert_same_run(first: Path, second: Path) -> None:
    for name in RECORDS:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def drive(steps: Generator[Job, Any, None], executor: Executor, jobs: int | None = None) -> None:
    """Give a simulation its results; drop it after so many if that is said."""
    given = 0
    try:
        job = next(steps)
        while jobs is None or given < jobs:
            job = steps.send(executor.result(job))
            given += 1
    except StopIteration:
        return
    steps.close()


class Stopped(Exception):
    """A run was stopped on purpose."""


def stop_after(events: int) -> Callable[[Simulation], None]:
    """An `on_progress` that stops a run."""
    seen = 0

    def count(_simulation: Simulation) -> None:
        nonlocal seen
        seen += 1
        if seen > events:
            raise Stopped

    return count


def stopped_run(chosen: Experiment, path: Path, *, saved: int, stopped: int) -> None:
    """A run that made its last checkpoint after `saved` events and stopped after `stopped`."""
    tiny = problem()
    folder = create_run(path, chosen)
    for events in (saved, stopped):
        checkpoint = path / "checkpoint.safetensors"
        kept = checkpoint.read_bytes() if checkpoint.exists() else None
        checkpoint.unlink(missing_ok=True)
        folder.journal.unlink(missing_ok=True)
        try:
            simulate(
                problem=tiny, folder=folder, checkpoint_every=0.0, on_progress=stop_after(events)
            )
        except Stopped:
            pass
        else:
            raise AssertionError("the run was over before it was stopped")
    if kept is not None:
        checkpoint.write_bytes(kept)


def resumed(path: Path, **options: Any) -> Result:
    """A stopped run, carried to its end."""
    return simulate(problem=problem(), folder=resume_run(path), **options)
