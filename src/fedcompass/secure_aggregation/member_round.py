"""One member's side of one round: its secrets are made here, and forgotten when it ends.

Bonawitz et al. 2017, "Practical secure aggregation for privacy-preserving machine learning",
Figure 4, with the consistency check.
"""

from dataclasses import dataclass, field, replace
from typing import TypeVar, assert_never

from fedcompass.errors import MessageRefused
from fedcompass.secure_aggregation.fixed_point import Words
from fedcompass.secure_aggregation.key_roster import (
    KeyRoster,
    check_keys,
    check_names,
    mask_private_key,
    seed_digest,
    signed_keys,
)
from fedcompass.secure_aggregation.masks import add_pair_mask, checked, self_mask
from fedcompass.secure_aggregation.messages import (
    ConfirmationsListed,
    FromMember,
    InputMasked,
    KeysAdvertised,
    KeysListed,
    MemberAborted,
    Phase,
    RoundFailed,
    SharesDealt,
    SharesDelivered,
    SharesRevealed,
    Signer,
    SurvivorsConfirmed,
    SurvivorsListed,
    ToMember,
)
from fedcompass.secure_aggregation.primitives import (
    SEED_BYTES,
    agreed_key,
    derived_key,
    opened,
    public_key,
    sealed,
)
from fedcompass.secure_aggregation.shares import Entropy, split
from fedcompass.secure_aggregation.terms import Terms
from fedcompass.vocabulary import ClientId

__all__ = ["MemberRound"]

_T = TypeVar("_T")

_ANSWERS = {
    KeysListed: Phase.KEYS,
    SharesDelivered: Phase.SHARES,
    SurvivorsListed: Phase.INPUTS,
    ConfirmationsListed: Phase.CONFIRMATIONS,
}  # the phase that each message of the server ends


@dataclass(slots=True, repr=False)  # so that no traceback or log shows them
class _Secrets:
    """Of one member in one round; never written anywhere.

    self_seed, mask_seed: shared out; at most one of the two is ever told.
    seal_private: opens what others sealed for this member; never told.
    words: the vector with its check words; gone once it was masked.
    held: by dealer, this member's share of the self seed and of the mask seed.
    """

    self_seed: bytes
    mask_seed: bytes
    mask_private: bytes
    seal_private: bytes
    words: Words | None
    held: dict[ClientId, tuple[bytes, bytes]] = field(default_factory=dict)


