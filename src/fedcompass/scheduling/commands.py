"""What a scheduler asks its driver to do, in order."""

from dataclasses import field
from typing import TypeAlias

from fedcompass.vocabulary import (
    DIRECT,
    GENERAL,
    BufferId,
    ClientId,
    GroupId,
    ModelVersion,
    Seconds,
    Steps,
    TaskId,
    fact,
)

__all__ = [
    "DIRECT",
    "GENERAL",
    "Command",
    "Commit",
    "Discard",
    "Fold",
    "FoldAgain",
    "Hold",
    "Quarantine",
    "SetDeadline",
    "StartTraining",
]


@fact
class StartTraining:
    """Send the model of this version to the client and let it train.

    `steps_before` are those of all tasks it was given before, answered or not: where its next
    samples are.
    """

    at: Seconds
    client: ClientId
    task: TaskId
    steps: Steps
    version: ModelVersion
    group: GroupId | None
    steps_before: Steps = field(default=0, compare=False)  # the commands before say it, too


@fact
class Fold:
    """Add the client's update to a buffer.

    `share` is p_i, the client's share of the samples at this moment; in rounds it is taken of the
    samples at the round's start, the same for all, so a tier's joiner may have more than 1.
    """

    at: Seconds
    client: ClientId
    task: TaskId
    buffer: BufferId
    staleness: int
    share: float
    steps: Steps


@fact
class FoldAgain:
    """Add the client's last update to a buffer once more: it is absent from a merge.

    `task` is the one whose answer that was; `staleness` is that of its model now.
    """

    at: Seconds
    client: ClientId
    task: TaskId
    buffer: BufferId
    staleness: int
    share: float
    steps: Steps


@fact
class Discard:
    """Let go of the client's update: its task was given to learn the pace, not for the model."""

    at: Seconds
    client: ClientId
    task: TaskId
    steps: Steps


@fact
class Commit:
    """Merge these buffers into the global model, which becomes `version`, and empty them.

    `contributions` are the folds that the buffers hold: buffer by buffer, each in the order in
    which they came; what was folded again is not among them.
    """

    at: Seconds
    version: ModelVersion
    buffers: tuple[BufferId, ...]
    contributions: tuple[Fold, ...]


@fact
class Hold:
    """Let these buffers wait for the next merge: they hold updates of too few clients."""

    at: Seconds
    buffers: tuple[BufferId, ...]


@fact
class SetDeadline:
    """Report `DeadlinePassed` for this group at this time.

    `due` tells readers of a journal when the group was planned to be complete: a member that
    answers before then waits by plan, after it for others. It asks for nothing.
    """

    at: Seconds
    group: GroupId
    due: Seconds | None = field(default=None, compare=False)


@fact
class Quarantine:
    """This client gets no more tasks until an operator lifts it, though it leaves and comes back.

    One that comes back is told again.
    """

    at: Seconds
    client: ClientId


Command: TypeAlias = (
    StartTraining | Fold | FoldAgain | Discard | Commit | Hold | SetDeadline | Quarantine
)
