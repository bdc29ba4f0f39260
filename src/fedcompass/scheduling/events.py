"""Facts a scheduler is told. Time arrives on the event; tensors stay with the driver."""

from typing import TypeAlias

from fedcompass.vocabulary import ClientId, GroupId, ModelVersion, Seconds, Steps, TaskId, fact

__all__ = [
    "ClientJoined",
    "ClientLost",
    "DeadlinePassed",
    "Event",
    "MergeFailed",
    "QuarantineLifted",
    "SpoilerFound",
    "TaskLost",
    "UpdateArrived",
    "UpdateRefused",
    "UpdateReturned",
]


@fact
class ClientJoined:
    """A client is ready to train; one that is known already came back and starts over."""

    at: Seconds
    client: ClientId
    samples: int


@fact
class UpdateArrived:
    """A client answered its task and the guard found nothing wrong; the driver holds the tensors.

    `steps_done` may be fewer than asked for; 0 means that the task was lost. `compute_seconds` is
    the time the client spent training, if the driver knows it apart from transfer and waiting.
    """

    at: Seconds
    client: ClientId
    task: TaskId
    steps_done: Steps
    compute_seconds: Seconds | None = None


@fact
class UpdateRefused:
    """The guard refused an answer; the client's task is lost if it was the answer to it."""

    at: Seconds
    client: ClientId
    task: TaskId
    reason: str


@fact
class UpdateReturned:
    """An update was not in the sum of the merge that it was meant for: it waits for the next.

    Only where merges are sums that nobody sees the parts of; the fields are those of its `Fold`.
    """

    at: Seconds
    client: ClientId
    task: TaskId
    staleness: int
    share: float
    steps: Steps


@fact
class MergeFailed:
    """A `Commit` came to nothing: its sum could not be opened, and there is no such version.

    It is told after the event that the merge followed from, before any other; of several merges of
    one event the last first. What waits on from the merge comes back as `UpdateReturned`.

    `untold` are clients of whom one spoils sums and nobody can tell which: a merge of these alone
    waits until another client's update is in it, or an operator speaks (`QuarantineLifted`).
    """

    at: Seconds
    version: ModelVersion
    untold: tuple[ClientId, ...] = ()


@fact
class SpoilerFound:
    """A client was in every sum that failed, and the others' sums are opened: exclude it."""

    at: Seconds
    client: ClientId


@fact
class TaskLost:
    """A client lives but lost its task (an error, a dead worker); it can be asked again."""

    at: Seconds
    client: ClientId
    task: TaskId


@fact
class ClientLost:
    """A client left or died."""

    at: Seconds
    client: ClientId


@fact
class DeadlinePassed:
    """The time that `SetDeadline` gave has come."""

    at: Seconds
    group: GroupId


@fact
class QuarantineLifted:
    """An operator lets a quarantined client back in, or says that sums may be tried again.

    `by` says who, for people.
    """

    at: Seconds
    client: ClientId
    by: str | None = None


Event: TypeAlias = (
    ClientJoined
    | UpdateArrived
    | UpdateRefused
    | UpdateReturned
    | MergeFailed
    | SpoilerFound
    | TaskLost
    | ClientLost
    | DeadlinePassed
    | QuarantineLifted
)
