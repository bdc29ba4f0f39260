"""A round's messages as bytes: a short JSON head, then the raw words of a masked vector."""

import json
import struct
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeAlias, get_args, get_origin

import numpy as np

from fedcompass.errors import MessageRefused
from fedcompass.secure_aggregation.masks import word_count
from fedcompass.secure_aggregation.messages import (
    FromMember,
    InputMasked,
    KeysAdvertised,
    ShareDigests,
    ToMember,
)
from fedcompass.secure_aggregation.terms import Terms
from fedcompass.vocabulary import ClientId

__all__ = ["from_member", "most_bytes", "to_bytes", "to_member"]

_HEAD = struct.Struct("<I")  # the length of the JSON
_PER_MEMBER, _FIXED = 2048, 4096  # more than any message of one has of hex digits, names and keys
_FROM_MEMBER = {kind.__name__: kind for kind in get_args(FromMember)}
_TO_MEMBER = {kind.__name__: kind for kind in get_args(ToMember)}
_WRONG = (AttributeError, KeyError, TypeError, ValueError)  # what a malformed head raises

Head: TypeAlias = dict[str, Any]


def most_bytes(terms: Terms) -> int:
    """No message of a member of this round is longer."""
    words = word_count(terms) * terms.encoding.dtype.itemsize
    return words + _FIXED + _PER_MEMBER * len(terms.members)


def to_bytes(message: FromMember | ToMember, **beside: Any) -> bytes:
    """A message, and further values of its head that are not the round's."""
    head = {"kind": type(message).__name__, **_values(message), **beside}
    words = head.pop("words", None)
    text = json.dumps(head, separators=(",", ":")).encode()
    return _HEAD.pack(len(text)) + text + (b"" if words is None else words.tobytes())


def from_member(raw: bytes, terms: Terms, member: ClientId) -> FromMember:
    """What a member sent; nothing in it is trusted, and it speaks for itself alone.

    Raises:
        MessageRefused: it is no message of a member of this round.
    """
    head, rest = _split(raw)
    try:
        kind = _FROM_MEMBER[head["kind"]]
        known: Head = {"member": member}
        if kind is InputMasked:
            known["words"] = np.frombuffer(rest, dtype=terms.encoding.dtype)
        message: FromMember = _read(kind, head, **known)
    except _WRONG as error:
        raise MessageRefused(f"a message of {member!r} cannot be read: {error!r:.80}") from None
    return message


def to_member(raw: bytes) -> tuple[ToMember, Head]:
    """What the server sent, and its head with what stands beside the message.

    Raises:
        MessageRefused: it is no message to a member.
    """
    head, _ = _split(raw)
    try:
        message: ToMember = _read(_TO_MEMBER[head["kind"]], head)
    except _WRONG as error:
        raise MessageRefused(f"a message of the server cannot be read: {error!r:.80}") from None
    return message, head


def _split(raw: bytes) -> tuple[Head, bytes]:
    try:
        (length,) = _HEAD.unpack_from(raw)
        head = json.loads(raw[_HEAD.size : _HEAD.size + length])
    except (struct.error, ValueError, RecursionError):
        raise MessageRefused("a message has no head; use the same version on both sides") from None
    if not isinstance(head, dict):
        raise MessageRefused("a message's head is no table; use the same version on both sides")
    return head, raw[_HEAD.size + length :]


def _read(kind: type[Any], head: Head, **known: Any) -> Any:
    """A message of a kind; what is known is not taken from the head."""
    unknown = [field for field in fields(kind) if field.name not in known]
    return kind(**known, **{field.name: _value(field.type, head[field.name]) for field in unknown})


def _value(wanted: Any, found: Any) -> Any:
    """A field's value, of the type that the message's class gives the field."""
    if wanted is str:
        if not isinstance(found, str):
            raise TypeError("not a text")
        return found
    if wanted is bytes:
        return bytes.fromhex(found)
    if wanted is KeysAdvertised:
        return _read(KeysAdvertised, found)
    if wanted is ShareDigests:
        self_share, key_share = map(bytes.fromhex, found)
        return ShareDigests(self_share=self_share, key_share=key_share)
    parts = get_args(wanted)
    if get_origin(wanted) is tuple:
        return tuple(_value(parts[0], each) for each in found)
    return {_value(str, name): _value(parts[1], each) for name, each in found.items()}


def _values(fact: Any) -> Head:
    return {name: _plain(getattr(fact, name)) for name in type(fact).__slots__}


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case ShareDigests():
            return [value.self_share.hex(), value.key_share.hex()]
        case KeysAdvertised():
            return _values(value)
        case tuple():
            return [_plain(each) for each in value]
        case Mapping():
            return {name: _plain(each) for name, each in value.items()}
        case _:
            return value
