"""What members and the server say to each other in a round, in this order.

A message names its round by the digest of its terms. Whoever carries messages makes sure that
`member` is the one that sent it (the site's certificate); the server forwards, so what members must
be able to check about each other is signed or sealed besides.
"""

from enum import StrEnum
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedcompass.secure_aggregation.fixed_point import Words
from fedcompass.vocabulary import ClientId, fact

__all__ = [
    "Answer",
    "ConfirmationsListed",
    "FromMember",
    "Signer",
    "InputMasked",
    "KeysAdvertised",
    "KeysListed",
    "MemberAborted",
    "MemberLost",
    "Phase",
    "PhaseClosed",
    "RoundFailed",
    "Send",
    "ServerEvent",
    "ServerOutput",
    "ShareDigests",
    "SharesDealt",
    "SharesDelivered",
    "SharesRevealed",
    "SumOpened",
    "SurvivorsConfirmed",
    "SurvivorsListed",
    "ToMember",
    "Unsigned",
]


class Phase(StrEnum):
    """What the server collects; for a member, what it has sent last."""

    KEYS = "keys"
    SHARES = "shares"
    INPUTS = "inputs"
    CONFIRMATIONS = "confirmations"
    REVEALS = "reveals"
    OVER = "over"


class Signer(Protocol):
    """A member's signing key and everybody's certificates: the place for the site's own."""

    def sign(self, text: bytes) -> bytes:
        """Sign as this member."""
        ...

    def verify(self, member: ClientId, text: bytes, signature: bytes) -> bool:
        """Whether that member signed this text."""
        ...


class Unsigned:
    """No signatures: enough against a server that is curious, not against one that lies."""

    def sign(self, text: bytes) -> bytes:
        """Nothing."""
        return b""

    def verify(self, member: ClientId, text: bytes, signature: bytes) -> bool:
        """Whether there is no signature, as there should be."""
        return signature == b""


@fact
class KeysAdvertised:
    """A member's public keys of this round, and the digest its self-mask's seed must have."""

    context: bytes
    member: ClientId
    mask_key: bytes
    seal_key: bytes
    self_seed_digest: bytes
    signature: bytes


@fact
class KeysListed:
    """To each: the keys of all who advertised some, in order of their names."""

    context: bytes
    keys: tuple[KeysAdvertised, ...]


@fact
class ShareDigests:
    """Of one holder's two shares: they show who is wrong if a secret does not open."""

    self_share: bytes
    key_share: bytes


@fact
class SharesDealt:
    """A member's shares, each sealed for its holder, and the digests of all of them."""

    context: bytes
    member: ClientId
    sealed: dict[ClientId, bytes]
    digests: dict[ClientId, ShareDigests]


@fact
class SharesDelivered:
    """To each: who dealt shares, and what its neighbours sealed for it."""

    context: bytes
    dealers: tuple[ClientId, ...]
    sealed: dict[ClientId, bytes]
    digests: dict[ClientId, ShareDigests]


@fact
class InputMasked:
    """A member's vector under all its masks."""

    context: bytes
    member: ClientId
    words: Words


@fact
class SurvivorsListed:
    """To each: whose vectors are in the sum."""

    context: bytes
    survivors: tuple[ClientId, ...]


@fact
class SurvivorsConfirmed:
    """A member was told these survivors and will open no other sum."""

    context: bytes
    member: ClientId
    signature: bytes


@fact
class ConfirmationsListed:
    """To each: that enough others were told the same survivors."""

    context: bytes
    signatures: dict[ClientId, bytes]


@fact
class SharesRevealed:
    """Self-mask shares of survivors and key shares of those that vanished; nobody is in both."""

    context: bytes
    member: ClientId
    self_shares: dict[ClientId, bytes]
    key_shares: dict[ClientId, bytes]


@fact
class MemberAborted:
    """A member leaves the round: the shares that another dealt it are not those it published."""

    context: bytes
    member: ClientId
    accused: ClientId


@fact
class MemberLost:
    """The driver gave a member up; it is not waited for any more."""

    context: bytes
    member: ClientId


@fact
class PhaseClosed:
    """The driver's timer: go on with those that have answered. Ignored once the phase is past."""

    context: bytes
    phase: Phase


@fact
class RoundFailed:
    """Nothing was opened, to nobody. Who has revealed shares offers its updates to no other sum.

    accused: who sent something wrong, and what.
    among: one of these did not do what it should; empty: too few stayed, and nobody was wrong.
    """

    context: bytes
    reason: str
    accused: dict[ClientId, str]
    among: tuple[ClientId, ...]


@fact
class SumOpened:
    """The sum of these members' weighted vectors; `accused` as in RoundFailed."""

    context: bytes
    members: tuple[ClientId, ...]
    values: NDArray[np.float64]
    accused: dict[ClientId, str]


ToMember: TypeAlias = (
    KeysListed | SharesDelivered | SurvivorsListed | ConfirmationsListed | RoundFailed
)
Answer: TypeAlias = KeysAdvertised | SharesDealt | InputMasked | SurvivorsConfirmed | SharesRevealed
FromMember: TypeAlias = Answer | MemberAborted
ServerEvent: TypeAlias = FromMember | MemberLost | PhaseClosed


@fact
class Send:
    """The driver delivers this message."""

    to: ClientId
    message: ToMember


ServerOutput: TypeAlias = Send | SumOpened | RoundFailed
