"""Take the masks off a sum, with the shares that members revealed."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedcompass.secure_aggregation.fixed_point import Words
from fedcompass.secure_aggregation.key_roster import KeyRoster, mask_private_key, seed_digest
from fedcompass.secure_aggregation.masks import add_pair_mask, opens, self_mask
from fedcompass.secure_aggregation.messages import SharesRevealed
from fedcompass.secure_aggregation.primitives import public_key
from fedcompass.secure_aggregation.shares import combined
from fedcompass.vocabulary import ClientId

__all__ = ["SumDoesNotOpen", "opened_sum"]


class SumDoesNotOpen(Exception):
    """Shares are missing or wrong, or a mask was left over; `accused` says who, where it is known.

    Ends at the round of the server, which says it in `RoundFailed`.
    """

    def __init__(self, reason: str, accused: Mapping[ClientId, str]) -> None:
        super().__init__(reason, accused)
        self.reason, self.accused = reason, dict(accused)


def opened_sum(
    roster: KeyRoster,
    total: Words,
    dealers: Sequence[ClientId],
    survivors: Sequence[ClientId],
    revealed: Mapping[ClientId, SharesRevealed],
) -> NDArray[np.float64]:
    """The survivors' sum. `total`, the sum of their masked vectors, is changed in place.

    Raises:
        SumDoesNotOpen: there is no right sum; none is returned.
    """
    self_shares = {holder: shares.self_shares for holder, shares in revealed.items()}
    key_shares = {holder: shares.key_shares for holder, shares in revealed.items()}
    seeds = {member: _self_seed(roster, member, self_shares) for member in survivors}
    vanished = [dealer for dealer in dealers if dealer not in seeds]
    private = {member: _mask_private(roster, member, key_shares) for member in vanished}
    for member, seed in seeds.items():
        total -= self_mask(seed, roster.id, member, total)
    for member in vanished:
        _remove_pair_masks(roster, total, member, private[member], seeds)
    if not opens(total, roster.terms):
        reason = "a mask was left over in the sum; a member masked wrongly, or was told other keys"
        raise SumDoesNotOpen(reason, {})
    return roster.terms.encoding.decode(total[: roster.terms.length])


def _self_seed(
    roster: KeyRoster, member: ClientId, shares: Mapping[ClientId, Mapping[ClientId, bytes]]
) -> bytes:
    seed = _combined(roster, member, shares)
    published = roster.keys[member].self_seed_digest
    if seed_digest(seed, roster.terms.context, member) != published:
        raise _wrong_dealer(member)
    return seed


def _mask_private(
    roster: KeyRoster, member: ClientId, shares: Mapping[ClientId, Mapping[ClientId, bytes]]
) -> bytes:
    private = mask_private_key(_combined(roster, member, shares), roster.terms.context, member)
    if public_key(private) != roster.keys[member].mask_key:
        raise _wrong_dealer(member)
    return private


def _combined(
    roster: KeyRoster, dealer: ClientId, shares: Mapping[ClientId, Mapping[ClientId, bytes]]
) -> bytes:
    numbered = {
        number: shares[holder][dealer]
        for number, holder in enumerate(roster.graph.holders(dealer), start=1)
        if holder in shares
    }
    needed = roster.share_threshold(dealer)
    if len(numbered) < needed:
        reason = f"{len(numbered)} holders revealed shares of {dealer!r}; needed: {needed}"
        raise SumDoesNotOpen(reason, {})
    return combined(dict(list(numbered.items())[:needed]))


def _wrong_dealer(member: ClientId) -> SumDoesNotOpen:
    said = "dealt shares of another secret than it published"
    return SumDoesNotOpen(f"{member!r} {said}", {member: said})


def _remove_pair_masks(
    roster: KeyRoster,
    total: Words,
    vanished: ClientId,
    private: bytes,
    survivors: Mapping[ClientId, bytes],
) -> None:
    """Cancel the masks that a vanished member's neighbours have with it: add its parts of them."""
    for other in roster.graph.neighbours(vanished):
        if other in survivors:
            public = roster.keys[other].mask_key
            add_pair_mask(total, private, public, roster.id, vanished, other)
