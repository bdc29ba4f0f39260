"""Steps of one model on a GPU: compiled, and replayed as one CUDA graph.

A step of a small model is over before the CPU has launched the next one's kernels; a graph launches
all of them at once. What a model cannot do (draw its random numbers on the CPU, wait for a value)
is found by a trial against plain PyTorch, and said.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite

import torch
from torch import Tensor, nn

from fedcompass.aggregation.layout import FlatState
from fedcompass.settings.training import LocalSettings
from fedcompass.training.model_steps import ModelSteps
from fedcompass.training.optimizers import build_optimizer
from fedcompass.training.problem import Inputs, Loss

__all__ = ["GraphedSteps"]

_WARM_UPS = 3  # before a capture: libraries choose their kernels, the optimizer makes its state
_TRIAL_STEPS = 2
_TRIAL_RATE = 0.01  # of the learning rate: large steps would let rounding grow
_TOLERANCE = 0.2  # of the norm of a trial's change: Adam's first steps turn rounding into signs


@dataclass(frozen=True, slots=True)
class _Batch:
    """Where a captured step reads its batch."""

    inputs: Tensor
    targets: Tensor

    @classmethod
    def like(cls, inputs: Tensor, targets: Tensor) -> "_Batch":
        # Pictures with their channels last, as the GPU's convolutions want them.
        last = inputs.ndim == 4 and inputs.is_floating_point()
        form = torch.channels_last if last else torch.contiguous_format
        batch = cls(torch.empty_like(inputs, memory_format=form), torch.empty_like(targets))
        batch.fill(inputs, targets)
        return batch

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        return self.inputs, self.targets

    def fill(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs.copy_(inputs)
        self.targets.copy_(targets)

    def holds(self, inputs: Tensor, targets: Tensor) -> bool:
        return all(
            mine.shape == other.shape and mine.dtype == other.dtype
            for mine, other in ((self.inputs, inputs), (self.targets, targets))
        )


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a round begins."""

    model: FlatState
    rate: float
    random: Tensor  # the states of the GPU's and the CPU's generators
    random_on_cpu: Tensor


