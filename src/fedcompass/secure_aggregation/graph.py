"""Who masks with whom and holds whose shares: everybody, or so many neighbours each (SecAgg+).

Bell et al. 2020, "Secure single-server aggregation with (poly)logarithmic overhead", Section 3.
"""

import math
from collections.abc import Sequence

from fedcompass.secure_aggregation.primitives import digest
from fedcompass.vocabulary import ClientId

__all__ = ["NeighbourGraph", "default_degree"]


def default_degree(members: int) -> int:
    """Neighbours of each member: four times log2 of the members, or everybody if that is fewer."""
    return min(members - 1, 2 * math.ceil(2 * math.log2(members)))


class NeighbourGraph:
    """A ring in an order that the listed keys decide; each is joined to those next to it."""

    def __init__(self, roster: bytes, members: Sequence[ClientId], degree: int) -> None:
        ring = sorted(members, key=lambda member: digest("ring", roster, member))
        if degree >= len(ring) - 1:
            near = {member: set(ring) - {member} for member in ring}
        else:
            steps = [step for step in range(-(degree // 2), degree // 2 + 1) if step]
            near = {
                member: {ring[(at + step) % len(ring)] for step in steps}
                for at, member in enumerate(ring)
            }
        self._neighbours = {member: tuple(sorted(names)) for member, names in near.items()}

    def neighbours(self, member: ClientId) -> tuple[ClientId, ...]:
        """Whom a member masks with; it is a neighbour of each of its neighbours."""
        return self._neighbours[member]

    def holders(self, member: ClientId) -> tuple[ClientId, ...]:
        """Who holds shares of a member's secrets: its neighbours and itself, in share order."""
        return tuple(sorted((*self._neighbours[member], member)))

    def is_connected(self, members: Sequence[ClientId]) -> bool:
        """Whether these members are one piece; if not, each piece would have a sum of its own."""
        left = set(members)
        reached = [members[0]]
        left.discard(members[0])
        for member in reached:  # grows
            found = [name for name in self._neighbours[member] if name in left]
            left.difference_update(found)
            reached += found
        return not left
