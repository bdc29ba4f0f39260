"""Bytes from the other side of the wire, as checked messages; pure, and nothing in it is trusted.

Every function either returns a message whose texts are short and of the right form, or raises
`WireError`. Whether a task is the sender's, and what it may send for it, is for others to say.
"""

import re
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.short_texts import one_line
from fedcompass.errors import WireError

__all__ = [
    "MOST_MESSAGE_BYTES",
    "PIECE_BYTES",
    "WIRE_PROTOCOL",
    "read_answer_part",
    "read_answer_reply",
    "read_from_server",
    "read_from_site",
    "read_model_request",
    "read_piece",
    "read_sum_part",
]

WIRE_PROTOCOL = 1
"""Rises when the meaning of a message changes."""

PIECE_BYTES = 1 << 20
"""Models and updates travel in pieces of at most this size."""

MOST_MESSAGE_BYTES = PIECE_BYTES + (1 << 14)
"""No message is longer; gRPC refuses one that is before it is read."""

_TASK = re.compile(r"[A-Za-z0-9_-]{22}")  # 128 random bits
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PROCESS = re.compile(r"[0-9a-f]{32}")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,79}")
_FORMS = {  # of texts, by the names that fields have in all messages
    "digest": _DIGEST,
    "form": _WORD,
    "id": _TASK,
    "layout": _DIGEST,
    "model": _DIGEST,
    "process": _PROCESS,
    "run": _WORD,
    "site": _WORD,
    "software": _WORD,
    "task": _TASK,
}
_FREE = ("error", "leaving", "reason", "refused")  # texts that become one line
_BYTES = ("model_bytes", "offset", "payload_bytes")
_MOST_BYTES = 1 << 44
_MOST_COUNT = 10**15

_M = TypeVar("_M", bound=Message)


def read_from_site(raw: bytes) -> pb.FromSite:
    """What a site says on its stream; `WhichOneof("kind")` is None for a kind of later versions."""
    return _read(pb.FromSite(), raw)


def read_model_request(raw: bytes) -> pb.ModelRequest:
    """Which model a site asks for."""
    return _read(pb.ModelRequest(), raw)


def read_answer_part(raw: bytes) -> pb.AnswerPart:
    """The head of an answer, or a piece of its payload."""
    part = _read(pb.AnswerPart(), raw)
    if part.WhichOneof("kind") is None:
        raise WireError("a part of an answer is empty; allowed: its head, then pieces")
    answer = part.answer
    if answer.budget_spent and not answer.error:
        raise WireError("an answer says that a budget is spent, but not how far; allowed: an error")
    if answer.error and answer.payload_bytes:
        raise WireError("an answer has an error and a payload; allowed: one of them")
    return part


def read_sum_part(raw: bytes) -> pb.SumPart:
    """A part of a message of a secure round, from either side."""
    return _read(pb.SumPart(), raw)


def read_from_server(raw: bytes) -> pb.FromServer:
    """What the server says on a site's stream; no kind: one of later versions."""
    return _read(pb.FromServer(), raw)


def read_piece(raw: bytes) -> bytes:
    """A piece of a model."""
    return _read(pb.Piece(), raw).data


def read_answer_reply(raw: bytes) -> pb.AnswerReply:
    """Where to go on with an answer, or its receipt."""
    reply = _read(pb.AnswerReply(), raw)
    if reply.WhichOneof("kind") is None:
        raise WireError("a reply to an answer is empty; use the same version on both sides")
    return reply


def _read(message: _M, raw: bytes) -> _M:
    if len(raw) > MOST_MESSAGE_BYTES:
        raise WireError(f"a message has {len(raw)} bytes; allowed: {MOST_MESSAGE_BYTES}")
    try:
        message.ParseFromString(raw)
    except DecodeError:
        name = type(message).__name__
        raise WireError(f"a message is no {name}; use the same version on both sides") from None
    _check(message)
    return message


def _check(message: Any) -> None:
    """Check every field that is there, by its name; texts of no form become one line."""
    present = [
        field.name
        for field in message.DESCRIPTOR.fields
        if field.containing_oneof is None or message.HasField(field.name)
    ]
    for name in present:
        if name in _FREE:
            setattr(message, name, one_line(getattr(message, name)))
    for name in present:
        value = getattr(message, name)
        if isinstance(value, Message):
            _check(value)
        elif name in _FORMS and (value or name not in _may_lack(message)):
            _match(_FORMS[name], value, name)
        elif name == "data" and not 1 <= len(value) <= PIECE_BYTES:
            raise WireError(f"a piece has {len(value)} bytes; allowed: 1 to {PIECE_BYTES}")
        elif type(value) is int and value > (
            most := _MOST_BYTES if name in _BYTES else _MOST_COUNT
        ):
            raise WireError(f"{name} is {value}; allowed: up to {most}")


def _may_lack(message: Message) -> tuple[str, ...]:
    """The texts of a form that may be empty."""
    if isinstance(message, pb.Heartbeat):
        return ("task",)  # none is in training
    return ("form", "digest") if isinstance(message, pb.Answer) and message.error else ()


def _match(pattern: re.Pattern[str], text: str, name: str) -> None:
    if pattern.fullmatch(text) is None:
        raise WireError(f"{name} is {one_line(text)[:40]!r}; allowed: {pattern.pattern}")
