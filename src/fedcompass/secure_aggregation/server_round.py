"""The server's side of one round: it forwards, adds up what is masked, and opens the sum alone."""

from collections.abc import Collection
from typing import assert_never

import numpy as np

from fedcompass.errors import MessageRefused
from fedcompass.secure_aggregation.fixed_point import Words
from fedcompass.secure_aggregation.key_roster import KeyRoster, check_keys
from fedcompass.secure_aggregation.masks import word_count
from fedcompass.secure_aggregation.messages import (
    Answer,
    ConfirmationsListed,
    FromMember,
    InputMasked,
    KeysAdvertised,
    KeysListed,
    MemberAborted,
    MemberLost,
    Phase,
    PhaseClosed,
    RoundFailed,
    Send,
    ServerEvent,
    ServerOutput,
    SharesDealt,
    SharesDelivered,
    SharesRevealed,
    SumOpened,
    SurvivorsConfirmed,
    SurvivorsListed,
    ToMember,
)
from fedcompass.secure_aggregation.opening import SumDoesNotOpen, opened_sum
from fedcompass.secure_aggregation.terms import Terms
from fedcompass.vocabulary import ClientId

__all__ = ["ServerRound"]

_PHASES = {
    KeysAdvertised: Phase.KEYS,
    SharesDealt: Phase.SHARES,
    InputMasked: Phase.INPUTS,
    SurvivorsConfirmed: Phase.CONFIRMATIONS,
    SharesRevealed: Phase.REVEALS,
}  # in which phase each answer is awaited


