"""AssignGroup against its rule tried out: every number of steps, on every open group.

The code follows the loops of the paper's Algorithm 2. Here is what they are for, without floor()
and running maxima: count the steps that fit one by one, then choose.
"""

from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedcompass.scheduling.arrival_groups import ArrivalGroup, OpenGroups
from fedcompass.scheduling.pace import Pace
from fedcompass.scheduling.roster import Member

LATEST = 1.2
TOLERANCE = 1e-6  # of a step, and of an instant in seconds

ROUND_PACES = st.sampled_from([0.1, 0.2, 0.25, 0.4, 0.5, 1 / 3, 2 / 3, 1.0, 2.0, 5.0])
CLIENTS = st.tuples(
    ROUND_PACES | st.floats(0.05, 20.0),  # its pace
    st.sampled_from([0.0, 0.0, 0.5, 1.0]) | st.floats(0.0, 30.0),  # how long after the one before
    st.booleans(),  # whether the group that is expected first merges before
)
RANGES = st.tuples(st.integers(1, 20), st.sampled_from([0, 1, 5, 80]))  # Q_min, Q_max - Q_min


def client(name: str, seconds_per_step: float) -> Member:
    return Member(name, 1, pace=Pace(seconds_per_step=seconds_per_step, overhead=0.0))


def fits(steps: int, pace: float, seconds: float) -> bool:
    return (steps - TOLERANCE) * pace <= seconds


def to_join(
    groups: Sequence[ArrivalGroup], allowed: range, pace: float, now: float
) -> tuple[int, int] | None:
    """The group, and the steps that fill its time: the most steps, then the group opened last."""
    choices = [
        (steps, group.id)
        for group in groups
        for steps in allowed
        if fits(steps, pace, group.expected - now)
        and not fits(steps + 1, pace, group.expected - now)
    ]
    return max(choices)[::-1] if choices else None


def to_create(
    ends: Sequence[tuple[float, float]],
    allowed: range,
    pace: float,
    now: float,
    *,
    passes_over: bool,
) -> int:
    """The most steps that end before the last return of an open group, within what is allowed.

    `ends` are the open groups: when each ends, and its fastest client's time for the most steps.
    Passed over are returns by which more steps than the most could end.
    """
    returns = [end + again for end, again in ends if end - now > TOLERANCE]
    if passes_over:
        returns = [at for at in returns if not fits(allowed[-1] + 1, pace, at - now)]
    if not returns:
        return allowed[-1]
    in_time = [steps for steps in allowed if fits(steps, pace, max(returns) - now)]
    return max(in_time, default=allowed[0])


def check_assignments(
    steps: tuple[int, int],
    clients: Sequence[tuple[float, float, bool]],
    *,
    join_up_to: float = 1.0,
    aim_at_deadline: bool = False,
    passes_over: bool = False,
) -> None:
    """Assign the clients one after the other; every group and every number of steps is checked."""
    least, most = steps[0], steps[0] + steps[1]
    joined_at_most = int(join_up_to * most + TOLERANCE)
    groups = OpenGroups(
        least,
        most,
        LATEST,
        join_up_to=join_up_to,
        aim_at_deadline=aim_at_deadline,
        passes_over=passes_over,
    )
    paces: dict[str, float] = {}
    now = 0.0
    for number, (pace, delay, merges) in enumerate(clients):
        now += delay
        if merges and list(groups):
            groups.close(min(groups, key=lambda group: group.expected))
        present = list(groups)
        ends = [
            (
                group.deadline if aim_at_deadline else group.expected,
                most * min(paces[name] for name in group.awaited),
            )
            for group in present
        ]
        joined = to_join(present, range(least, joined_at_most + 1), pace, now)
        paces[str(number)] = pace
        group, given_steps, opened = groups.assign(client(str(number), pace), now)
        assert str(number) in group.awaited
        if joined is not None:
            assert (group.id, given_steps, opened) == (*joined, False)
            continue
        created = to_create(ends, range(least, most + 1), pace, now, passes_over=passes_over)
        assert (given_steps, opened) == (created, True)
        assert group.id not in {other.id for other in present}
        assert list(groups) == [*present, group], "groups are kept in order of opening"
        seconds = given_steps * pace
        assert (group.expected, group.deadline) == (now + seconds, now + seconds * LATEST)


@settings(max_examples=5 * settings().max_examples)  # each takes a few milliseconds
@given(steps=RANGES, clients=st.lists(CLIENTS, min_size=1, max_size=25))
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
def test_clients_are_assigned_by_the_papers_rule(
    steps: tuple[int, int], clients: list[tuple[float, float, bool]]
) -> None:
    check_assignments(steps, clients)


@settings(max_examples=5 * settings().max_examples)
@given(steps=RANGES, clients=st.lists(CLIENTS, min_size=1, max_size=25))
@example(
    # The third aims at the quick second's return: the first returns after 390 of its steps.
    steps=(20, 80),
    clients=[(1.0, 0.0, False), (0.1, 0.0, False), (0.5, 5.0, False)],
)
def test_clients_are_assigned_by_the_papers_rule_in_the_words_of_its_text(
    steps: tuple[int, int], clients: list[tuple[float, float, bool]]
) -> None:
    check_assignments(steps, clients, passes_over=True)


@given(steps=RANGES, clients=st.lists(CLIENTS, min_size=1, max_size=25), passes_over=st.booleans())
def test_clients_are_assigned_by_the_rule_with_the_habits_of_the_authors(
    steps: tuple[int, int], clients: list[tuple[float, float, bool]], passes_over: bool
) -> None:
    check_assignments(steps, clients, join_up_to=1.2, aim_at_deadline=True, passes_over=passes_over)
