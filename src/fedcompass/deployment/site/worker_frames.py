"""What a site's worker and its forwarder say to each other over a Unix socket; no torch, no pickle.

The worker greets when it takes up a connection; then each side sends one frame: a prefix (magic,
length of the header, length of the payload), a JSON header (kind, facts, and each array's name,
dtype, shape and length) and the arrays' bytes one after the other. Both lengths are compared with
the reader's limits before anything of that size is allocated.
"""

import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

from fedcompass.deployment.wire.messages import Arrays, Facts, WireArray
from fedcompass.errors import WireError

__all__ = ["MOST_HEADER_BYTES", "Frame", "await_greeting", "greet", "receive", "send"]

MOST_HEADER_BYTES = 4 << 20
"""No header is longer: room for the names of some 30,000 tensors."""

_MAGIC = b"FCW1"
_PREFIX = struct.Struct("!4sIQ")
_PIECE = 1 << 20  # bytes handed to the kernel at once


@dataclass(frozen=True, slots=True)
class Frame:
    """One message: `query` or `train` one way; `facts`, `trained` or `error` the other."""

    kind: str
    facts: Facts = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)

    @property
    def payload_bytes(self) -> int:
        """The arrays' bytes together."""
        return sum(len(array.data) for array in self.arrays.values())


def greet(connection: socket.socket) -> None:
    """Say, as a worker, that a connection was taken up."""
    connection.sendall(_MAGIC)


def await_greeting(connection: socket.socket) -> None:
    """Wait until the worker has taken up the connection.

    Raises:
        WireError: it is not a worker that is there.
        EOFError: it closed first; likewise `OSError`, and `TimeoutError` if one is set.
    """
    _check_magic(bytes(_exactly(connection, len(_MAGIC))))


def send(connection: socket.socket, frame: Frame) -> None:
    """Write a frame; a peer that is gone raises `OSError`."""
    described = [[n, a.dtype, list(a.shape), len(a.data)] for n, a in frame.arrays.items()]
    header = json.dumps({"kind": frame.kind, "facts": frame.facts, "arrays": described}).encode()
    connection.sendall(_PREFIX.pack(_MAGIC, len(header), frame.payload_bytes) + header)
    for array in frame.arrays.values():
        connection.sendall(array.data)


def receive(connection: socket.socket, most_payload_bytes: int) -> Frame:
    """Read a frame.

    Raises:
        WireError: it is not one, or larger than allowed.
        EOFError: the peer closed its side before the frame was complete.
        OSError: the connection broke.
    """
    prefix = _exactly(connection, _PREFIX.size)
    magic, header_bytes, payload_bytes = _PREFIX.unpack(prefix)
    _check_magic(magic)
    if header_bytes > MOST_HEADER_BYTES:
        raise WireError(
            f"a message's header has {header_bytes} bytes, of {MOST_HEADER_BYTES} allowed"
        )
    if payload_bytes > most_payload_bytes:
        raise WireError(
            f"a message's arrays have {payload_bytes} bytes, of {most_payload_bytes} allowed; "
            "do both sides have the same model?"
        )
    header = _header(bytes(_exactly(connection, header_bytes)))
    described = _described(header["arrays"])
    if sum(length for _, _, _, length in described) != payload_bytes:
        raise WireError(f"a message's arrays do not add up to its {payload_bytes} bytes")
    arrays = {
        name: WireArray(dtype, shape, bytes(_exactly(connection, length)))
        for name, dtype, shape, length in described
    }
    return Frame(header["kind"], header["facts"], arrays)


def _check_magic(magic: bytes) -> None:
    if magic != _MAGIC:
        raise WireError(f"a message starts with {magic!r}, not {_MAGIC!r}: another program?")


def _exactly(connection: socket.socket, count: int) -> bytearray:
    read = bytearray(count)
    view, done = memoryview(read), 0
    while done < count:
        got = connection.recv_into(view[done : done + _PIECE])
        if got == 0:
            raise EOFError(f"the connection closed {count - done} bytes before its end")
        done += got
    return read


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise WireError("a message's header is not JSON") from None
    fine = (
        isinstance(header, dict)
        and isinstance(header.get("kind"), str)
        and isinstance(header.get("arrays"), list)
        and isinstance(header.get("facts"), dict)
        and all(isinstance(value, int | float | str) for value in header["facts"].values())
    )
    if not fine:
        raise WireError("a message's header lacks a kind, facts or arrays of the right types")
    checked: dict[str, Any] = header
    return checked


def _described(entries: list[Any]) -> list[tuple[str, str, tuple[int, ...], int]]:
    described = []
    for entry in entries:
        match entry:
            case [str(name), str(dtype), [*shape], int(length)] if length >= 0 and all(
                isinstance(side, int) and side >= 0 for side in shape
            ):
                described.append((name, dtype, tuple(shape), length))
            case _:
                raise WireError("a message describes an array as none can be")
    if len({name for name, _, _, _ in described}) != len(described):
        raise WireError("a message names an array twice")
    return described
