"""The messages of a secure round on the wire: in parts; the first says what is asked."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import grpc
from pydantic import TypeAdapter, ValidationError

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.decoding import PIECE_BYTES, read_sum_part
from fedcompass.deployment.wire.short_texts import one_line
from fedcompass.errors import WireError
from fedcompass.secure_aggregation.terms import Terms
from fedcompass.vocabulary import TaskId

__all__ = ["Begin", "lacking", "parts_of", "read_begin", "read_lacking", "read_whole"]

_SMALL = 1 << 16  # bytes that a message without a vector has at most


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
        return _BEGIN.dump_json(self)


_BEGIN = TypeAdapter(Begin)
_LACKING = TypeAdapter(dict[Literal["lacks"], list[TaskId]])


def read_begin(raw: bytes) -> Begin:
    """What the server asks for.

    Raises:
        WireError: it cannot be read.
    """
    try:
        return _BEGIN.validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        why = one_line(f"{where}: {first['msg']}")
        raise WireError(f"the server's round cannot be read: {why}") from None


def lacking(tasks: list[TaskId]) -> bytes:
    """A member's word that it has no updates of these tasks any more."""
    return _LACKING.dump_json({"lacks": tasks})


def read_lacking(raw: bytes) -> list[TaskId] | None:
    """The tasks that a member lacks; None: the message says something else."""
    if not raw.startswith(b'{"lacks"') or len(raw) > _SMALL:
        return None
    try:
        return _LACKING.validate_json(raw).get("lacks")
    except ValidationError:
        return None


def parts_of(message: bytes) -> Iterator[bytes]:
    """A message in parts that the wire carries."""
    for start in range(0, len(message), PIECE_BYTES):
        last = start + PIECE_BYTES >= len(message)
        yield pb.SumPart(data=message[start : start + PIECE_BYTES], last=last).SerializeToString()


async def read_whole(read: Callable[[], Awaitable[Any]], most: int) -> bytes | None:
    """The next message, None at the end of the call.

    Raises:
        WireError: it is longer than `most`, or its parts are none.
    """
    message = bytearray()
    while (raw := await read()) is not grpc.aio.EOF:
        part = read_sum_part(raw)
        message += part.data
        if len(message) > most:
            raise WireError(f"a message of a sum has {len(message)} bytes; allowed: {most}")
        if part.last:
            return bytes(message)
    return None
