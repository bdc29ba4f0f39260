"""Trains any number of tasks of one kind in stacks: the same rounds as `LocalTrainer` gives."""

import gc
from collections.abc import Sequence
from math import prod

import torch
from torch import nn

from fedcompass.aggregation.layout import FlatState, Layout, frozen_of
from fedcompass.settings.training import LocalSettings
from fedcompass.training.problem import Loss, Samples, Transform
from fedcompass.training.stacked.blocks import matrices_of, row_of
from fedcompass.training.stacked.convert import convert
from fedcompass.training.stacked.forward import CannotStack, Forward, by_vmap, with_frozen
from fedcompass.training.stacked.stack_of_tasks import StackOfTasks, StepFunctions, for_stacks
from fedcompass.training.stacked.stacked_evaluator import StackedEvaluator
from fedcompass.training.stacked.tasks import RowSource, StackedTask

__all__ = ["StackedTrainer", "check_tensors"]

_ROWS_DRAWN_AT_ONCE = 1 << 22  # bounds the memory of drawn rows
_TASKS_ON_CPU = 16  # more only fall out of the cache
_TASKS_ON_GPU = 256  # from about 100 on the rate hardly grows
_SHARE_OF_FREE_MEMORY = 0.7


class StackedTrainer:
    """Trains tasks that share model, loss, local settings and stored samples.

    Which task is in which stack changes a result by rounding only.

    how: "stacked" (layer by layer) or "vmap".
    """

    def __init__(
        self,
        module: nn.Module,
        settings: LocalSettings,
        loss: Loss,
        *,
        transform: Transform | None = None,
        device: torch.device | str = "cpu",
        max_stack: int | None = None,
    ) -> None:
        """Choose a stacked form of the module.

        Raises:
            CannotStack: the module's tensors cannot be stacked.
        """
        self.device = torch.device(device)
        self.settings = settings
        self.layout = Layout.of(module)
        check_tensors(module, self.layout)
        self._loss, self._transform = loss, transform
        self._max_stack = max_stack
        self.how, self._forward = _chosen(module.to(self.device))
        compiled = self.device.type == "cuda" and self.how == "stacked"
        self._steps = StepFunctions(self._forward, loss, settings, compiled=compiled)
        self._stack: StackOfTasks | None = None
        self.evaluator = StackedEvaluator(
            self.layout, self._forward, transform, self.device, compiled=compiled
        )

    def train(self, tasks: Sequence[StackedTask]) -> list[FlatState]:
        """What each task's client sends, in the tasks' order, on its start model's device."""
        updates: dict[int, FlatState] = {}
        order = sorted(range(len(tasks)), key=lambda number: -tasks[number].steps)
        with for_stacks(self.device):
            while order:
                size = self._stack_size(tasks[order[0]].samples, len(order))
                stack, order = order[:size], order[size:]
                ends = self._train_stack([tasks[number] for number in stack])
                # Copies: a view would keep the whole stack until the last of its answers is due.
                updates |= {number: row_of(ends, row).clone() for row, number in enumerate(stack)}
        return [updates[number] for number in range(len(tasks))]

    def _train_stack(self, tasks: list[StackedTask]) -> FlatState:
        """Train a stack sorted by steps, the longest first."""
        stack, samples = self._room_for(len(tasks)), tasks[0].samples
        live = [sum(task.steps > step for task in tasks) for step in range(tasks[0].steps)]
        stack.prepare({stack.width(n) for n in live}, samples)
        starts = matrices_of([task.start for task in tasks], self.device)
        stack.blocks.load(starts)
        stack.begin()
        stack.steps.zero_()
        stack.steps[: len(tasks)] = torch.tensor([t.steps for t in tasks], device=self.device)
        scales = torch.tensor([t.rate_scale for t in tasks], device=self.device)
        stack.rate_scales[: len(tasks)] = scales
        source = RowSource(tasks, self.settings.batch_size, self.device)
        first = 0
        while first < len(live):
            at_once = max(1, _ROWS_DRAWN_AT_ONCE // (live[first] * self.settings.batch_size))
            drawn = source.draw(
                live[first], first_step=first, steps=min(at_once, len(live) - first)
            )
            for rows, left in zip(drawn, live[first:], strict=False):
                stack.rows[: len(rows)] = rows
                stack.step(stack.width(left), samples)
            first += len(drawn)
        return self._updates(tasks, starts, stack.blocks.collect(len(tasks)))

    def _updates(self, tasks: list[StackedTask], starts: FlatState, ends: FlatState) -> FlatState:
        change = torch.tensor([task.payload == "delta" for task in tasks], device=self.device)
        ends.trainable = torch.where(
            change[:, None], starts.trainable - ends.trainable, ends.trainable
        )
        return ends.to(tasks[0].start.trainable.device)

    def _room_for(self, tasks: int) -> StackOfTasks:
        if self._stack is None or self._stack.blocks.capacity < tasks:
            self._stack = None  # free its memory first
            self._stack = self._new_stack(max(2, 1 << (tasks - 1).bit_length()), self._steps)
        return self._stack

    def _new_stack(self, capacity: int, steps: StepFunctions) -> StackOfTasks:
        return StackOfTasks(
            self.layout, steps, self.settings, self._transform, self.device, capacity
        )

    def _stack_size(self, samples: Samples, tasks: int) -> int:
        if self._max_stack is None:
            self._max_stack = self._fitting(samples)
        stacks = -(-tasks // self._max_stack)
        return -(-tasks // stacks)  # of about equal sizes: a small one is slow

    def _fitting(self, samples: Samples) -> int:
        """How many tasks the free memory holds, and no more than pays."""
        if self.device.type != "cuda":
            return _TASKS_ON_CPU
        plain = StepFunctions(self._forward, self._loss, self.settings, compiled=False)
        stack = self._new_stack(2, plain)
        stack.step(1, samples)
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        stack.step(2, samples)
        activations = (torch.cuda.max_memory_allocated(self.device) - before) / 2
        # weights, moments, the start and end matrices
        model = 8 * sum(prod(spec.shape) * 4 for spec in self.layout.specs)
        del stack
        free, _ = torch.cuda.mem_get_info(self.device)
        fitting = int(_SHARE_OF_FREE_MEMORY * free / (activations + model))
        return max(1, min(_TASKS_ON_GPU, fitting))

    def halve(self) -> bool:
        """After running out of memory: use stacks half as large; False if they cannot be."""
        self._stack = None
        gc.collect()  # the error's frames, which may refer to each other, hold a stack's tensors
        if self._max_stack is None or self._max_stack <= 1:
            return False
        self._max_stack //= 2
        return True


def check_tensors(module: nn.Module, layout: Layout) -> None:
    """Refuse a module whose weights are shared among layers or not all float32.

    Raises:
        CannotStack: saying which.
    """
    for spec in layout.specs:
        if spec.segment != "counted" and spec.dtype != torch.float32:
            raise CannotStack(f"tensor {spec} is not float32")
    names = [name for name, _ in module.named_parameters(remove_duplicate=False)]
    if len(names) != len(list(module.parameters())):
        raise CannotStack("layers share weights")
    if not layout.sizes["trainable"]:
        raise CannotStack("no parameter trains")


def _chosen(module: nn.Module) -> tuple[str, Forward]:
    try:
        return "stacked", with_frozen(convert(module), frozen_of(module))
    except CannotStack as reason:
        return f"vmap ({reason})", by_vmap(module)
