"""What all members of one secure round agree on before it begins."""

from fedcompass.errors import SettingsError
from fedcompass.secure_aggregation.fixed_point import Bits, FixedPoint
from fedcompass.secure_aggregation.graph import default_degree
from fedcompass.secure_aggregation.primitives import digest
from fedcompass.vocabulary import FEWEST_IN_A_SUM, ClientId, fact

__all__ = ["Terms", "terms_for"]


@fact
class Terms:
    """One merge: who is asked, what is summed, and how many must stay.

    run, merge: which merge of which run; never used for a second round.
    members: those that reported ready, in order of their names.
    length: how many values each vector has.
    bits, clip: how values become integers (`FixedPoint`).
    threshold: so many members must remain in every phase, and so many tell a secret that all hold;
        above half, so that no server gets one kind of share from one half, and the other kind from
        the other half.
    degree: neighbours of each member; even, or one less than the members.
    """

    run: str
    merge: int
    members: tuple[ClientId, ...]
    length: int
    bits: Bits
    clip: float
    threshold: int
    degree: int

    def __post_init__(self) -> None:
        count = len(self.members)
        if list(self.members) != sorted(set(self.members)):
            raise SettingsError(f"members is {self.members}; allowed: sorted names, each once")
        if count < FEWEST_IN_A_SUM:
            raise SettingsError(
                f"a secure round has {count} members; allowed: {FEWEST_IN_A_SUM} or more. "
                "Let their updates wait for the next merge"
            )
        lowest = max(FEWEST_IN_A_SUM, count // 2 + 1)
        if not lowest <= self.threshold <= count:
            raise SettingsError(f"threshold is {self.threshold}; allowed: {lowest} to {count}")
        if self.degree != count - 1 and (self.degree % 2 or not 2 <= self.degree < count):
            raise SettingsError(
                f"degree is {self.degree}; allowed: {count - 1}, or an even number from 2 up to it"
            )
        for name, value, least in (("merge", self.merge, 0), ("length", self.length, 1)):
            if value < least:
                raise SettingsError(f"{name} is {value}; allowed: {least} or more")
        _ = self.encoding.scale  # refuses a wrong clip or number of bits

    @property
    def encoding(self) -> FixedPoint:
        """With room for the sum of all members."""
        return FixedPoint(bits=self.bits, clip=self.clip, members=len(self.members))

    @property
    def context(self) -> bytes:
        """A digest of all terms; every message, key and signature of the round is bound to it."""
        encoding = (self.length, self.bits, self.clip.hex())
        bounds = (self.threshold, self.degree)
        return digest("terms", self.run, self.merge, *encoding, *bounds, *self.members)


def terms_for(
    run: str,
    merge: int,
    members: tuple[ClientId, ...],
    length: int,
    *,
    clip: float,
    bits: Bits = 32,
) -> Terms:
    """Terms with the usual threshold, more than two thirds, and the usual number of neighbours."""
    count = len(members)
    return Terms(
        run=run,
        merge=merge,
        members=tuple(sorted(members)),
        length=length,
        bits=bits,
        clip=clip,
        threshold=max(FEWEST_IN_A_SUM, 2 * count // 3 + 1),
        degree=default_degree(count) if count else 0,
    )
