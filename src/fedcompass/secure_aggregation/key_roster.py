"""The keys that everybody was told, and what follows from them for all: graph, holders, digests."""

from collections.abc import Iterable, Sequence

from fedcompass.errors import MessageRefused
from fedcompass.secure_aggregation.graph import NeighbourGraph
from fedcompass.secure_aggregation.messages import KeysAdvertised, ShareDigests
from fedcompass.secure_aggregation.primitives import (
    KEY_BYTES,
    derived_key,
    digest,
    is_public_key,
)
from fedcompass.secure_aggregation.terms import Terms
from fedcompass.vocabulary import ClientId

__all__ = [
    "KeyRoster",
    "check_keys",
    "check_names",
    "mask_private_key",
    "seed_digest",
    "signed_keys",
]


class KeyRoster:
    """Who is in a round with which keys; the same for members that were told the same.

    id: a digest of terms and keys; all masks, sealed shares and confirmations are bound to it.
    """

    def __init__(self, terms: Terms, keys: Sequence[KeysAdvertised]) -> None:
        self.terms = terms
        self.keys = {advertised.member: advertised for advertised in keys}
        self.members = tuple(self.keys)
        self.id = digest("roster", terms.context, *map(signed_keys, keys))
        self.graph = NeighbourGraph(self.id, self.members, terms.degree)

    def share_threshold(self, dealer: ClientId) -> int:
        """How many shares tell a dealer's secret: the threshold, or most of its neighbourhood."""
        holders = len(self.graph.holders(dealer))
        return self.terms.threshold if holders == len(self.members) else holders // 2 + 1

    def share_digests(
        self, dealer: ClientId, holder: ClientId, shares: tuple[bytes, bytes]
    ) -> ShareDigests:
        """What a dealer publishes of a holder's two shares."""
        self_share, key_share = shares
        return ShareDigests(
            self_share=self.share_digest("self", dealer, holder, self_share),
            key_share=self.share_digest("key", dealer, holder, key_share),
        )

    def share_digest(self, kind: str, dealer: ClientId, holder: ClientId, share: bytes) -> bytes:
        """Of one share. It hides the share, which has 128 random bits."""
        return digest("share", self.id, kind, dealer, holder, share)

    def survivors_text(self, dealers: Sequence[ClientId], survivors: Sequence[ClientId]) -> bytes:
        """What a member signs to confirm who is in the sum."""
        counts = (len(dealers), len(survivors))
        return digest("survivors", self.id, *counts, *dealers, *survivors)


def signed_keys(advertised: KeysAdvertised) -> bytes:
    """What a member signs of the keys it advertises."""
    return digest(
        "keys",
        advertised.context,
        advertised.member,
        advertised.mask_key,
        advertised.seal_key,
        advertised.self_seed_digest,
    )


def mask_private_key(seed: bytes, context: bytes, member: ClientId) -> bytes:
    """The private key of a member's pair masks; the seed is what its shares tell."""
    return derived_key(seed, "mask key", context, member)


def seed_digest(seed: bytes, context: bytes, member: ClientId) -> bytes:
    """What a member publishes of its self-mask's seed."""
    return digest("self seed", context, member, seed)


def check_names(
    names: Sequence[ClientId], known: Sequence[ClientId], terms: Terms, what: str
) -> None:
    """Names must be sorted, known and enough.

    Raises:
        MessageRefused: they are not.
    """
    if list(names) != sorted(set(names)) or not set(names) <= set(known):
        raise MessageRefused(
            f"{what} are {list(names)}; allowed: sorted names, each once, of {list(known)}"
        )
    if len(names) < terms.threshold:
        raise MessageRefused(
            f"{what} are {len(names)} members; allowed: {terms.threshold} or more. "
            "Nothing is unmasked for fewer"
        )


def check_keys(keys: Sequence[KeysAdvertised], taken: Iterable[KeysAdvertised] = ()) -> None:
    """Public keys are ones, and no two are equal, nor one that is taken.

    Raises:
        MessageRefused: naming the member whose key is wrong.
    """
    seen = {key for each in taken for key in (each.mask_key, each.seal_key)}
    for each in keys:
        for key in (each.mask_key, each.seal_key):
            if key in seen or not is_public_key(key):
                raise MessageRefused(
                    f"a key of {each.member!r} is {key[:KEY_BYTES].hex()!r}; "
                    "allowed: fresh X25519 public keys"
                )
            seen.add(key)
