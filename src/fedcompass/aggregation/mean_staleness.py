"""How stale a client's updates are on average: who answers rarely weighs more.

FedStaleWeight, from Ma et al., "FedStaleWeight: Buffered Asynchronous Federated Learning with Fair
Aggregation via Staleness Reweighting" (arXiv:2406.02877): weights in proportion to a client's mean
staleness over its last updates.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

from fedcompass.vocabulary import ClientId

__all__ = ["MeanStaleness"]


class MeanStaleness:
    """The mean of u + 1 over each client's last updates; the window drops the oldest.

    The 1 is the version that an update itself leads to: with u alone, fresh updates would weigh
    nothing, and a merge of fresh ones would have no weights at all.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._recent: dict[ClientId, deque[int]] = {}  # newest last

    def take(self, client: ClientId, staleness: int) -> None:
        """Note the staleness of a client's newest update."""
        self._recent.setdefault(client, deque(maxlen=self._window)).append(staleness)

    def of(self, client: ClientId) -> float:
        """The mean for a client that has sent an update."""
        recent = self._recent[client]
        return sum(recent) / len(recent) + 1.0

    def forget(self, client: ClientId) -> None:
        """Begin anew if the client comes back."""
        self._recent.pop(client, None)

    def to_json(self) -> dict[ClientId, list[int]]:
        """The last staleness values of each client."""
        return {client: list(recent) for client, recent in self._recent.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `to_json` gave."""
        self._recent = {
            client: deque(map(int, recent), maxlen=self._window) for client, recent in state.items()
        }