class GraphedSteps(ModelSteps):
    """`ModelSteps` whose step is one launch; the same results within rounding."""

    def __init__(
        self, module: nn.Module, settings: LocalSettings, loss: Loss, device: torch.device
    ) -> None:
        self._rate = torch.tensor(settings.learning_rate, device=device)
        super().__init__(module, settings, loss, device)
        self._fresh = False  # no step of the round was taken yet
        self._batch: _Batch | None = None
        self._replay: Callable[[], None] | None = None
        self._possible = not self.model.replaces_buffers
        if not self._possible:
            self._warn("it has buffers that are not saved with it")

    def _new_optimizer(
        self, settings: LocalSettings, trained: list[nn.Parameter]
    ) -> torch.optim.Optimizer:
        optimizer = build_optimizer(settings, trained, rate=self._rate)
        # The steps before the capture are meant to run without one.
        optimizer._warned_capturable_if_run_uncaptured = True
        return optimizer

    def _renew_optimizer(self, rate: float) -> None:
        for state in self._optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor):
                    value.zero_()  # in place: a graph knows where it lies
        self._rate.fill_(rate)
        self._fresh = True

    def step(self, inputs: Inputs, targets: Tensor) -> None:
        """Take one step on a batch."""
        if not isinstance(inputs, Tensor):  # of sizes that may differ from batch to batch
            super().step(inputs, targets)
            return
        if self._batch is None and self._fresh and self._possible:
            with torch.cuda.device(self._device):
                self._capture(inputs, targets)
        self._fresh = False
        if self._replay is None or self._batch is None or not self._batch.holds(inputs, targets):
            super().step(inputs, targets)
        else:
            self._batch.fill(inputs, targets)
            self._replay()

    def _capture(self, inputs: Tensor, targets: Tensor) -> None:
        """Make a graph of the step, if it does what plain PyTorch does; begin the round anew."""
        batch, start = _Batch.like(inputs, targets), self._here()
        wanted = self._end_of_trial(start, lambda: ModelSteps.step(self, *batch.tensors))
        draws = not torch.equal(torch.cuda.get_rng_state(self._device), start.random)
        if torch.equal(torch.get_rng_state(), start.random_on_cpu):
            # A compiled model draws other random numbers than PyTorch: leave such a one as it is.
            found = "" if draws else self._tried(batch, start, wanted, compiled=True)
            if isinstance(found, str):
                if found:
                    warnings.warn(f"the model is not compiled: {found}", stacklevel=3)
                found = self._tried(batch, start, wanted, compiled=False)
        else:
            found = "it draws random numbers on the CPU"
        if isinstance(found, str):
            self._warn(found)
            self._possible = False
        else:
            self._batch, self._replay = batch, found
        self._return_to(start)

    def _warn(self, reason: str) -> None:
        warnings.warn(f"the model's steps do not become a CUDA graph: {reason}", stacklevel=4)

    def _here(self) -> "_Start":
        return _Start(
            self.model.collect().clone(),
            float(self._rate),
            torch.cuda.get_rng_state(self._device),
            torch.get_rng_state(),
        )

    def _return_to(self, start: "_Start", share: float = 1.0) -> None:
        """Begin the round anew, with a share of its learning rate."""
        torch.cuda.set_rng_state(start.random, self._device)
        torch.set_rng_state(start.random_on_cpu)
        self.begin(start.model, share * start.rate)

    def _end_of_trial(self, start: "_Start", step: Callable[[], None]) -> FlatState:
        self._return_to(start, _TRIAL_RATE)
        for _ in range(_TRIAL_STEPS):
            step()
        return self.model.collect().clone()

    def _tried(
        self, batch: _Batch, start: "_Start", wanted: FlatState, *, compiled: bool
    ) -> Callable[[], None] | str:
        """The step as a graph; or why it is none."""
        try:
            replay = self._graph_of(batch, compiled=compiled)
            apart = _apart(self._end_of_trial(start, replay), wanted, start.model)
        except Exception as error:  # whatever a model does that a graph cannot
            return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if apart > _TOLERANCE:
            return f"it gives other results (by {apart:.0%} of the change)"
        self.how = "compiled, CUDA graph" if compiled else "CUDA graph"
        return replay

    def _graph_of(self, batch: _Batch, *, compiled: bool) -> Callable[[], None]:
        fixed = torch.compile(self._mean_loss, dynamic=False)  # batches have one size
        mean_loss = fixed if compiled else self._mean_loss

        def step() -> None:
            mean_loss(batch.inputs, batch.targets).backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()

        side = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self._device))
        # All models compile the same function: PyTorch's limit of variants is of one model's.
        variants = torch._dynamo.config.patch(recompile_limit=128, accumulated_recompile_limit=1024)
        with torch.cuda.stream(side), variants, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice about settings that are the user's
            for _ in range(_WARM_UPS):
                self._optimizer.zero_grad(set_to_none=True)
                step()
        torch.cuda.current_stream(self._device).wait_stream(side)
        self._optimizer.zero_grad(set_to_none=True)  # gradients are made inside the graph
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay


def _apart(one: FlatState, other: FlatState, start: FlatState) -> float:
    """How far two ends are from each other, as a share of the change from the start."""
    if not torch.equal(one.counted, other.counted):
        return inf  # a module that puts a new tensor in a buffer's place, for one
    pairs = ((one.trainable, other.trainable), (one.averaged, other.averaged))
    shares = [0.0]
    for (a, b), s in zip(pairs, (start.trainable, start.averaged), strict=True):
        distance = torch.linalg.vector_norm((a - b).double())
        if not bool(distance == 0):  # nor if it is not a number
            shares.append(float(distance / torch.linalg.vector_norm((b - s).double())))
    return max(shares) if all(map(isfinite, shares)) else inf
