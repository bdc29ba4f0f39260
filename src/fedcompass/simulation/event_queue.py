"""What happens next in virtual time, with one rule for events at the same instant."""

from heapq import heappop, heappush
from typing import Generic, NamedTuple, TypeVar

from fedcompass.scheduling.pace import INSTANT
from fedcompass.vocabulary import GroupId, Seconds, TaskId

__all__ = ["EventQueue", "Moment"]

T = TypeVar("T")

_ARRIVAL, _DEADLINE, _CHANGE = 0, 1, 2


class Moment(NamedTuple, Generic[T]):
    """Something that happens at a time."""

    at: Seconds
    what: T


class _Entry(NamedTuple, Generic[T]):
    """Compared in this order; `serial` is unique, so `moment` is never compared."""

    due: Seconds
    kind: int
    order: int
    serial: int
    moment: Moment[T]


class EventQueue(Generic[T]):
    """A queue of moments in order of time.

    Arrivals at one instant come in the order in which their tasks were dispatched. A deadline
    comes after the arrivals within an instant of it, deadlines at one instant in the order in
    which their groups were opened; clients join and leave after both.
    """

    def __init__(self) -> None:
        self._heap: list[_Entry[T]] = []
        self._instant: list[
            tuple[TaskId, int, _Entry[T]]
        ] = []  # arrivals at one instant, last first
        self._instant_ends: Seconds = 0.0
        self._serial = 0

    def add_arrival(self, at: Seconds, task: TaskId, what: T) -> None:
        """The answer to a task."""
        self._add(at, _ARRIVAL, task, Moment(at, what))

    def add_deadline(self, at: Seconds, group: GroupId, what: T) -> None:
        """A group's deadline, handled after the arrivals within an instant of it."""
        self._add(at + INSTANT, _DEADLINE, group, Moment(at, what))

    def add_change(self, at: Seconds, what: T) -> None:
        """A client joins or leaves; changes at one instant keep the order in which they came."""
        self._add(at + INSTANT, _CHANGE, 0, Moment(at, what))

    def __len__(self) -> int:
        return len(self._heap) + len(self._instant)

    def pop(self) -> Moment[T]:
        """Take the next moment out; there must be one."""
        if not self._instant:
            first = heappop(self._heap)
            if first.kind != _ARRIVAL:
                return first.moment
            self._gather(first)
        return self._instant.pop()[2].moment

    def peek(self) -> Seconds:
        """The time of the next moment (give or take an instant); there must be one."""
        return self._instant[-1][2].moment.at if self._instant else self._heap[0].moment.at

    @property
    def between_instants(self) -> bool:
        """Whether `moments` keeps the order exactly: no instant is half served."""
        return not self._instant

    def moments(self) -> list[Moment[T]]:
        """All that is queued, in the order in which it was added, while `between_instants`.

        Added to an empty queue in this order, it comes out as it would have here.
        """
        return [entry.moment for entry in sorted(self._heap, key=lambda entry: entry.serial)]

    def _add(self, due: Seconds, kind: int, order: int, moment: Moment[T]) -> None:
        self._serial += 1
        entry = _Entry(due, kind, order, self._serial, moment)
        if self._instant and kind == _ARRIVAL and due <= self._instant_ends:
            self._instant.append((order, self._serial, entry))
            self._instant.sort(reverse=True)
        else:
            heappush(self._heap, entry)

    def _gather(self, first: _Entry[T]) -> None:
        """Collect the arrivals at the first one's instant, as far as no deadline lies between."""
        together = [first]
        while self._heap and self._heap[0].kind == _ARRIVAL:
            if self._heap[0].due > first.due + INSTANT:
                break
            together.append(heappop(self._heap))
        self._instant = sorted(((e.order, e.serial, e) for e in together), reverse=True)
        self._instant_ends = together[-1].due
