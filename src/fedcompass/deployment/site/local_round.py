"""A site's local round: exactly the steps it was told, or fewer if it is asked to stop."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor, nn

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.deployment.app.trainer import Site, Trainer
from fedcompass.deployment.site.batches import batches_of
from fedcompass.errors import DataError, SettingsError, TaskFailed
from fedcompass.training.bound import BoundModel
from fedcompass.training.streams import seeded, stream_key
from fedcompass.vocabulary import Seconds, Steps, TaskId

__all__ = ["LocalRounds", "Round"]

_STEPS_BETWEEN_LOOKS = 16  # reading a loss waits for the device, so several are read at once


@dataclass(frozen=True, slots=True)
class Round:
    """What a local round gave.

    end: the model after the last step, on the CPU; overwritten by the next round.
    steps_done: at least 1; fewer than told if the round was stopped early.
    seconds: what the steps took.
    loss: mean over the steps.
    """

    end: FlatState
    steps_done: Steps
    seconds: Seconds
    loss: float


class LocalRounds:
    """Trains one task after the other in one module that stays on the device.

    With tensors or a map-style dataset, a task's result depends on the start model, the steps, the
    trainer's seed, the site's name and the task's number, and on nothing that was done before: a
    task that is asked for again after a crash gives the same bits.
    """

    def __init__(
        self,
        module: nn.Module,
        trainer: Trainer,
        site: Site,
        clock: Callable[[], Seconds] = time.perf_counter,
    ) -> None:
        self.trainer = trainer
        self._device = torch.device(site.device)
        self._model = BoundModel(module, self._device)
        self._trained = [p for p in self._model.module.parameters() if p.requires_grad]
        if not self._trained:
            raise SettingsError("the model has no parameter that trains; set requires_grad on some")
        self._batches = batches_of(trainer, self._device)
        self._augmenting = torch.Generator(self._device)
        self._site_number = _number(site.name)
        self._clock = clock

    @property
    def layout(self) -> Layout:
        """Where each of the model's tensors lies in a flat state."""
        return self._model.layout

    def run(
        self,
        start: FlatState,
        *,
        steps: Steps,
        task: TaskId,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Round:
        """Train from a start model; stop after `steps`, or early after at least one step.

        Raises:
            TaskFailed: a loss was not finite; the message says at which step.
            DataError: the data gave no batch.
        """
        if steps < 1:
            raise TaskFailed(f"task {task} asks for {steps} steps; a task has at least 1")
        self._model.load(start)
        self._model.module.train()
        with seeded(self._key("torch", task), self._device):
            self._augmenting.manual_seed(self._key("augment", task))
            done, seconds, loss = self._descend(steps, task, should_stop)
        return Round(self._model.collect().to("cpu"), done, seconds, loss)

    def _descend(
        self, steps: Steps, task: TaskId, should_stop: Callable[[], bool]
    ) -> tuple[Steps, Seconds, float]:
        trainer, module, began = self.trainer, self._model.module, self._clock()
        most = trainer.max_seconds
        optimizer = trainer.optimizer(self._trained)  # fresh in every local round
        batches = self._batches.draw(self._key("batches", task))
        losses = _Losses(task, steps)
        done, stopped = 0, False
        while done < steps and not stopped:
            losses.add(trainer.train_step(module, optimizer, next(batches), self._augmenting))
            done += 1
            self._wait_until(began + done * trainer.seconds_per_step)
            late = most is not None and self._clock() - began >= most
            stopped = late or should_stop() or trainer.should_stop()
        mean = losses.mean()  # waits for the device: the clock is read after it
        optimizer.zero_grad(set_to_none=True)
        return done, self._clock() - began, mean

    def _wait_until(self, at: Seconds) -> None:
        if (ahead := at - self._clock()) > 0:
            time.sleep(ahead)

    def _key(self, purpose: str, task: TaskId) -> int:
        return stream_key(self.trainer.seed, purpose, self._site_number, task)


class _Losses:
    """Sums up the losses of a round and raises soon after one is not finite."""

    def __init__(self, task: TaskId, steps: Steps) -> None:
        self._task, self._steps = task, steps
        self._unread: list[Tensor] = []
        self._sum, self._read = 0.0, 0

    def add(self, loss: Tensor) -> None:
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise DataError(f"train_step returned {_described(loss)}; return the loss, one number")
        self._unread.append(loss.detach().reshape(()))
        if len(self._unread) == _STEPS_BETWEEN_LOOKS:
            self._look()

    def mean(self) -> float:
        self._look()
        return self._sum / self._read

    def _look(self) -> None:
        values = torch.stack(self._unread).tolist() if self._unread else []
        self._unread.clear()
        for value in values:
            self._read += 1
            self._sum += value
            if not isfinite(value):
                raise TaskFailed(
                    f"the loss is {value} at step {self._read} of {self._steps} of task "
                    f"{self._task}; lower the learning rate or look at the site's data"
                )


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"


def _number(name: str) -> int:
    """A site's number among the random streams: the same for the same name, anywhere."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest(), "little")
