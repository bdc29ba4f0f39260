"""The messages of a secure round on the wire: in parts; the first says what is asked."""

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.decoding import PIECE_BYTES
from fedcompass.errors import SettingsError, WireError
from fedcompass.secure_aggregation.terms import Terms
from fedcompass.vocabulary import TaskId

__all__ = ["Begin", "lacking", "parts_of", "read_begin", "read_lacking", "read_whole"]

_SMALL = 1 << 16  # bytes that a message without a vector has at least


@dataclass(frozen=True, slots=True)
class Begin:
    """What a member is asked for: its updates of these tasks, by these weights.

    max_norm: what it scales a larger change down to.
    """

    terms: Terms
    tasks: dict[TaskId, tuple[float, float]]
    max_norm: float | None

    def to_bytes(self) -> bytes:
        """For the wire."""
        fields = {"terms": _plain(self.terms), "tasks": self.tasks, "max_norm": self.max_norm}
        return json.dumps(fields).encode()


def read_begin(raw: bytes) -> Begin:
    """What the server asks for.

    Raises:
        WireError: it cannot be read.
    """
    try:
        fields = json.loads(raw)
        terms = fields["terms"]
        tasks = {int(task): (float(a), float(b)) for task, (a, b) in fields["tasks"].items()}
        max_norm = fields["max_norm"]
        return Begin(
            Terms(**{**terms, "members": tuple(terms["members"])}),
            tasks,
            None if max_norm is None else float(max_norm),
        )
    except (AttributeError, KeyError, TypeError, ValueError, SettingsError) as error:
        raise WireError(f"the server's round cannot be read: {error!r:.80}") from None


def lacking(tasks: list[TaskId]) -> bytes:
    """A member's word that it has no updates of these tasks any more."""
    return json.dumps({"lacks": tasks}).encode()


def read_lacking(raw: bytes) -> list[TaskId] | None:
    """The tasks that a member lacks; None: the message says something else."""
    if not raw.startswith(b'{"lacks"') or len(raw) > _SMALL:
        return None
    try:
        return [int(task) for task in json.loads(raw)["lacks"]]
    except (KeyError, OverflowError, TypeError, ValueError):
        return None


def parts_of(message: bytes) -> Iterator[bytes]:
    """A message in parts that the wire carries."""
    for start in range(0, max(len(message), 1), PIECE_BYTES):
        last = start + PIECE_BYTES >= len(message)
        yield pb.SumPart(data=message[start : start + PIECE_BYTES], last=last).SerializeToString()


async def read_whole(read: Callable[[], Awaitable[Any]], most: int) -> bytes | None:
    """The next message, None at the end of the call.

    Raises:
        WireError: it is longer than `most`, or its parts are none.
    """
    message = bytearray()
    while True:
        raw = await read()
        if raw is grpc.aio.EOF:
            return None
        part = pb.SumPart()
        try:
            part.ParseFromString(raw)
        except DecodeError:
            raise WireError("a part of a sum cannot be read") from None
        message += part.data
        if len(message) > most:
            raise WireError(f"a message of a sum has {len(message)} bytes; allowed: {most}")
        if part.last:
            return bytes(message)


def _plain(terms: Terms) -> dict[str, Any]:
    return {**asdict(terms), "members": list(terms.members)}
