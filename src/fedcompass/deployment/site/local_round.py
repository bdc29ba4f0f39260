"""A site's local round: exactly the steps it was told, or fewer if it is asked to stop."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.deployment.app.trainer import Site, Trainer
from fedcompass.deployment.site.batches import batches_of
from fedcompass.deployment.site.site_budget import budget_of
from fedcompass.errors import DataError, TaskFailed
from fedcompass.training.bound import BoundModel
from fedcompass.training.local import Step, take_steps
from fedcompass.vocabulary import Seconds, Steps, TaskId

__all__ = ["Round", "SiteRounds"]

_STEPS_BETWEEN_LOOKS = 16  # reading a loss waits for the device, so several are read at once


@dataclass(frozen=True, slots=True)
class Round:
    """What a local round gave.

    end: the model after the last step, on the CPU; overwritten by the next round.
    steps_done: at least 1; fewer than told if the round was stopped early.
    seconds: what the steps took.
    loss: mean over the steps; 0 where the site trains privately and tells none.
    """

    end: FlatState
    steps_done: Steps
    seconds: Seconds
    loss: float


class SiteRounds:
    """Trains one task after the other in one module that stays on the device.

    With tensors or a map-style dataset, a task's result depends on the start model, the steps, the
    trainer's seed, the site's name, the task's number and the steps of the tasks before, and on
    nothing that was done before: a task that is asked for again after a crash gives the same bits.

    budget: what the site may spend on its samples; None: it trains plainly.
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
        self._trained = self._model.trained()
        self.budget = budget_of(site, trainer, self._model.module)
        self._draw = self.budget.draw if self.budget else batches_of(trainer, self._device)
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
        steps_before: Steps = 0,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Round:
        """Train from a start model; stop after `steps`, or early after at least one step.

        Args:
            start: the model.
            steps: how many.
            task: its number in the run.
            steps_before: of all tasks that the site was given before, done or not.
            should_stop: asked after every step.

        Raises:
            TaskFailed: a loss was not finite; the message says at which step.
            BudgetSpent: the site's privacy budget allows no step.
            DataError: the data gave no batch.
        """
        if self.budget and steps > 0:
            steps = self.budget.charge(steps)  # on the disk before any is taken
        self._model.load(start)
        self._model.module.train()
        losses, began = _Losses(task, steps), self._clock()
        done = take_steps(
            lambda: self._begin(losses),
            self._draw,
            steps,
            seed=self.trainer.seed,
            client=self._site_number,
            local_round=task,
            sampling=self.trainer.sampling or "epochs",
            steps_before=steps_before,
            device=self._device,
            is_over=partial(self._is_over, began, should_stop),
        )
        mean = losses.mean()  # waits for the device: the clock is read after it
        seconds = self._clock() - began
        self._model.module.zero_grad(set_to_none=True)
        end = self._model.collect().to("cpu")
        if self.budget:
            self.budget.settle(steps, done, start, end)
        return Round(end, done, seconds, mean)

    def _begin(self, losses: "_Losses") -> Step:
        module = self._model.module
        if self.budget:
            return self.budget.begin(module, self._trained)
        optimizer = self.trainer.optimizer(self._trained)  # fresh in every local round

        def step(batch: Any, augmenting: torch.Generator) -> None:
            losses.add(self.trainer.train_step(module, optimizer, batch, augmenting))

        return step

    def _is_over(self, began: Seconds, should_stop: Callable[[], bool], done: Steps) -> bool:
        """Wait out the pace of the steps done; says whether to stop after them."""
        if (ahead := began + done * self.trainer.seconds_per_step - self._clock()) > 0:
            time.sleep(ahead)
        most = self.trainer.max_seconds
        late = most is not None and self._clock() - began >= most
        return late or should_stop() or self.trainer.should_stop()


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
        return self._sum / self._read if self._read else 0.0

    def _look(self) -> None:
        values = torch.stack(self._unread).tolist() if self._unread else []
        self._unread.clear()
        for value in values:
            self._read += 1
            self._sum += value
            if not isfinite(value):
                where = f"the loss is {value} at step {self._read} of {self._steps} of task"
                why = (
                    "this is the model as the server sent it: see the server's audit, and your data"
                    if self._read == 1
                    else "lower the learning rate or look at the site's data"
                )
                raise TaskFailed(f"{where} {self._task}; {why}")


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"


def _number(name: str) -> int:
    """A site's number among the random streams: the same for the same name, anywhere."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest(), "little")
