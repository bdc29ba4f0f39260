"""How messages get to sites and back: all that the server asks of a network engine."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.deployment.wire.messages import Facts, Kind
from fedcompass.deployment.wire.payloads import PayloadFile
from fedcompass.vocabulary import Seconds

__all__ = ["MessageId", "NodeId", "Payload", "Reply", "Transport"]

NodeId: TypeAlias = int | str
"""A connected machine, as the engine calls it; over gRPC it is the site's name on the roster."""

MessageId: TypeAlias = str
"""What the engine calls a message that was pushed; its reply carries it."""


class Payload(Protocol):
    """A model that a site sent, not read yet; nothing it declares is believed."""

    @property
    def size(self) -> int:
        """How many bytes it has."""
        ...

    @property
    def file(self) -> PayloadFile | None:
        """Where it lies on the server's disk; whoever accepts it may move it. None: in memory."""
        ...

    def state(self, layout: Layout, start: FlatState) -> FlatState:
        """The end model.

        Args:
            layout: the model's.
            start: the model that the task began with.

        Raises:
            LayoutMismatch: it is of another model.
        """
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """A site's answer, or the engine's word that there will be none; nothing in it is trusted."""

    message: MessageId  # the message it answers
    node: NodeId
    payload: Payload | None  # None: there is none
    facts: Facts  # metrics and config in one
    error: str | None  # one line: the site raised, is gone, or the message expired


class Transport(Protocol):
    """Carries messages. Every call returns soon; a broken engine raises `FedcompassError`.

    A call of `nodes` or `pull` says that what was pulled before is on disk: a site may then be
    told that its answer was taken in.
    """

    def nodes(self) -> set[NodeId]:
        """Who is connected now."""
        ...

    def departures(self) -> list[Reply]:
        """Sites that have said since the last call, unasked, that they take no further part.

        The error is why; the facts are `site`, `samples` and `budget_spent`.
        """
        ...

    def push(
        self, node: NodeId, kind: Kind, facts: Facts, model: FlatState | None, ttl: Seconds
    ) -> MessageId | None:
        """Send a message that may be answered for `ttl` seconds; None: no such node."""
        ...

    def pull(self, messages: Collection[MessageId]) -> list[Reply]:
        """The replies to these messages that are here, in the order of arrival where known.

        Never waits. A reply is handed out once.
        """
        ...
