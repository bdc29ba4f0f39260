"""The order of moments in virtual time."""

from hypothesis import given
from hypothesis import strategies as st

from fedcompass.simulation.event_queue import EventQueue, Moment


def popped(queue: EventQueue[str]) -> list[str]:
    return [queue.pop().what for _ in range(len(queue))]


def test_moments_come_in_order_of_time() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.add_arrival(3.0, 1, "arrival")
    queue.add_change(1.0, "join")
    queue.add_deadline(2.0, 1, "deadline")
    assert len(queue) == 3
    assert popped(queue) == ["join", "deadline", "arrival"]
    assert len(queue) == 0


def test_at_one_instant_arrivals_come_first_then_deadlines_then_changes() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.add_change(5.0, "leave")
    queue.add_change(5.0, "join")
    queue.add_deadline(5.0, 2, "deadline of group 2")
    queue.add_deadline(5.0, 1, "deadline of group 1")
    queue.add_arrival(5.0, 8, "task 8")
    queue.add_arrival(5.0, 3, "task 3")
    assert popped(queue) == [
        "task 3",
        "task 8",
        "deadline of group 1",
        "deadline of group 2",
        "leave",
        "join",
    ]


def test_a_moment_keeps_its_own_time() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.add_deadline(5.0, 1, "deadline")
    queue.add_arrival(5.0 + 5e-7, 1, "arrival")
    assert queue.peek() == 5.0 + 5e-7
    assert queue.pop() == Moment(5.0 + 5e-7, "arrival")
    assert queue.peek() == 5.0
    assert queue.pop() == Moment(5.0, "deadline")


def test_arrivals_an_instant_apart_come_in_the_order_of_their_tasks_and_later_ones_do_not() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.add_arrival(5.0, 9, "task 9")
    queue.add_arrival(5.0 + 9e-7, 2, "task 2")
    queue.add_arrival(5.0 + 3e-6, 1, "task 1")
    assert popped(queue) == ["task 2", "task 9", "task 1"]


def test_a_deadline_between_two_arrivals_parts_them() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.add_arrival(5.0, 9, "before")
    queue.add_deadline(5.0 - 6e-7, 1, "deadline")  # handled until 5 + 4e-7
    queue.add_arrival(5.0 + 9e-7, 2, "late")
    assert popped(queue) == ["before", "deadline", "late"]


def test_an_arrival_added_while_its_instant_is_served_takes_its_place() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.add_arrival(5.0, 1, "task 1")
    queue.add_arrival(5.0, 4, "task 4")
    assert queue.pop().what == "task 1"
    assert not queue.between_instants
    assert queue.peek() == 5.0
    queue.add_arrival(5.0, 3, "task 3")
    queue.add_arrival(5.0, 9, "task 9")
    queue.add_arrival(6.0, 2, "task 2")
    queue.add_deadline(5.0, 1, "deadline")
    assert len(queue) == 5
    assert popped(queue) == ["task 3", "task 4", "task 9", "deadline", "task 2"]
    assert queue.between_instants


@st.composite
def moments(draw: st.DrawFn) -> list[tuple[str, float, int]]:
    """Arrivals, deadlines and changes at a few instants, some of them nearly equal."""
    times = st.sampled_from([1.0, 1.0 + 4e-7, 2.0 - 8e-7, 2.0, 2.0 + 1e-6, 3.0])
    kinds = st.sampled_from(["arrival", "deadline", "change"])
    drawn = draw(st.lists(st.tuples(kinds, times), max_size=12))
    order = draw(st.permutations(range(len(drawn))))
    return [(kind, at, number) for (kind, at), number in zip(drawn, order, strict=True)]


def fill(queue: EventQueue[str], entries: list[tuple[str, float, int]]) -> None:
    for kind, at, number in entries:
        match kind:
            case "arrival":
                queue.add_arrival(at, number, f"{kind} {number}")
            case "deadline":
                queue.add_deadline(at, number, f"{kind} {number}")
            case _:
                queue.add_change(at, f"{kind} {number}")


@given(moments(), st.integers(0, 12))
def test_a_queue_filled_anew_between_instants_goes_on_in_the_same_order(
    entries: list[tuple[str, float, int]], taken: int
) -> None:
    queue: EventQueue[str] = EventQueue()
    fill(queue, entries)
    while len(queue) and (taken > 0 or not queue.between_instants):
        queue.pop()
        taken -= 1
    again: EventQueue[str] = EventQueue()
    for moment in queue.moments():
        kind, number = moment.what.split()
        fill(again, [(kind, moment.at, int(number))])
    assert popped(again) == popped(queue)


@given(moments())
def test_nothing_is_lost_and_time_never_steps_back_by_more_than_an_instant(
    entries: list[tuple[str, float, int]],
) -> None:
    queue: EventQueue[str] = EventQueue()
    fill(queue, entries)
    served = [queue.pop() for _ in range(len(queue))]
    assert sorted(m.what for m in served) == sorted(f"{kind} {n}" for kind, _, n in entries)
    latest = 0.0
    for moment in served:
        assert moment.at >= latest - 1.001e-6
        latest = max(latest, moment.at)


@given(st.permutations(["a", "b", "c", "d"]))
def test_the_order_of_adding_does_not_matter_to_arrivals_and_deadlines(names: list[str]) -> None:
    at = {"a": 1.0, "b": 1.0 + 4e-7, "c": 1.0, "d": 1.0}
    queue: EventQueue[str] = EventQueue()
    for name in names:
        if name == "d":
            queue.add_deadline(at[name], 1, name)
        else:
            queue.add_arrival(at[name], "cba".index(name), name)
    assert popped(queue) == ["c", "b", "a", "d"]
