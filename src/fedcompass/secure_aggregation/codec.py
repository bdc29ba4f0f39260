"""A round's messages as bytes: a short JSON head, then the raw words of a masked vector."""

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from fedcompass.errors import MessageRefused
from fedcompass.secure_aggregation.fixed_point import Words
from fedcompass.secure_aggregation.masks import word_count
from fedcompass.secure_aggregation.messages import (
    ConfirmationsListed,
    FromMember,
    InputMasked,
    KeysAdvertised,
    KeysListed,
    MemberAborted,
    RoundFailed,
    ShareDigests,
    SharesDealt,
    SharesDelivered,
    SharesRevealed,
    SurvivorsConfirmed,
    SurvivorsListed,
    ToMember,
)
from fedcompass.secure_aggregation.terms import Terms
from fedcompass.vocabulary import ClientId

__all__ = ["from_member", "most_bytes", "to_bytes", "to_member"]

_HEAD = struct.Struct("<I")  # the length of the JSON
_PER_MEMBER, _FIXED = 2048, 4096  # more than any message of one has of hex digits, names and keys
_KEYS = ("mask_key", "seal_key", "self_seed_digest", "signature")

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
        return _from_member(head, rest, terms, member)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MessageRefused(f"a message of {member!r} cannot be read: {error!r:.80}") from None


def to_member(raw: bytes) -> tuple[ToMember, Head]:
    """What the server sent, and its head with what stands beside the message.

    Raises:
        MessageRefused: it is no message to a member.
    """
    head, _ = _split(raw)
    try:
        return _to_member(head), head
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MessageRefused(f"a message of the server cannot be read: {error!r:.80}") from None


def _split(raw: bytes) -> tuple[Head, bytes]:
    try:
        (length,) = _HEAD.unpack_from(raw)
        head = json.loads(raw[_HEAD.size : _HEAD.size + length])
    except (struct.error, ValueError, RecursionError):
        raise MessageRefused("a message has no head; use the same version on both sides") from None
    if not isinstance(head, dict):
        raise MessageRefused("a message's head is no table; use the same version on both sides")
    return head, raw[_HEAD.size + length :]


def _from_member(head: Head, rest: bytes, terms: Terms, member: ClientId) -> FromMember:
    context = _bytes(head["context"])
    match head["kind"]:
        case "KeysAdvertised":
            return _keys(head | {"member": member})
        case "SharesDealt":
            return SharesDealt(
                context=context,
                member=member,
                sealed=_table(head["sealed"], _bytes),
                digests=_table(head["digests"], _digests),
            )
        case "InputMasked":
            words: Words = np.frombuffer(rest, dtype=terms.encoding.dtype)
            return InputMasked(context=context, member=member, words=words)
        case "SurvivorsConfirmed":
            signature = _bytes(head["signature"])
            return SurvivorsConfirmed(context=context, member=member, signature=signature)
        case "SharesRevealed":
            return SharesRevealed(
                context=context,
                member=member,
                self_shares=_table(head["self_shares"], _bytes),
                key_shares=_table(head["key_shares"], _bytes),
            )
        case "MemberAborted":
            accused = _text(head["accused"])
            return MemberAborted(context=context, member=member, accused=accused)
        case _:
            raise ValueError("kind")


def _to_member(head: Head) -> ToMember:
    context = _bytes(head["context"])
    match head["kind"]:
        case "KeysListed":
            return KeysListed(context=context, keys=tuple(map(_keys, head["keys"])))
        case "SharesDelivered":
            return SharesDelivered(
                context=context,
                dealers=tuple(map(_text, head["dealers"])),
                sealed=_table(head["sealed"], _bytes),
                digests=_table(head["digests"], _digests),
            )
        case "SurvivorsListed":
            survivors = tuple(map(_text, head["survivors"]))
            return SurvivorsListed(context=context, survivors=survivors)
        case "ConfirmationsListed":
            signatures = _table(head["signatures"], _bytes)
            return ConfirmationsListed(context=context, signatures=signatures)
        case "RoundFailed":
            accused = _table(head["accused"], _text)
            return RoundFailed(context=context, reason=_text(head["reason"]), accused=accused)
        case _:
            raise ValueError("kind")


def _keys(head: Head) -> KeysAdvertised:
    return KeysAdvertised(
        context=_bytes(head["context"]),
        member=_text(head["member"]),
        **{name: _bytes(head[name]) for name in _KEYS},
    )


def _digests(pair: Any) -> ShareDigests:
    self_share, key_share = pair
    return ShareDigests(self_share=_bytes(self_share), key_share=_bytes(key_share))


def _table(value: Any, read: Callable[[Any], Any]) -> dict[ClientId, Any]:
    return {_text(name): read(each) for name, each in value.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _bytes(value: Any) -> bytes:
    return bytes.fromhex(value)


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
