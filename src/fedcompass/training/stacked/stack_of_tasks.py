"""Carries out the steps of a stack: eager on a CPU, compiled and as CUDA graphs on a GPU."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from fedcompass.aggregation.layout import Layout
from fedcompass.settings.training import LocalSettings
from fedcompass.training.problem import Loss, Samples, Transform
from fedcompass.training.stacked.blocks import Blocks
from fedcompass.training.stacked.forward import Forward, stacked_loss
from fedcompass.training.stacked.optimizer import moments_needed, stacked_step

__all__ = ["StackOfTasks", "StepFunctions", "for_stacks", "sized"]

_GRAPHED = 64  # tasks; above, a step takes the GPU longer than the CPU needs to launch it
_WIDTHS = (2, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 56, _GRAPHED)


class StepFunctions:
    """The functions a step is made of; compiled once, whatever the size of the stacks."""

    def __init__(
        self, forward: Forward, loss: Loss, settings: LocalSettings, *, compiled: bool
    ) -> None:
        losses = stacked_loss(loss)

        def forth(
            tensors: dict[str, Tensor], inputs: Tensor, targets: Tensor
        ) -> tuple[Tensor, dict[str, Tensor]]:
            outputs, changed = forward(tensors, inputs, True)
            return losses(outputs, targets), changed

        update: Callable[..., None] = stacked_step(settings)
        self.forth = torch.compile(forth) if compiled else forth
        self.update = torch.compile(update) if compiled else update


class StackOfTasks:
    """Room for a stack of tasks, and the step that all of them do together.

    blocks: the models; the first rows are in use.
    steps: how many steps each task does; 0 where no task is.
    rows: the stored samples of each task's next batch.
    rate_scales: factor on each task's learning rate.
    """

    def __init__(
        self,
        layout: Layout,
        steps: StepFunctions,
        settings: LocalSettings,
        transform: Transform | None,
        device: torch.device,
        capacity: int,
    ) -> None:
        self.blocks = Blocks(layout, capacity, device)
        self._moments = [Blocks(layout, capacity, device) for _ in range(moments_needed(settings))]
        self.steps = torch.zeros(capacity, dtype=torch.int64, device=device)
        self.rows = torch.zeros(capacity, settings.batch_size, dtype=torch.int64, device=device)
        self.rate_scales = torch.ones(capacity, device=device)
        self._done = torch.zeros((), dtype=torch.float64, device=device)
        self._trained = [spec.name for spec in layout.specs if spec.segment == "trainable"]
        self._functions, self._transform = steps, transform
        self._cuda = device.type == "cuda"
        self._views: dict[int, _Views] = {}
        # With the samples they read: a graph knows addresses only.
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._pool: Any = None

    def width(self, live: int) -> int:
        """How many rows a step works on while so many tasks are left: few sizes, little waste."""
        if not self._cuda:
            return live
        width = next((w for w in _WIDTHS if w >= live), -(-live // 8) * 8)
        return min(width, self.blocks.capacity)

    def begin(self) -> None:
        """Forget the moments and the steps done, so that a new stack can be loaded."""
        self._done.zero_()
        for moment in self._moments:
            for block in moment.tensors.values():
                block.zero_()

    def prepare(self, widths: set[int], samples: Samples) -> None:
        """Capture what the steps of these widths need; call it before loading the stack."""
        if not self._cuda:
            return
        self.steps.zero_()  # nobody trains: the steps of warming up change no model
        self.rows.zero_()
        for width in sorted(widths):
            if width <= _GRAPHED and self._graph(width, samples) is None:
                self._capture(width, samples)

    def step(self, width: int, samples: Samples) -> None:
        """Let every task that has steps left do one."""
        graph = self._graph(width, samples)
        if graph is not None:
            graph.replay()
        else:
            self._step(width, samples)

    def _graph(self, width: int, samples: Samples) -> torch.cuda.CUDAGraph | None:
        graph, inputs = self._graphs.get(width, (None, None))
        return graph if inputs is samples.inputs else None

    def _step(self, width: int, samples: Samples) -> None:
        views = self._views_of(width)
        rows = self.rows[:width].flatten()
        inputs = samples.tensor.index_select(0, rows)
        if self._transform is not None:
            inputs = self._transform(inputs)
        targets = samples.targets.index_select(0, rows)
        shape = (width, self.rows.shape[1])
        inputs, targets = (t.view(*shape, *t.shape[1:]) for t in (inputs, targets))
        loss, changed = self._functions.forth(views.tensors, sized(inputs), sized(targets))
        gradients = torch.autograd.grad(loss, views.weights)
        with torch.no_grad():
            live = sized(self.steps[:width] > self._done)
            self._functions.update(
                views.weights,
                [sized(g) for g in gradients],
                views.moments,
                self._done,
                live,
                sized(self.rate_scales[:width]),
            )
            for name, value in changed.items():
                block = views.tensors[name]
                block.copy_(torch.where(live.view(-1, *[1] * (block.ndim - 1)), value, block))
            self._done += 1

    def _views_of(self, width: int) -> "_Views":
        if width not in self._views:
            self._views[width] = _Views(self.blocks, self._moments, self._trained, width)
        return self._views[width]

    def _capture(self, width: int, samples: Samples) -> None:
        """Record a step's launches, so that the GPU need not wait for Python."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._step(width, samples)
        torch.cuda.current_stream().wait_stream(stream)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            self._step(width, samples)
        self._graphs[width] = graph, samples.tensor


class _Views:
    """The first rows of every block."""

    def __init__(
        self, blocks: Blocks, moments: list[Blocks], trained: list[str], width: int
    ) -> None:
        self.tensors = {n: sized(block[:width].detach()) for n, block in blocks.tensors.items()}
        self.weights = [self.tensors[name].requires_grad_() for name in trained]
        self.moments = [[sized(m.tensors[name][:width]) for name in trained] for m in moments]


def sized(tensor: Tensor) -> Tensor:
    """Tell the compiler that the first axis varies, so that one compilation serves all widths."""
    if tensor.is_cuda:
        torch._dynamo.maybe_mark_dynamic(tensor, 0)
    return tensor


@contextmanager
def for_stacks(device: torch.device) -> Iterator[None]:
    """PyTorch's settings while stacks are trained on a GPU; restored after.

    TF32 in matrix products, as PyTorch has it for convolutions, unless the user forbade it there;
    and more compiled variants than usual, for sweeps over local settings.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if torch.backends.cudnn.allow_tf32 else "highest")
    try:
        with torch._dynamo.config.patch(recompile_limit=128, accumulated_recompile_limit=1024):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
