"""A model in training: load a start, take steps, see where it came to."""

import torch
from torch import Tensor, nn

from fedcompass.aggregation.layout import FlatState
from fedcompass.errors import SettingsError
from fedcompass.settings.training import LocalSettings
from fedcompass.training.bound import BoundModel
from fedcompass.training.optimizers import build_optimizer
from fedcompass.training.problem import Inputs, Loss, checked_loss, outputs_of

__all__ = ["ModelSteps"]


class ModelSteps:
    """A module on a device with its loss, and an optimizer that starts fresh in every round.

    how: how steps are taken: "eager", or in a way that a GPU does faster.
    """

    how = "eager"

    def __init__(
        self, module: nn.Module, settings: LocalSettings, loss: Loss, device: torch.device
    ) -> None:
        if settings.precision != "float32" and device.type == "cpu":
            raise SettingsError(
                f"local.precision is {settings.precision!r} and the device is cpu; it is for GPUs: "
                "leave it out, or train on cuda"
            )
        self.model = BoundModel(module, device)
        self._device = device
        self._loss = loss
        self._rounded = settings.precision == "bfloat16"
        self._optimizer = self._new_optimizer(settings, self.model.trained())

    def _new_optimizer(
        self, settings: LocalSettings, trained: list[nn.Parameter]
    ) -> torch.optim.Optimizer:
        return build_optimizer(settings, trained)

    def begin(self, start: FlatState, rate: float) -> None:
        """Start a round from a model, with this learning rate."""
        self.model.load(start)
        self.model.module.train()
        self._renew_optimizer(rate)

    def _renew_optimizer(self, rate: float) -> None:
        self._optimizer.state.clear()
        for group in self._optimizer.param_groups:
            group["lr"] = rate

    def step(self, inputs: Inputs, targets: Tensor) -> None:
        """Take one step on a batch."""
        self._optimizer.zero_grad(set_to_none=True)
        self._checked_loss(inputs, targets).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def end(self) -> None:
        """Let go of the gradients."""
        self._optimizer.zero_grad(set_to_none=True)

    def _checked_loss(self, inputs: Inputs, targets: Tensor) -> Tensor:
        return checked_loss(self._loss, self._mean_loss(inputs, targets), trains=True)

    def _mean_loss(self, inputs: Inputs, targets: Tensor) -> Tensor:
        if not self._rounded:
            return self._loss(outputs_of(self.model.module, inputs), targets)
        # Without autocast's cache: a captured step must do its own casts.
        with torch.autocast(self._device.type, torch.bfloat16, cache_enabled=False):
            outputs = outputs_of(self.model.module, inputs)
        whole = outputs.float() if isinstance(outputs, Tensor) else outputs
        return self._loss(whole, targets)
