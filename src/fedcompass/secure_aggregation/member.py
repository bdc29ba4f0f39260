"""A site that takes part in secure rounds: one at a time, each merge at most once."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcompass.errors import CheckpointError, EncodingError, MessageRefused
from fedcompass.secure_aggregation.member_round import MemberRound
from fedcompass.secure_aggregation.messages import FromMember, KeysAdvertised, Signer, ToMember
from fedcompass.secure_aggregation.shares import Entropy
from fedcompass.secure_aggregation.terms import Terms
from fedcompass.vocabulary import ClientId

__all__ = ["MaskingMember"]


class MaskingMember:
    """Begins rounds, and remembers over restarts which merges it has begun.

    A round's secrets live in memory only. After a restart the open round is over for this member:
    it can neither answer in it nor begin it anew, so no mask ever covers two vectors.
    """

    def __init__(self, name: ClientId, identity: Signer, entropy: Entropy) -> None:
        self.name = name
        self._identity, self._entropy = identity, entropy
        self._last_merges: dict[str, int] = {}  # by run; only ever rise
        self._round: MemberRound | None = None  # of the merge that was begun last

    def begin(
        self, terms: Terms, values: NDArray[np.floating[Any]], weight: float
    ) -> KeysAdvertised:
        """Enter a round with weight · values; what was open before is given up.

        Write `to_json()` to disk before the keys are sent.

        Raises:
            MessageRefused: the merge, or a later one, was begun before, or is not for this member.
            EncodingError: the vector has another length, or values beyond the clip.
        """
        last = self._last_merges.get(terms.run, -1)
        if terms.merge <= last:
            raise MessageRefused(
                f"{self.name!r} was asked to begin merge {terms.merge} of run {terms.run!r}; "
                f"allowed: {last + 1} or later, because it has begun {last}. Open a new round"
            )
        if self.name not in terms.members:
            raise MessageRefused(f"{self.name!r} is not among the members {list(terms.members)}")
        if values.shape != (terms.length,):
            raise EncodingError(
                f"the vector of {self.name!r} has shape {list(values.shape)}; "
                f"allowed: [{terms.length}]"
            )
        words = terms.encoding.encode(values, weight)
        self._last_merges[terms.run] = terms.merge
        self._round = MemberRound(terms, self.name, words, self._identity, self._entropy)
        return self._round.keys

    def handle(self, message: ToMember) -> list[FromMember]:
        """Take in one message of the server and return the answer, if there is one.

        Raises:
            MessageRefused: it does not belong to the open round and its phase, or cannot be true;
                nothing was changed.
        """
        if self._round is None:
            raise MessageRefused(
                f"{type(message).__name__} came to {self.name!r}, which is in no round; a restart "
                "ends a member's round. Count it as lost"
            )
        return self._round.handle(message)

    def to_json(self) -> dict[str, Any]:
        """Which merges were begun; no secrets."""
        return {"last_merges": self._last_merges.copy()}

    @classmethod
    def from_json(
        cls, name: ClientId, identity: Signer, entropy: Entropy, saved: Mapping[str, Any]
    ) -> "MaskingMember":
        """The member after a restart, in no round.

        Raises:
            CheckpointError: what was saved is damaged.
        """
        member = cls(name, identity, entropy)
        merges = saved.get("last_merges")
        if not isinstance(merges, dict) or any(
            type(number) is not int for number in merges.values()
        ):
            raise CheckpointError(
                f"the saved rounds of {name!r} are {dict(saved)!r}; allowed: last_merges with a "
                "number for each run. Begin a new run"
            )
        member._last_merges = merges.copy()
        return member