class ServerRound:
    """Goes to the next phase when nobody is awaited any more, or when the driver's time is up.

    It keeps no masked vector by itself, only their sum. It is not saved: a server that restarts
    opens a new round for the next merge.
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.phase = Phase.KEYS
        self._context = terms.context
        self._awaited = dict.fromkeys(terms.members)  # may still answer in this phase
        self._lost: dict[ClientId, None] = {}  # answer in no later phase either
        self._accused: dict[ClientId, str] = {}
        self._wrong: dict[ClientId, None] = {}  # they, or who accused them
        self._keys: dict[ClientId, KeysAdvertised] = {}
        self._roster: KeyRoster | None = None  # known once the phase of keys is over
        self._dealt: dict[ClientId, SharesDealt] = {}
        self._total: Words = np.zeros(word_count(terms), dtype=terms.encoding.dtype)
        self._survivors: dict[ClientId, None] = {}  # whose vectors are in the total
        self._signatures: dict[ClientId, bytes] = {}
        self._revealed: dict[ClientId, SharesRevealed] = {}

    @property
    def awaited(self) -> list[ClientId]:
        """Who may still answer in this phase."""
        return list(self._awaited)

    def handle(self, event: ServerEvent) -> list[ServerOutput]:
        """Take in one event and return what to send, and at the end the sum or why there is none.

        Raises:
            MessageRefused: a message of another round or phase, of one that is not awaited, or
                malformed; nothing was changed.
        """
        if event.context != self._context:
            raise MessageRefused(
                f"{type(event).__name__} is of another round than merge {self.terms.merge} of run "
                f"{self.terms.run!r}; send each message to its own round"
            )
        match event:
            case PhaseClosed():
                if event.phase is not self.phase or self.phase is Phase.OVER:
                    return []
                self._awaited.clear()
            case MemberLost():
                self._lose(event.member)
            case MemberAborted():
                self._take_abort(event)
            case _:
                self._check_awaited(event)
                self._take(event)
                del self._awaited[event.member]
        return self._advance()

    def _check_awaited(self, message: FromMember) -> None:
        expected = _PHASES.get(type(message), self.phase)
        if message.member not in self._awaited or self.phase is not expected:
            raise MessageRefused(
                f"{type(message).__name__} of {message.member!r} came in phase {self.phase}; "
                f"allowed: once, in phase {expected}, of {self.awaited}"
            )

    def _take_abort(self, aborted: MemberAborted) -> None:
        self._check_awaited(aborted)
        if aborted.accused not in self._dealt:
            raise MessageRefused(
                f"{aborted.member!r} accused {aborted.accused[:80]!r}; "
                f"allowed: those that dealt shares, {list(self._dealt)}"
            )
        said = f"{aborted.member!r} says: the shares it dealt are not those it published"
        self._accused[aborted.accused] = said
        self._wrong |= dict.fromkeys((aborted.accused, aborted.member))
        self._lose(aborted.member)

    def _lose(self, member: ClientId) -> None:
        self._lost[member] = None
        self._awaited.pop(member, None)

    def _take(self, answer: Answer) -> None:
        match answer:
            case KeysAdvertised():
                check_keys([answer], taken=self._keys.values())
                self._keys[answer.member] = answer
            case SharesDealt():
                self._take_shares(answer)
            case InputMasked():
                self._take_input(answer)
            case SurvivorsConfirmed():
                self._signatures[answer.member] = answer.signature
            case SharesRevealed():
                self._take_revealed(answer)
            case _:
                assert_never(answer)

    def _take_shares(self, dealt: SharesDealt) -> None:
        graph = self._known_roster.graph
        neighbours, holders = graph.neighbours(dealt.member), graph.holders(dealt.member)
        if set(dealt.sealed) != set(neighbours) or set(dealt.digests) != set(holders):
            raise MessageRefused(
                f"{dealt.member!r} dealt shares to {sorted(dealt.sealed)}; "
                f"allowed: to its neighbours {list(neighbours)}"
            )
        self._dealt[dealt.member] = dealt

    def _take_input(self, masked: InputMasked) -> None:
        words = masked.words
        if words.shape != self._total.shape or words.dtype != self._total.dtype:
            raise MessageRefused(
                f"the masked vector of {masked.member!r} is {words.dtype}{list(words.shape)}; "
                f"allowed: {self._total.dtype}{list(self._total.shape)}"
            )
        self._total += words
        self._survivors[masked.member] = None

    def _take_revealed(self, revealed: SharesRevealed) -> None:
        """Keep shares that are those that were dealt; who changed one is named and left out."""
        roster, me = self._known_roster, revealed.member
        held = [dealer for dealer in self._dealt if me in roster.graph.holders(dealer)]
        alive = {dealer for dealer in held if dealer in self._survivors}
        if set(revealed.self_shares) != alive or set(revealed.key_shares) != set(held) - alive:
            raise MessageRefused(
                f"{me!r} revealed self shares of {sorted(revealed.self_shares)} and key shares of "
                f"{sorted(revealed.key_shares)}; allowed: {sorted(alive)} and "
                f"{sorted(set(held) - alive)}"
            )
        wrong = [
            dealer
            for kind, shares in (("self", revealed.self_shares), ("key", revealed.key_shares))
            for dealer, share in shares.items()
            if roster.share_digest(kind, dealer, me, share) != self._dealt_digest(kind, dealer, me)
        ]
        if wrong:
            self._accused[me] = f"revealed wrong shares of {wrong}"
            self._wrong[me] = None
        else:
            self._revealed[me] = revealed

    def _dealt_digest(self, kind: str, dealer: ClientId, holder: ClientId) -> bytes:
        digests = self._dealt[dealer].digests[holder]
        return digests.self_share if kind == "self" else digests.key_share

    @property
    def _known_roster(self) -> KeyRoster:
        assert self._roster is not None, "the phase of keys is over"
        return self._roster

    def _advance(self) -> list[ServerOutput]:
        """Go on as long as nobody is awaited."""
        outputs: list[ServerOutput] = []
        while not self._awaited and self.phase is not Phase.OVER:
            outputs += self._next_phase()
        return outputs

    def _next_phase(self) -> list[ServerOutput]:
        match self.phase:
            case Phase.KEYS:
                return self._list_keys()
            case Phase.SHARES:
                return self._deliver_shares()
            case Phase.INPUTS:
                return self._list_survivors()
            case Phase.CONFIRMATIONS:
                return self._list_confirmations()
            case _:
                return self._open()

    def _list_keys(self) -> list[ServerOutput]:
        if problem := self._too_few(self._keys, self.terms.members, "sent keys"):
            return problem
        keys = tuple(self._keys[member] for member in sorted(self._keys))
        self._roster = KeyRoster(self.terms, keys)
        listed = KeysListed(context=self._context, keys=keys)
        return self._enter(Phase.SHARES, dict.fromkeys(self._roster.members, listed))

    def _deliver_shares(self) -> list[ServerOutput]:
        if problem := self._too_few(self._dealt, self._keys, "dealt shares"):
            return problem
        dealers = tuple(sorted(self._dealt))
        self._dealt = {dealer: self._dealt[dealer] for dealer in dealers}
        return self._enter(
            Phase.INPUTS, {holder: self._shares_for(holder, dealers) for holder in dealers}
        )

    def _shares_for(self, holder: ClientId, dealers: tuple[ClientId, ...]) -> SharesDelivered:
        near = [
            dealer
            for dealer in self._known_roster.graph.neighbours(holder)
            if dealer in self._dealt
        ]
        return SharesDelivered(
            context=self._context,
            dealers=dealers,
            sealed={dealer: self._dealt[dealer].sealed[holder] for dealer in near},
            digests={dealer: self._dealt[dealer].digests[holder] for dealer in near},
        )

    def _list_survivors(self) -> list[ServerOutput]:
        if problem := self._too_few(self._survivors, self._dealt, "sent their vectors"):
            return problem
        names = tuple(sorted(self._survivors))
        if not self._known_roster.graph.is_connected(names):
            return self._fail("the survivors are not connected as neighbours; use a larger degree")
        listed = SurvivorsListed(context=self._context, survivors=names)
        return self._enter(Phase.CONFIRMATIONS, dict.fromkeys(names, listed))

    def _list_confirmations(self) -> list[ServerOutput]:
        if problem := self._too_few(self._signatures, self._survivors, "confirmed the survivors"):
            return problem
        signatures = {member: self._signatures[member] for member in sorted(self._signatures)}
        listed = ConfirmationsListed(context=self._context, signatures=signatures)
        return self._enter(Phase.REVEALS, dict.fromkeys(signatures, listed))

    def _open(self) -> list[ServerOutput]:
        if len(self._revealed) < self.terms.threshold:  # what the others revealed is spent
            for member in self._signatures:
                if member not in self._revealed:
                    self._accused.setdefault(
                        member, "confirmed the survivors, and revealed nothing"
                    )
                    self._wrong[member] = None
        if problem := self._too_few(self._revealed, self._signatures, "revealed right shares"):
            return problem
        survivors = tuple(sorted(self._survivors))
        try:
            values = opened_sum(
                self._known_roster, self._total, tuple(self._dealt), survivors, self._revealed
            )
        except SumDoesNotOpen as unopened:
            among = tuple(unopened.accused) or survivors
            return self._fail(unopened.reason, unopened.accused, among)
        self.phase = Phase.OVER
        accused = self._accused.copy()
        return [SumOpened(context=self._context, members=survivors, values=values, accused=accused)]

    def _enter(self, phase: Phase, messages: dict[ClientId, ToMember]) -> list[ServerOutput]:
        """Send to those that are not lost, and wait for them."""
        self.phase = phase
        self._awaited = {member: None for member in messages if member not in self._lost}
        return [Send(to=member, message=messages[member]) for member in self._awaited]

    def _too_few(
        self, answered: Collection[ClientId], asked: Collection[ClientId], did: str
    ) -> list[ServerOutput]:
        if len(answered) >= self.terms.threshold:
            return []
        missing = sorted(member for member in asked if member not in answered)
        return self._fail(
            f"{len(answered)} of {len(self.terms.members)} members {did}; needed: "
            f"{self.terms.threshold}. Missing: {', '.join(missing) or 'those who left before'}",
            among=tuple(sorted(self._wrong)),
        )

    def _fail(
        self,
        reason: str,
        accused: dict[ClientId, str] | None = None,
        among: tuple[ClientId, ...] = (),
    ) -> list[ServerOutput]:
        self.phase = Phase.OVER
        self._awaited.clear()
        failed = RoundFailed(
            context=self._context,
            reason=reason,
            accused=self._accused | (accused or {}),
            among=among,
        )
        there = [member for member in self.terms.members if member not in self._lost]
        return [*(Send(to=member, message=failed) for member in there), failed]
