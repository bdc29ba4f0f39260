"""Changes against the model that a client sent last, not against the one it started from.

AREA (asynchronous exact averaging), from "Asynchronous Federated Stochastic Optimization for
Heterogeneous Objectives Under Arbitrary Delays" (arXiv:2405.10123): w += p_i (x_i - y_i) for client
i's end model x_i and the one it sent before, y_i. So w stays the mean of what all sent last,
however often each answers.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedcompass.aggregation.saved_tensors import restored_tensor
from fedcompass.vocabulary import ClientId

__all__ = ["LastSent"]


class LastSent:
    """The model that each client sent last; the first one it was given, before it sent any.

    In the paper each client keeps its own. Here the server does, so that an answer that is lost on
    its way or refused leaves both sides agreed.
    """

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._models: dict[ClientId, Tensor] = {}  # y_i

    def started(self, client: ClientId, model: Tensor) -> None:
        """Note the model of a client's first task."""
        if client not in self._models:
            self._models[client] = model.clone()

    def model_of(self, client: ClientId) -> Tensor:
        """The model that a client sent last, y_i; not a copy."""
        return self._models[client]

    def change(self, client: ClientId, end: Tensor) -> Tensor:
        """Give y_i - x_i, and keep a copy of x_i as the model that was sent last."""
        change = torch.sub(self._models[client], end)
        self._models[client].copy_(end)
        return change

    def state(self) -> tuple[dict[str, Tensor], list[ClientId]]:
        """The models, and whose they are."""
        models = self._models.values()
        return {f"sent.{n}": model for n, model in enumerate(models)}, list(self._models)

    def restore(self, tensors: Mapping[str, Tensor], clients: list[Any]) -> None:
        """Take over copies of what `state` gave.

        Raises:
            CheckpointError: a model is missing or does not fit; nothing was changed.
        """
        self._models = {
            client: restored_tensor(tensors, f"sent.{number}", self._like)
            for number, client in enumerate(clients)
        }
