"""Bytes from the other side of the wire, as checked messages; pure, and nothing in it is trusted.

Every function either returns a message whose texts are short and of the right form, or raises
`WireError`. Whether a task is the sender's, and what it may send for it, is for others to say.
"""

import re
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.messages import one_line
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
_MOST_BYTES = 1 << 44
_MOST_COUNT = 10**15

_M = TypeVar("_M", bound=Message)


def read_from_site(raw: bytes) -> pb.FromSite:
    """What a site says on its stream; `WhichOneof("kind")` is None for a kind of later versions."""
    message = _parsed(pb.FromSite(), raw)
    kind = message.WhichOneof("kind")
    if kind == "hello":
        hello = message.hello
        _match(_WORD, hello.software, "software")
        _match(_PROCESS, hello.process, "process")
        _match(_DIGEST, hello.layout, "layout")
        _check_count(hello.samples, "samples")
        hello.leaving = one_line(hello.leaving)
    elif kind == "heartbeat":
        _match_or_empty(_TASK, message.heartbeat.task, "task")
    return message


def read_model_request(raw: bytes) -> pb.ModelRequest:
    """Which model a site asks for."""
    request = _parsed(pb.ModelRequest(), raw)
    _match(_TASK, request.task, "task")
    _check_size(request.offset, "offset")
    return request


def read_answer_part(raw: bytes) -> pb.AnswerPart:
    """The head of an answer, or a piece of its payload."""
    part = _parsed(pb.AnswerPart(), raw)
    kind = part.WhichOneof("kind")
    if kind == "answer":
        _check_answer(part.answer)
    elif kind == "data":
        _check_piece(part.data)
    else:
        raise WireError("a part of an answer is empty; allowed: its head, then pieces")
    return part


def read_from_server(raw: bytes) -> pb.FromServer:
    """What the server says on a site's stream; no kind: one of later versions."""
    message = _parsed(pb.FromServer(), raw)
    match message.WhichOneof("kind"):
        case "welcome":
            _match(_WORD, message.welcome.site, "site")
        case "task":
            _check_task(message.task)
        case "withdrawn":
            _match(_TASK, message.withdrawn.task, "task")
        case "sum":
            _match(_TASK, message.sum.id, "id")
        case _:
            pass
    return message


def read_piece(raw: bytes) -> bytes:
    """A piece of a model."""
    data: bytes = _parsed(pb.Piece(), raw).data
    _check_piece(data)
    return data


def read_answer_reply(raw: bytes) -> pb.AnswerReply:
    """Where to go on with an answer, or its receipt."""
    reply = _parsed(pb.AnswerReply(), raw)
    kind = reply.WhichOneof("kind")
    if kind == "receipt":
        _match(_TASK, reply.receipt.task, "task")
        reply.receipt.reason = one_line(reply.receipt.reason)
    elif kind == "proceed":
        _check_size(reply.proceed.offset, "offset")
    else:
        raise WireError("a reply to an answer is empty; use the same version on both sides")
    return reply


def _check_answer(answer: pb.Answer) -> None:
    _match(_TASK, answer.task, "task")
    _check_count(answer.steps_done, "steps_done")
    _check_count(answer.samples, "samples")
    if answer.budget_spent and not answer.error:
        raise WireError("an answer says that a budget is spent, but not how far; allowed: an error")
    if answer.error:
        answer.error = one_line(answer.error)
        if answer.payload_bytes:
            raise WireError("an answer has an error and a payload; allowed: one of them")
        return
    _match(_WORD, answer.form, "form")
    _match(_DIGEST, answer.digest, "digest")
    _check_size(answer.payload_bytes, "payload_bytes")


def _check_task(task: pb.Task) -> None:
    _match(_TASK, task.id, "id")
    _match(_WORD, task.run, "run")
    _match(_WORD, task.form, "form")
    _match(_DIGEST, task.model, "model")
    _check_size(task.model_bytes, "model_bytes")
    for name in ("number", "steps", "version"):
        _check_count(getattr(task, name), name)
    task.refused = one_line(task.refused)


def _parsed(message: _M, raw: bytes) -> _M:
    if len(raw) > MOST_MESSAGE_BYTES:
        raise WireError(f"a message has {len(raw)} bytes; allowed: {MOST_MESSAGE_BYTES}")
    try:
        message.ParseFromString(raw)
    except DecodeError:
        name = type(message).__name__
        raise WireError(f"a message is no {name}; use the same version on both sides") from None
    return message


def _check_piece(data: bytes) -> None:
    if not 1 <= len(data) <= PIECE_BYTES:
        raise WireError(f"a piece has {len(data)} bytes; allowed: 1 to {PIECE_BYTES}")


def _match(pattern: re.Pattern[str], text: str, name: str) -> None:
    if pattern.fullmatch(text) is None:
        raise WireError(f"{name} is {one_line(text)[:40]!r}; allowed: {pattern.pattern}")


def _match_or_empty(pattern: re.Pattern[str], text: str, name: str) -> None:
    if text:
        _match(pattern, text, name)


def _check_size(value: int, name: str) -> None:
    if value > _MOST_BYTES:
        raise WireError(f"{name} is {value}; allowed: up to {_MOST_BYTES}")


def _check_count(value: int, name: str) -> None:
    if value > _MOST_COUNT:
        raise WireError(f"{name} is {value}; allowed: up to {_MOST_COUNT}")
