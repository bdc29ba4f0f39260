"""Merges of which only the sum is seen: updates stay with their clients until a merge asks.

The scheduler decides as ever. A `Fold` notes what an update will count for; a `Commit` has the
clients' sum opened, and what was not in it waits for the next merge. A sum that cannot be opened is
no merge (`MergeFailed`): updates whose clients revealed shares for it are lost, since a second sum
with them would give single updates away; the others wait.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcompass.aggregation import ClientMemory, Contribution, FlatState
from fedcompass.aggregation.weighted_sum import WeightedSum
from fedcompass.scheduling.commands import Commit, Fold
from fedcompass.scheduling.roster import MOST_HELD
from fedcompass.vocabulary import FEWEST_IN_A_SUM, GENERAL, ClientId, TaskId

__all__ = [
    "Asked",
    "OpenedSum",
    "SpoilerSearch",
    "SumSource",
    "SummedMerges",
    "state_of_sum",
    "summed_length",
]

_NEEDED = f"a sum has {FEWEST_IN_A_SUM} or more"

Asked = dict[ClientId, dict[TaskId, tuple[float, float]]]
"""Whose updates are to be summed: client, then task, then the weights of trained and averaged."""


@dataclass(frozen=True, slots=True)
class OpenedSum:
    """What became of a merge.

    sums: of the updates that are in it; None: nothing was opened. Integer buffers have no sum.
    clients: whose updates are in it; of one that was not opened, who took part.
    lost: updates that no client has any more, or will offer again.
    notes: what the journal is to know of it, such as what it cost.
    failed: why nothing was opened.
    among: of these one was wrong, so that it was not; empty: nobody was, as far as can be told.
    """

    sums: FlatState | None
    clients: Collection[ClientId] = ()
    lost: Collection[TaskId] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    failed: str = ""
    among: Collection[ClientId] = ()


def summed_length(like: FlatState) -> int:
    """How many values of a model are summed: all but integer buffers."""
    return like.trainable.numel() + like.averaged.numel()


def state_of_sum(values: NDArray[np.float64], like: FlatState) -> FlatState:
    """The values of an opened sum in the dtypes and on the device of a model."""
    sums, split = torch.from_numpy(values).to(like.trainable.device), like.trainable.numel()
    return FlatState(
        sums[:split].to(like.trainable.dtype),
        sums[split:].to(like.averaged.dtype),
        like.counted.clone(),
    )


class SumSource(Protocol):
    """Where sums come from: rounds of simulated clients, or of sites."""

    def keep(self, client: ClientId, task: TaskId, update: FlatState | None) -> None:
        """An update is ready; its tensors are here only where clients are simulated."""
        ...

    def opened(self, number: int, asked: Asked) -> OpenedSum:
        """The sum for a merge, the so-manieth that is tried; may take a while."""
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What a checkpoint has to keep: tensors by name, and JSON facts."""
        ...

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Take over what `state` gave."""
        ...


class SpoilerSearch:
    """Finds who spoils sums, where the failure of one does not tell.

    After a spoiled sum the next ones, which are of new updates, are of fewer clients (never fewer
    than three) and differ. Where one client spoils them, it is in every one that fails: it is found
    once it alone is in all of these, and the sums of the others are opened. So a liar that lies now
    and then finds itself out too, and cannot make another look guilty. With several liars no client
    may be in all that fail; then the search begins again with the last one.
    """

    def __init__(self) -> None:
        self.failures = 0
        self.suspects: list[ClientId] = []  # in every sum that was spoiled; sorted
        self._involved: set[ClientId] = set()  # in any
        self._opened: set[ClientId] = set()  # in sums that were opened since the first was spoiled
        self._since_last: Counter[ClientId] = Counter()  # such sums since the last that was spoiled
        self._named: Counter[ClientId] = Counter()  # sums that a client spoiled and nobody else

    @property
    def is_calm(self) -> bool:
        """Whether all suspects were in so many opened sums that they are asked together again."""
        enough = 2 * self.failures
        return all(self._since_last[one] >= enough for one in self.suspects)

    def chosen(self, present: Collection[ClientId]) -> list[ClientId]:
        """Whose sum is asked for next; empty: it would tell nothing, and one of them is wrong."""
        clients = list(present)
        suspects = [one for one in clients if one in self.suspects]
        if self.is_calm or not suspects:
            return clients
        if len(clients) == FEWEST_IN_A_SUM:
            return [] if self.failures > 1 and set(self.suspects) <= set(clients) else clients
        others = [one for one in clients if one not in self.suspects]
        if self.suspects == suspects and len(suspects) == 1:
            return others  # are their sums opened?
        rank = {one: (self._since_last[one], one) for one in suspects}
        new = [one for one in suspects if one not in self._opened]
        asked = sorted(new or suspects, key=rank.__getitem__)
        half = asked[: (len(asked) + 1) // 2]
        rest = sorted((s for s in suspects if s not in half), key=lambda s: (s in new, rank[s]))
        fill = rest[: max(0, FEWEST_IN_A_SUM - len(others) - len(half))]
        return [one for one in clients if one in {*others, *half, *fill}]

    def note_opened(self, clients: Collection[ClientId]) -> None:
        """A sum of these was opened."""
        if self.suspects:
            self._opened.update(clients)
            self._since_last.update(clients)

    def note_failed(self, clients: Collection[ClientId], among: Collection[ClientId]) -> None:
        """A sum of these was spoiled by one among them; nothing is learned where none did."""
        if not among:
            return
        common = sorted(set(self.suspects) & set(among))
        if not common:
            self._opened, self._named, self._involved = set(), Counter(), set()
        self.suspects = common or sorted(among)
        self._involved.update(clients)
        self.failures += 1
        self._since_last.clear()
        if len(among) == 1:
            self._named.update(among)

    def found(self, present: Collection[ClientId]) -> ClientId | None:
        """Who it is, of those that are here; None: that is not known."""
        if len(self.suspects) != 1 or self.suspects[0] not in present:
            return None
        (one,) = self.suspects
        others = (self._involved & set(present)) - {one}
        return one if others <= self._opened or self._named[one] > 1 else None

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "failures": self.failures,
            "suspects": self.suspects,
            "involved": sorted(self._involved),
            "opened": sorted(self._opened),
            "since_last": dict(self._since_last),
            "named": dict(self._named),
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "SpoilerSearch":
        """What `to_json` gave."""
        made = cls()
        made.failures, made.suspects = saved["failures"], list(saved["suspects"])
        made._involved, made._opened = set(saved["involved"]), set(saved["opened"])
        made._since_last, made._named = Counter(saved["since_last"]), Counter(saved["named"])
        return made


class SummedMerges:
    """Notes what waits, asks for sums, and has them merged."""

    def __init__(self, aggregator: WeightedSum, memory: ClientMemory, source: SumSource) -> None:
        self._aggregator, self._memory, self._source = aggregator, memory, source
        self._waiting: dict[TaskId, Contribution] = {}  # what each ready update counts as
        self._tried = 0  # merges, made or not
        self.search = SpoilerSearch()

    def fold(self, command: Fold, contribution: Contribution, update: FlatState | None) -> float:
        """Note that an update is ready; returns its weight, for the journal."""
        counted = self._memory.taken(command.client, contribution)
        self._source.keep(command.client, command.task, update)
        self._waiting[command.task] = counted
        return self._aggregator.weights(GENERAL, counted)[1]

    def commit(
        self, command: Commit, present: Collection[ClientId]
    ) -> tuple[list[Fold], dict[str, Any]]:
        """Merge the sum of those present; a client that has left took its updates along.

        Returns:
            Updates that wait for the next merge, and notes for the journal; if there is "failed"
            among them, nothing was merged.
        """
        self._tried += 1
        asked: Asked = {}
        for fold in command.contributions:
            if fold.client in present:
                weights = self._aggregator.weights(GENERAL, self._waiting[fold.task])
                asked.setdefault(fold.client, {})[fold.task] = weights
        untold: list[ClientId] = []
        if len(asked) < FEWEST_IN_A_SUM:
            opened = OpenedSum(None, failed=f"{len(asked)} of its clients are here; {_NEEDED}")
        elif clients := self.search.chosen(asked):
            opened = self._source.opened(self._tried, {one: asked[one] for one in clients})
        else:
            opened = OpenedSum(None, failed="not tried, since one of its clients spoils sums")
        if opened.sums is None:
            self.search.note_failed(opened.clients, opened.among)
            if len(asked) >= FEWEST_IN_A_SUM and not self.search.chosen(asked):
                untold = sorted(asked)
            waiting, notes = self._failed(command, asked, opened)
            return waiting, {**notes, **({"untold": untold} if untold else {})}
        self.search.note_opened(opened.clients)
        merged = [fold for fold in command.contributions if fold.client in opened.clients]
        left = [fold for fold in command.contributions if fold.client not in opened.clients]
        counted = [self._waiting[fold.task] for fold in merged]
        self._aggregator.put(GENERAL, opened.sums, counted)
        self._aggregator.commit((GENERAL,))
        lost = [f for f in left if f.client not in asked or f.task in opened.lost]
        for fold in (*merged, *lost):
            del self._waiting[fold.task]
        left_out = {"left_out": sorted(fold.task for fold in left)} if left else {}
        return [fold for fold in left if fold not in lost], {**opened.notes, **left_out}

    def _failed(
        self, command: Commit, asked: Asked, opened: OpenedSum
    ) -> tuple[list[Fold], dict[str, Any]]:
        """Let those wait that were not revealed; of each client no more than would be held."""
        waiting: list[Fold] = []
        count: Counter[ClientId] = Counter()
        for fold in sorted(command.contributions, key=lambda fold: -fold.task):
            if fold.client in asked and fold.task not in opened.lost:
                count[fold.client] += 1
                if count[fold.client] <= MOST_HELD:
                    waiting.insert(0, fold)
        tasks = {fold.task for fold in command.contributions}
        lost = tasks - {fold.task for fold in waiting}
        for task in lost:
            del self._waiting[task]
        return waiting, {
            **opened.notes,
            "failed": opened.failed,
            "members": sorted(opened.clients),
            **({"suspects": self.search.suspects} if opened.among else {}),
            "left_out": sorted(tasks),
            "lost": sorted(lost),
        }

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What waits, for a checkpoint."""
        tensors, facts = self._source.state()
        waiting = [[t, c.staleness, c.share, c.steps] for t, c in self._waiting.items()]
        search = self.search.to_json()
        return tensors, {
            "waiting": waiting,
            "tried": self._tried,
            "search": search,
            "source": facts,
        }

    def restore(
        self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], memory: ClientMemory
    ) -> None:
        """Take over what `state` gave, and a memory that was restored with it."""
        self._memory, self._tried = memory, facts["tried"]
        self.search = SpoilerSearch.from_json(facts["search"])
        self._waiting = {
            task: Contribution(staleness=staleness, share=share, steps=steps)
            for task, staleness, share, steps in facts["waiting"]
        }
        self._source.restore(tensors, facts["source"])
