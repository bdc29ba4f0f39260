"""Sweeps that run in a second, records without runs, and models that fail on purpose."""

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedcompass.experiment import Experiment
from fedcompass.setting_tables import merged
from fedcompass.sweeps.record import Record, RunOutcome
from fedcompass.sweeps.sweep_file import Sweep

torch.set_num_threads(1)

FILE = """\
name = "small"
seeds = 2

[base]
horizon = 2.0
target = 0.2

[base.fleet]
clients = 3

[base.strategy]
steps = 3
min_steps = 2
max_steps = 6

[grid]
"strategy.name" = ["fedavg", "fedcompass"]
"""
"""Four runs, each well under a second."""

_calls: list[None] = []


def small_sweep(**changes: Any) -> Sweep:
    import tomllib

    return Sweep(**merged(tomllib.loads(FILE), changes))


def experiments(count: int = 4, **changes: Any) -> list[Experiment]:
    return small_sweep(seeds=(count + 1) // 2, **changes).experiments()[:count]


def made_record(
    name: str = "fedavg",
    seed: int = 0,
    *,
    time: float | None = 10.0,
    top: float | None = 0.9,
    error: str | None = None,
    **settings: Any,
) -> Record:
    """A record that no run gave."""
    given = {"horizon": 40.0, "target": 0.8, "strategy": {"name": name}, "seed": seed}
    experiment = Experiment(**merged(given, settings))
    outcome = RunOutcome(
        time_to_target=time,
        top=top,
        time_of_top=30.0,
        final=0.85,
        virtual_seconds=40.0,
        global_updates=12,
        local_steps=1200,
        updates=24,
        idle_share=0.25,
        mean_staleness=1.5,
    )
    return Record(
        key=experiment.key(),
        experiment=experiment.to_record(),
        outcome=None if error else outcome,
        curve=[] if error else [(0.0, 0, 0.1), (10.0, 3, top)],
        error=error,
    )


def network(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    size = int(torch.tensor(input_shape).prod())
    return nn.Sequential(nn.Flatten(), nn.Linear(size, classes))


def draws_at_random(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Cannot be stacked."""
    return nn.Sequential(nn.Dropout(0.1), network(input_shape, classes))


def fails_when_called_second(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    _calls.append(None)
    if len(_calls) == 2:
        raise ValueError("not\nthis time")
    return network(input_shape, classes)


def dies_in_a_worker_process(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return network(input_shape, classes)


def dies_once(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Kills its process where SWEEP_TEST_DEATH names a file, unless that is there already."""
    if (mark := os.environ.get("SWEEP_TEST_DEATH")) is not None:
        try:
            Path(mark).touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return network(input_shape, classes)
