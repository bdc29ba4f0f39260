"""A Flower message fetched piece by piece: bounded in bytes and in time, whoever sent it.

Flower's own way waits up to two hours for a sender that stopped half-way, and allocates what the
sender says. Here a message that is not all there in time, or too large, is an error of its own.
"""

import json
from collections.abc import Callable, Iterable
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from fedcompass.errors import AnswerTooLarge, MissingExtra, TransportBroken
from fedcompass.vocabulary import Seconds

try:
    from flwr.app import Message
    from flwr.supercore.inflatable.inflatable_object import (
        get_object_body,
        get_object_children_ids_from_object_content,
        get_object_type_from_object_content,
        iterate_object_tree,
    )
    from flwr.supercore.inflatable.inflatable_utils import (
        ObjectPullError,
        ObjectUnavailableError,
        inflate_object_from_contents,
    )
except ImportError:
    raise MissingExtra("flwr", "deploy", "a deployment") from None

if TYPE_CHECKING:
    from flwr.proto.message_pb2 import ObjectTree

__all__ = ["fetch_message"]

_PAUSES = (0.05, 0.1, 0.2, 0.4)  # seconds between tries; the last is repeated


def fetch_message(
    tree: "ObjectTree",
    pull: Callable[[str], bytes],
    *,
    most_bytes: int,
    patience: Seconds,
    clock: Callable[[], Seconds] = monotonic,
    pause: Callable[[Seconds], None] = sleep,
) -> Message:
    """The message of an object tree.

    Args:
        tree: its objects.
        pull: gets an object by its id; raises Flower's `ObjectUnavailableError` while it is
            on its way.
        most_bytes: of all objects together, and of all arrays once they are put together.
        patience: how long the sender may take.
        clock: monotonic seconds.
        pause: waits.

    Raises:
        AnswerTooLarge: it is too large.
        TransportBroken: it is not complete in time, or damaged.
    """
    until = clock() + patience
    contents: dict[str, bytes] = {}
    left = most_bytes
    for name in dict.fromkeys(node.object_id for node in iterate_object_tree(tree)):
        contents[name] = _fetch(name, pull, until, clock, pause)
        left -= len(contents[name])
        if left < 0:
            raise AnswerTooLarge(f"the answer is larger than {most_bytes:,} bytes")
    try:
        if _inflated(contents) > most_bytes:
            raise AnswerTooLarge(f"the answer's arrays are larger than {most_bytes:,} bytes")
        message = inflate_object_from_contents(tree.object_id, contents)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise TransportBroken(f"the answer is damaged: {type(error).__name__}: {error}") from None
    if not isinstance(message, Message):
        raise TransportBroken(f"the answer is a {type(message).__name__}, not a message")
    message.metadata.__dict__["_message_id"] = tree.object_id  # not part of what travels
    return message


def _fetch(
    name: str,
    pull: Callable[[str], bytes],
    until: Seconds,
    clock: Callable[[], Seconds],
    pause: Callable[[Seconds], None],
) -> bytes:
    tries = 0
    while True:
        try:
            return pull(name)
        except ObjectUnavailableError:
            if clock() >= until:
                raise TransportBroken("the answer was not sent to its end in time") from None
        except ObjectPullError as error:
            raise TransportBroken(f"a part of the answer is gone: {error}") from None
        pause(_PAUSES[min(tries, len(_PAUSES) - 1)])
        tries += 1


def _inflated(contents: dict[str, bytes]) -> int:
    """The bytes of all arrays once their chunks, which may be named many times, are joined."""
    total = 0
    for content in contents.values():
        if get_object_type_from_object_content(content) == "Array":
            total += _array_bytes(content, contents)
    return total


def _array_bytes(content: bytes, contents: dict[str, bytes]) -> int:
    from flwr.app import Array

    chunks = get_object_children_ids_from_object_content(content)
    record: Any = json.loads(get_object_body(content, Array))
    named: Iterable[int] = record["arraychunk_ids"]
    return sum(len(contents[chunks[index]]) for index in named)
