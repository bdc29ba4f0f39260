"""How messages get to sites and back: all that the server asks of a network engine."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from fedcompass.deployment.wire.messages import Arrays, Facts, Kind
from fedcompass.vocabulary import Seconds

__all__ = ["MessageId", "NodeId", "Reply", "Transport"]

NodeId: TypeAlias = int
"""A connected machine, as the engine numbers it; with key authentication it stays the same."""

MessageId: TypeAlias = str
"""What the engine calls a message that was pushed; its reply carries it."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A site's answer, or the engine's word that there will be none; nothing in it is trusted."""

    message: MessageId  # the message it answers
    node: NodeId
    arrays: Arrays
    facts: Facts  # metrics and config in one
    error: str | None  # one line: the site raised, is gone, or the message expired
    too_large: bool = False  # the error is that the site sent more than any answer has


class Transport(Protocol):
    """Carries messages. Every call returns soon; a broken engine raises `FedcompassError`."""

    def nodes(self) -> set[NodeId]:
        """Who is connected now."""
        ...

    def push(
        self, node: NodeId, kind: Kind, facts: Facts, arrays: Arrays | None, ttl: Seconds
    ) -> MessageId | None:
        """Send a message that may be answered for `ttl` seconds; None: no such node."""
        ...

    def pull(self, messages: Collection[MessageId]) -> list[Reply]:
        """The replies to these messages that are here, in the order of arrival where known.

        Never waits. A reply is handed out once.
        """
        ...
