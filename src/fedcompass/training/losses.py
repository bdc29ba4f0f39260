"""The losses by name; each is a batch's mean, those of FLamby's tasks with its own formula."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from fedcompass import own_code
from fedcompass.errors import SettingsError
from fedcompass.settings.training import check_loss
from fedcompass.training.problem import Loss

__all__ = [
    "ISIC_CLASS_WEIGHTS",
    "LOSSES",
    "FocalLoss",
    "cox_loss",
    "dice_loss",
    "logistic_loss",
    "loss_named",
]

ISIC_CLASS_WEIGHTS = (5.5813, 2.0472, 7.0204, 26.1194, 9.5369, 101.0707, 92.5224, 38.3443)
"""FLamby's α: the training samples of all six centers over those of each class."""


def logistic_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy of one score per sample [samples, 1] and labels 0 and 1."""
    scores = outputs.squeeze(1)
    return functional.binary_cross_entropy_with_logits(scores, targets.to(scores.dtype))


@dataclass(frozen=True)
class FocalLoss:
    """Mean of -α_y (1 - p_y)^γ log p_y over the samples, p the softmax of the outputs."""

    class_weights: tuple[float, ...] = ISIC_CLASS_WEIGHTS  # α
    focus: float = 2.0  # γ

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of outputs [samples, classes] for class numbers [samples]."""
        rows = targets.unsqueeze(1)
        log_share = functional.log_softmax(outputs, dim=1).gather(1, rows).squeeze(1)
        weights = _on_device(self.class_weights, outputs.device)[targets]
        return (-weights * (1 - log_share.exp()) ** self.focus * log_share).mean()


@lru_cache
def _on_device(values: tuple[float, ...], device: torch.device) -> Tensor:
    """The values as a tensor, made once: a step that becomes a CUDA graph can fetch nothing."""
    with torch.inference_mode(False):  # an evaluation may be the first to ask
        return torch.tensor(values, device=device)


def dice_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over samples and classes of 1 - 2TP / (2TP + FP + FN + 1e-9), soft.

    Outputs are probabilities [samples, classes, ...]; targets class numbers [samples, ...].
    """
    wanted = functional.one_hot(targets.long(), outputs.shape[1]).movedim(-1, 1)
    p, y = outputs.flatten(2), wanted.flatten(2)
    hits = (p * y).sum(2)
    # FP + FN = sum p (1 - y) + sum (1 - p) y, without the two products
    misses = p.sum(2) + y.sum(2) - 2 * hits
    return (1 - 2 * hits / (2 * hits + misses + 1e-9)).mean()


def cox_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over the batch of log(sum of exp(score) of those at risk) - own score, for events.

    Outputs are scores [samples, 1]; targets (event, time) [samples, 2]. At risk are those with a
    later time; of equal times the earlier row counts as the later time, which is what FLamby's
    sorting does. Written without sorting: it works for a stack of models, and on scores of any
    size, where summing exponentials would overflow.
    """
    scores, events, times = outputs.squeeze(1), targets[:, 0], targets[:, 1]
    row = torch.arange(len(times), device=times.device)
    later = times.unsqueeze(0) > times.unsqueeze(1)
    same = (times.unsqueeze(0) == times.unsqueeze(1)) & (row.unsqueeze(0) <= row.unsqueeze(1))
    at_risk = scores.unsqueeze(0).expand(len(times), -1).masked_fill(~(later | same), -torch.inf)
    return ((at_risk.logsumexp(dim=1) - scores) * events).mean()


def _mse(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error; outputs [samples, 1] fit targets [samples]."""
    return functional.mse_loss(_fitted(outputs, targets), targets)


def _mae(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.l1_loss(_fitted(outputs, targets), targets)


def _huber(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.huber_loss(_fitted(outputs, targets), targets)


def _fitted(outputs: Tensor, targets: Tensor) -> Tensor:
    """Outputs in the targets' shape: unequal ones would be spread over each other by PyTorch."""
    if outputs.ndim == targets.ndim + 1 and outputs.shape[-1] == 1:
        outputs = outputs.squeeze(-1)
    if outputs.shape != targets.shape:
        raise SettingsError(
            f"the model gives outputs of shape {list(outputs.shape)} for targets of shape "
            f"{list(targets.shape)}; a loss of numbers needs one output for each"
        )
    return outputs


LOSSES: dict[str, Loss] = {
    "cross_entropy": functional.cross_entropy,
    "logistic": logistic_loss,
    "focal": FocalLoss(),
    "dice": dice_loss,
    "cox": cox_loss,
    "mse": _mse,
    "mae": _mae,
    "huber": _huber,
}
"""Every loss of `settings.training` by its name."""


def loss_named(name: str) -> Loss:
    """The loss of that name, one of ours or the user's own.

    Raises:
        SettingsError: there is none, or it cannot be called.
    """
    check_loss(name)
    if name in LOSSES:
        return LOSSES[name]
    found = own_code.find("loss", name)
    if isinstance(found, type) or not callable(found):
        allowed = "a function (outputs, targets) -> the batch's mean loss"
        raise SettingsError(own_code.wrong("loss", name, found, allowed))
    loss: Loss = found
    return loss