class MemberRound:
    """Answers each message of the server once; what does not belong there is refused."""

    def __init__(
        self, terms: Terms, member: ClientId, words: Words, identity: Signer, entropy: Entropy
    ) -> None:
        self.phase = Phase.KEYS
        self._terms, self._context = terms, terms.context
        self._member, self._identity, self._entropy = member, identity, entropy
        self._secrets: _Secrets | None = self._fresh_secrets(checked(words, terms))
        self.keys = self._advertised(self._secrets)
        self._roster: KeyRoster | None = None
        self._dealers: tuple[ClientId, ...] = ()
        self._survivors: tuple[ClientId, ...] = ()

    def _fresh_secrets(self, words: Words) -> _Secrets:
        mask_seed = self._entropy(SEED_BYTES)
        return _Secrets(
            self_seed=self._entropy(SEED_BYTES),
            mask_seed=mask_seed,
            mask_private=mask_private_key(mask_seed, self._context, self._member),
            seal_private=derived_key(
                self._entropy(2 * SEED_BYTES), "seal key", self._context, self._member
            ),
            words=words,
        )

    def _advertised(self, secrets: _Secrets) -> KeysAdvertised:
        keys = KeysAdvertised(
            context=self._context,
            member=self._member,
            mask_key=public_key(secrets.mask_private),
            seal_key=public_key(secrets.seal_private),
            self_seed_digest=seed_digest(secrets.self_seed, self._context, self._member),
            signature=b"",
        )
        return replace(keys, signature=self._identity.sign(signed_keys(keys)))

    def handle(self, message: ToMember) -> list[FromMember]:
        """Take in one message of the server and return the answer, if there is one.

        Raises:
            MessageRefused: it is of another round or phase, or cannot be true; nothing was changed.
        """
        if message.context != self._context:
            raise MessageRefused(
                f"{type(message).__name__} is of another round than {self._member!r} is in; "
                "send each message to its own round"
            )
        if isinstance(message, RoundFailed):
            return self._end()
        secrets, expected = self._secrets, _ANSWERS[type(message)]
        if secrets is None or self.phase is not expected:
            raise MessageRefused(
                f"{type(message).__name__} came to {self._member!r} in phase {self.phase}; "
                f"allowed: once, in phase {expected}"
            )
        match message:
            case KeysListed():
                return [self._on_keys(message, secrets)]
            case SharesDelivered():
                return [self._on_shares(message, secrets)]
            case SurvivorsListed():
                return [self._on_survivors(message)]
            case ConfirmationsListed():
                return [self._on_confirmations(message, secrets)]
            case _:
                assert_never(message)

    def _end(self) -> list[FromMember]:
        self.phase, self._secrets = Phase.OVER, None
        return []

    def _on_keys(self, message: KeysListed, secrets: _Secrets) -> SharesDealt:
        self._check_keys(message.keys)
        roster = KeyRoster(self._terms, message.keys)
        holders = roster.graph.holders(self._member)
        threshold = roster.share_threshold(self._member)
        of_self = split(secrets.self_seed, len(holders), threshold, self._entropy)
        of_key = split(secrets.mask_seed, len(holders), threshold, self._entropy)
        shares = dict(zip(holders, zip(of_self, of_key, strict=True), strict=True))
        self._roster, self.phase = roster, Phase.SHARES
        secrets.held[self._member] = shares[self._member]
        return SharesDealt(
            context=self._context,
            member=self._member,
            sealed={
                holder: sealed(self._seal_key(self._member, holder), b"".join(shares[holder]))
                for holder in roster.graph.neighbours(self._member)
            },
            digests={
                holder: roster.share_digests(self._member, holder, pair)
                for holder, pair in shares.items()
            },
        )

    def _check_keys(self, keys: tuple[KeysAdvertised, ...]) -> None:
        names = [advertised.member for advertised in keys]
        check_names(names, self._terms.members, self._terms, "the members with keys")
        if self.keys not in keys:
            raise MessageRefused(f"the listed keys of {self._member!r} are not the ones it sent")
        check_keys(keys)
        for each in keys:
            if each.context != self._context or not self._identity.verify(
                each.member, signed_keys(each), each.signature
            ):
                raise MessageRefused(f"the keys of {each.member!r} are not signed by it")

    def _on_shares(
        self, message: SharesDelivered, secrets: _Secrets
    ) -> InputMasked | MemberAborted:
        roster, words = _known(self._roster), _known(secrets.words)
        self._check_dealers(message, roster)
        neighbours = sorted(message.sealed)
        for dealer in neighbours:
            pair = self._opened_shares(roster, dealer, message)
            if pair is None:
                return self._abort(dealer)
            secrets.held[dealer] = pair
        self._dealers, self.phase, secrets.words = message.dealers, Phase.INPUTS, None
        return InputMasked(
            context=self._context,
            member=self._member,
            words=self._masked(words, roster, neighbours, secrets),
        )

    def _check_dealers(self, message: SharesDelivered, roster: KeyRoster) -> None:
        check_names(message.dealers, roster.members, self._terms, "the dealers of shares")
        if self._member not in message.dealers:
            raise MessageRefused(f"{self._member!r} is not among the dealers, but dealt shares")
        near = set(roster.graph.neighbours(self._member)) & set(message.dealers)
        if set(message.sealed) != near or set(message.digests) != near:
            raise MessageRefused(
                f"{self._member!r} got shares of {sorted(message.sealed)}; allowed: of its "
                f"neighbours that dealt some, {sorted(near)}"
            )
        if len(near) + 1 < roster.share_threshold(self._member):
            raise MessageRefused(
                f"{len(near) + 1} holders of shares of {self._member!r} are left; allowed: "
                f"{roster.share_threshold(self._member)} or more"
            )

    def _opened_shares(
        self, roster: KeyRoster, dealer: ClientId, message: SharesDelivered
    ) -> tuple[bytes, bytes] | None:
        text = opened(self._seal_key(dealer, self._member), message.sealed[dealer])
        if text is None or len(text) != 2 * SEED_BYTES:
            return None
        pair = text[:SEED_BYTES], text[SEED_BYTES:]
        published = roster.share_digests(dealer, self._member, pair)
        return pair if published == message.digests[dealer] else None

    def _seal_key(self, dealer: ClientId, holder: ClientId) -> bytes:
        roster, secrets = _known(self._roster), _known(self._secrets)
        other = holder if dealer == self._member else dealer
        return agreed_key(
            secrets.seal_private, roster.keys[other].seal_key, "seal", roster.id, dealer, holder
        )

    def _masked(
        self, words: Words, roster: KeyRoster, others: list[ClientId], secrets: _Secrets
    ) -> Words:
        total = words + self_mask(secrets.self_seed, roster.id, self._member, words)
        for other in others:
            public = roster.keys[other].mask_key
            add_pair_mask(total, secrets.mask_private, public, roster.id, self._member, other)
        return total

    def _abort(self, accused: ClientId) -> MemberAborted:
        self._end()
        return MemberAborted(context=self._context, member=self._member, accused=accused)

    def _on_survivors(self, message: SurvivorsListed) -> SurvivorsConfirmed:
        roster = _known(self._roster)
        check_names(message.survivors, self._dealers, self._terms, "the survivors")
        if self._member not in message.survivors:
            raise MessageRefused(f"{self._member!r} is not among the survivors, but sent its input")
        if not roster.graph.is_connected(message.survivors):
            raise MessageRefused(
                "the survivors are not connected as neighbours; each part would have a sum of its "
                "own. Use a larger degree"
            )
        self._survivors, self.phase = message.survivors, Phase.CONFIRMATIONS
        text = roster.survivors_text(self._dealers, self._survivors)
        signature = self._identity.sign(text)
        return SurvivorsConfirmed(context=self._context, member=self._member, signature=signature)

    def _on_confirmations(self, message: ConfirmationsListed, secrets: _Secrets) -> SharesRevealed:
        roster = _known(self._roster)
        names = sorted(message.signatures)
        check_names(names, self._survivors, self._terms, "the members that confirmed")
        text = roster.survivors_text(self._dealers, self._survivors)
        for name, signature in message.signatures.items():
            if not self._identity.verify(name, text, signature):
                raise MessageRefused(f"{name!r} did not confirm the survivors that we were told")
        survive = set(self._survivors)
        revealed = SharesRevealed(
            context=self._context,
            member=self._member,
            self_shares={i: pair[0] for i, pair in secrets.held.items() if i in survive},
            key_shares={i: pair[1] for i, pair in secrets.held.items() if i not in survive},
        )
        self._end()
        return revealed


def _known(value: _T | None) -> _T:
    assert value is not None, "an earlier phase sets it"
    return value
