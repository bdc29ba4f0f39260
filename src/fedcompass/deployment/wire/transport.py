"""How tasks get to sites and answers back: all that the server asks of a network engine."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.deployment.wire.payloads import PayloadFile
from fedcompass.vocabulary import ModelVersion, Seconds, Steps, TaskId

__all__ = [
    "Assignment",
    "Greeting",
    "MessageId",
    "NodeId",
    "Remark",
    "UnreadModel",
    "Reply",
    "Transport",
]

NodeId: TypeAlias = int | str
"""A connected machine, as the engine calls it; over gRPC it is the site's name on the roster."""

MessageId: TypeAlias = str
"""What the engine calls a task that was pushed; its reply carries it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A task for a site.

    steps: how many to train, exactly.
    run: its name, so that a site never mixes up two runs' tasks.
    model: what to start from.
    refused: why the site's answer before this one was refused, if it was.
    steps_before: of all tasks that the site was given before; where its epoch goes on.
    """

    task: TaskId
    steps: Steps
    version: ModelVersion
    run: str
    model: FlatState
    refused: str | None = None
    steps_before: Steps = 0


class UnreadModel(Protocol):
    """A model that a site sent, not read yet; nothing it declares is believed."""

    @property
    def size(self) -> int:
        """How many bytes it has."""
        ...

    @property
    def file(self) -> PayloadFile | None:
        """Where it lies on the server's disk; whoever accepts it may move it. None: in memory."""
        ...

    def state(self, layout: Layout, start: FlatState) -> FlatState:
        """The end model.

        Args:
            layout: the model's.
            start: the model that the task began with.

        Raises:
            LayoutMismatch: it is of another model.
        """
        ...


@dataclass(frozen=True, slots=True)
class Greeting:
    """Who a site says it is.

    site: its name; None: it gave none.
    samples: how many it has; 0: it does not say.
    address: where it connects from, as the engine sees it.
    """

    site: str | None = None
    samples: int = 0
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A site's answer, or the engine's word that there will be none; no value of it is trusted.

    What is None was not said.

    message: the task it answers.
    error: one line: the site raised, is gone, or the message expired.
    greeting: who answers, where it is told with an answer.
    task, version: the assignment's, echoed.
    seconds: of computing.
    epsilon, delta: what the site has spent of its privacy budget.
    budget_spent: the site takes no further part; the error says why.
    """

    message: MessageId
    node: NodeId
    error: str | None = None
    greeting: Greeting = Greeting()
    payload: UnreadModel | None = None
    task: TaskId | None = None
    version: ModelVersion | None = None
    steps_done: Steps | None = None
    seconds: Seconds | None = None
    epsilon: float | None = None
    delta: float | None = None
    budget_spent: bool = False


class Remark(NamedTuple):
    """What an operator should read about a node in the run's audit."""

    node: NodeId
    what: str
    why: str


class Transport(Protocol):
    """Carries tasks. Every call returns soon; a broken engine raises `FedcompassError`.

    A call of `nodes` or `pull` says that what was pulled before is on disk: a site may then be
    told that its answer was taken in.
    """

    def nodes(self) -> set[NodeId]:
        """Who is connected now."""
        ...

    def greeting(self, node: NodeId) -> Greeting | None:
        """Who a node said it is when it came; None: it tells that with its first answer."""
        ...

    def is_revoked(self, node: NodeId) -> bool:
        """Whether a node may not come back: the operator does not want it."""
        ...

    def confirm(self, run: str, tasks: Collection[TaskId]) -> None:
        """The answers to these tasks of a resumed run are on disk: sites may be told that, too."""
        ...

    def departures(self) -> list[Reply]:
        """Sites that have said since the last call, unasked, that they take no further part."""
        ...

    def remarks(self) -> list[Remark]:
        """What the audit should say about nodes, since the last call."""
        ...

    def push(self, node: NodeId, assignment: Assignment) -> MessageId | None:
        """Send a task; None: no such node."""
        ...

    def pull(self, messages: Collection[MessageId]) -> list[Reply]:
        """The replies to these tasks that are here, in the order of arrival where known.

        Never waits. A reply is handed out once.
        """
        ...
