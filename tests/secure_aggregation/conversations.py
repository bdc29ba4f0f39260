"""A server and its members that talk until the round is over; anything can go wrong on the way."""

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from fedcompass.errors import MessageRefused
from fedcompass.secure_aggregation.fixed_point import Bits
from fedcompass.secure_aggregation.member import MaskingMember
from fedcompass.secure_aggregation.messages import (
    FromMember,
    InputMasked,
    KeysAdvertised,
    MemberAborted,
    Phase,
    PhaseClosed,
    RoundFailed,
    Send,
    ServerOutput,
    SharesDealt,
    SharesRevealed,
    Signer,
    SumOpened,
    SurvivorsConfirmed,
    ToMember,
    Unsigned,
)
from fedcompass.secure_aggregation.server_round import ServerRound
from fedcompass.secure_aggregation.shares import Entropy
from fedcompass.secure_aggregation.terms import Terms, terms_for
from fedcompass.vocabulary import ClientId

Vector: TypeAlias = NDArray[np.float32]

ORDER = list(Phase)
PHASE_OF: dict[type, Phase] = {
    KeysAdvertised: Phase.KEYS,
    SharesDealt: Phase.SHARES,
    InputMasked: Phase.INPUTS,
    MemberAborted: Phase.INPUTS,
    SurvivorsConfirmed: Phase.CONFIRMATIONS,
    SharesRevealed: Phase.REVEALS,
}


def names(count: int) -> tuple[ClientId, ...]:
    return tuple(f"site-{number:02}" for number in range(count))


def some_terms(
    count: int = 5,
    *,
    length: int = 7,
    threshold: int | None = None,
    degree: int | None = None,
    merge: int = 1,
    bits: Bits = 32,
) -> Terms:
    usual = terms_for("run", merge, names(count), length, clip=4.0, bits=bits)
    return Terms(
        run="run",
        merge=merge,
        members=usual.members,
        length=length,
        bits=bits,
        clip=4.0,
        threshold=threshold or usual.threshold,
        degree=degree or usual.degree,
    )


def vectors_for(terms: Terms, seed: int = 0) -> dict[ClientId, Vector]:
    generator = np.random.default_rng(seed)
    return {
        name: generator.uniform(-4, 4, terms.length).astype(np.float32) for name in terms.members
    }


def drawn(seed: object) -> Entropy:
    return random.Random(str(seed)).randbytes


class Certificates:
    """Signs as one member and knows everybody's public key, as a site's certificate will."""

    def __init__(self, name: ClientId, keys: Mapping[ClientId, Ed25519PrivateKey]) -> None:
        self._own = keys[name]
        self._public = {member: key.public_key() for member, key in keys.items()}

    def sign(self, text: bytes) -> bytes:
        return self._own.sign(text)

    def verify(self, member: ClientId, text: bytes, signature: bytes) -> bool:
        try:
            self._public[member].verify(signature, text)
        except InvalidSignature:
            return False
        return True


def certificates(members: tuple[ClientId, ...]) -> dict[ClientId, Signer]:
    keys = {name: Ed25519PrivateKey.from_private_bytes(drawn(name)(32)) for name in members}
    return {name: Certificates(name, keys) for name in members}


def _unchanged(message: FromMember) -> FromMember:
    return message


def _untouched(to: ClientId, message: ToMember) -> ToMember:
    return message


@dataclass
class Conversation:
    """One round from keys to sum.

    silent: from which phase on a member says nothing any more.
    change, forge: what a lying member, or a lying server, makes of a message.
    """

    terms: Terms
    vectors: Mapping[ClientId, Vector]
    weights: Mapping[ClientId, float] = field(default_factory=dict)
    silent: Mapping[ClientId, Phase] = field(default_factory=dict)
    change: Callable[[FromMember], FromMember] = _unchanged
    forge: Callable[[ClientId, ToMember], ToMember] = _untouched
    identities: Mapping[ClientId, Signer] = field(default_factory=dict)
    seed: object = 0

    def __post_init__(self) -> None:
        self.server = ServerRound(self.terms)
        self.members = {
            name: MaskingMember(
                name, self.identities.get(name, Unsigned()), drawn((self.seed, name))
            )
            for name in self.terms.members
        }
        self.heard: list[FromMember] = []  # all that the server gets to see
        self.told: list[Send] = []
        self.refused: list[str] = []
        self._ends: list[SumOpened | RoundFailed] = []
        self._waiting: deque[FromMember] = deque()

    def play(self) -> SumOpened | RoundFailed:
        for name, member in self.members.items():
            weight = self.weights.get(name, 1.0)
            self._waiting.append(member.begin(self.terms, self.vectors[name], weight))
        for _ in range(2 * len(ORDER)):
            while self._waiting:
                self._deliver(self.change(self._waiting.popleft()))
            if not self._ends:
                context, phase = self.terms.context, self.server.phase
                self._carry_out(self.server.handle(PhaseClosed(context=context, phase=phase)))
        [end] = self._ends
        return end

    def _deliver(self, message: FromMember) -> None:
        silent_from = self.silent.get(message.member, Phase.OVER)
        if ORDER.index(PHASE_OF[type(message)]) >= ORDER.index(silent_from):
            return
        self.heard.append(message)
        try:
            self._carry_out(self.server.handle(message))
        except MessageRefused as refused:
            self.refused.append(str(refused))

    def _carry_out(self, outputs: list[ServerOutput]) -> None:
        for output in outputs:
            if not isinstance(output, Send):
                self._ends.append(output)
                continue
            self.told.append(output)
            try:
                answers = self.members[output.to].handle(self.forge(output.to, output.message))
                self._waiting.extend(answers)
            except MessageRefused as refused:
                self.refused.append(str(refused))


def opened(end: SumOpened | RoundFailed) -> SumOpened:
    assert isinstance(end, SumOpened), end
    return end


def failed(end: SumOpened | RoundFailed) -> RoundFailed:
    assert isinstance(end, RoundFailed), end
    return end


def plain_sum(conversation: Conversation, members: tuple[ClientId, ...]) -> NDArray[np.float64]:
    """As a server that sees everything would add up."""
    total = np.zeros(conversation.terms.length)
    for name in members:
        total += conversation.weights.get(name, 1.0) * conversation.vectors[name].astype(float)
    return total
