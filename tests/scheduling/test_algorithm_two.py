"""AssignGroup against Algorithm 2 as the paper writes it: loops over all groups, nothing clever."""

from dataclasses import dataclass, field
from math import floor

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedcompass.scheduling.arrival_groups import OpenGroups
from fedcompass.scheduling.pace import Pace
from fedcompass.scheduling.roster import Member


@dataclass
class PlainGroup:
    expected: float  # T_a
    latest: float  # T_max
    paces: list[float] = field(default_factory=list)  # S of its clients


@dataclass
class PlainAlgorithm:
    """JoinGroup and CreateGroup line by line; floor() and < are tolerant, as settled."""

    min_steps: int
    max_steps: int
    factor: float
    groups: dict[int, PlainGroup] = field(default_factory=dict)
    last_id: int = 0

    def assign(self, pace: float, now: float) -> tuple[int, int]:
        joined = self.join(pace, now)
        id_, steps = joined if joined else self.create(pace, now)
        self.groups[id_].paces.append(pace)
        return id_, steps

    def join(self, pace: float, now: float) -> tuple[int, int] | None:
        assigned, best = -1, -1
        for id_, group in self.groups.items():
            q = floor((group.expected - now) / pace + 1e-6)
            if q >= self.min_steps and q >= best and q <= self.max_steps:
                assigned, best = id_, q
        return (assigned, best) if assigned != -1 else None

    def create(self, pace: float, now: float) -> tuple[int, int]:
        assigned = -1
        for group in self.groups.values():
            if now < group.expected - 1e-6:
                returns = group.expected + min(group.paces) * self.max_steps
                assigned = max(assigned, floor((returns - now) / pace + 1e-6))
        if 0 <= assigned < self.min_steps:
            assigned = self.min_steps
        elif assigned < 0 or assigned > self.max_steps:
            assigned = self.max_steps
        self.last_id += 1
        seconds = assigned * pace
        self.groups[self.last_id] = PlainGroup(now + seconds, now + seconds * self.factor)
        return self.last_id, assigned


ROUND_PACES = st.sampled_from([0.1, 0.2, 0.25, 0.4, 0.5, 1 / 3, 2 / 3, 1.0, 2.0, 5.0])
CLIENTS = st.tuples(
    ROUND_PACES | st.floats(0.05, 20.0),  # its pace
    st.sampled_from([0.0, 0.0, 0.5, 1.0]) | st.floats(0.0, 30.0),  # how long after the one before
    st.booleans(),  # whether the group that is expected first merges before
)


@settings(max_examples=5 * settings().max_examples)  # each takes a millisecond
@given(
    steps=st.tuples(st.integers(1, 20), st.sampled_from([0, 1, 5, 80])),
    clients=st.lists(CLIENTS, min_size=1, max_size=25),
)
@example(
    # Three groups: the last one is opened for the return of the second, not of the first.
    steps=(20, 80),
    clients=[(0.1, 2.0, False), (1.0, 0.0, False), (7.0, 0.0, False)],
)
@example(
    # The third joins the first one's group and is faster: the fourth's aims at its return.
    steps=(20, 80),
    clients=[(0.4, 0.0, False), (0.1, 0.0, False), (0.2, 30.0, True), (1.0, 0.0, False)],
)
def test_clients_are_assigned_as_by_the_papers_algorithm(
    steps: tuple[int, int], clients: list[tuple[float, float, bool]]
) -> None:
    min_steps, max_steps = steps[0], steps[0] + steps[1]
    plain = PlainAlgorithm(min_steps, max_steps, 1.2)
    ours = OpenGroups(min_steps, max_steps, 1.2)
    now = 0.0
    for number, (pace, delay, merges) in enumerate(clients):
        now += delay
        if merges and plain.groups:
            soonest = min(plain.groups, key=lambda id_: plain.groups[id_].expected)
            del plain.groups[soonest]
            closed = ours.get(soonest)
            assert closed is not None
            ours.close(closed)
        member = Member(str(number), 1, pace=Pace(seconds_per_step=pace, overhead=0.0))
        group, given_steps, _ = ours.assign(member, now)
        assert (group.id, given_steps) == plain.assign(pace, now)
        assert (group.expected, group.latest) == (
            plain.groups[group.id].expected,
            plain.groups[group.id].latest,
        )
    assert [group.id for group in ours] == list(plain.groups)
