"""A ServerApp's Grid as our `Transport`: three of its public calls, and nothing below them.

A train message's config has `steps`, `steps_before` (of all tasks that the client was given
before), `task`, `version`, `run`, `protocol`, perhaps `refused` (why the answer before was),
`server-round` and what the project adds. An answer has `num-examples`;
`steps_done`, `seconds` (of computing), `site`, `epsilon`, `delta` and echoes may be missing.
"""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from flwr.app import ArrayRecord, Message, MessageType
from flwr.serverapp import Grid

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.deployment.wire.short_texts import one_line
from fedcompass.deployment.wire.transport import (
    Assignment,
    Greeting,
    MessageId,
    NodeId,
    Remark,
    Reply,
)
from fedcompass.errors import TransportBroken
from fedcompass.flower.background import in_background
from fedcompass.flower.records import (
    Config,
    Facts,
    RecordPayload,
    content_of,
    facts_of,
    number,
    record_of,
    whole,
)
from fedcompass.vocabulary import ClientId, ModelVersion, Seconds, Steps, TaskId

__all__ = ["GridTransport"]

_PROTOCOL = 1  # rises when the meaning of a message changes
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Task:
    """A train message that was pushed."""

    node: NodeId
    steps: Steps


class GridTransport:
    """Carries messages through a Grid.

    A ClientApp is asked nothing but tasks: it tells its `num-examples` with its first answer.

    Args:
        grid: the one a ServerApp was given.
        layout: the model's.
        config: what every train message has besides our own facts, such as a learning rate.
        ttl: how long Flower may deliver a message.
    """

    def __init__(self, grid: Grid, layout: Layout, config: Config, ttl: Seconds) -> None:
        self._grid, self._layout, self._config, self._ttl = grid, layout, config, ttl
        self._encoded: tuple[ModelVersion, ArrayRecord] | None = None  # the version pushed last
        self._names: dict[NodeId, str] = {}  # of SuperNodes that were registered with a name
        self._tasks: dict[MessageId, _Task] = {}  # not answered yet
        self._known: dict[ClientId, int] = {}  # samples of those that need not be asked
        # A pull waits for a reply that is half sent; no deadline may wait with it.
        self._pulling: Future[list[Message]] | None = None

    def recognise(self, samples: Mapping[ClientId, int]) -> None:
        """A resumed run's clients: who is there under the same name or number has not changed."""
        self._known = dict(samples)

    def nodes(self) -> set[NodeId]:
        """Who is connected now."""
        infos = _checked(lambda: list(self._grid.get_nodes()))
        self._names.update({info.node_id: info.name for info in infos if info.name})
        return {info.node_id for info in infos}

    def is_revoked(self, _: NodeId) -> bool:
        """Flower decides who takes part: never."""
        return False

    def confirm(self, run: str, tasks: Collection[TaskId]) -> None:
        """Nothing to do: a Flower client waits for no receipt."""

    def departures(self) -> list[Reply]:
        """None: a Flower client that leaves just goes."""
        return []

    def remarks(self) -> list[Remark]:
        """None: what Flower takes in is its own affair."""
        return []

    def greeting(self, node: NodeId) -> Greeting | None:
        """Who a client of a resumed run is; None: it has to answer a task first."""
        name = self._names.get(node, str(node))
        samples = self._known.pop(name, None)  # once: one that was given up has to show it works
        return None if samples is None else Greeting(name, samples)

    def push(self, node: NodeId, assignment: Assignment) -> MessageId | None:
        """Send a train message; None: no such node."""
        config = {**self._config, **_config_of(assignment)}
        content = content_of(config, self._arrays(assignment.version, assignment.model))
        message = Message(content, int(node), MessageType.TRAIN, ttl=self._ttl)
        pushed = _checked(lambda: list(self._grid.push_messages([message])))
        if not pushed or not pushed[0]:
            return None
        self._tasks[pushed[0]] = _Task(node, assignment.steps)
        return pushed[0]

    def _arrays(self, version: ModelVersion, model: FlatState) -> ArrayRecord:
        if self._encoded is None or self._encoded[0] != version:
            self._encoded = (version, record_of(self._layout, model))
        return self._encoded[1]

    def pull(self, messages: Collection[MessageId]) -> list[Reply]:
        """The replies that have come since the last call."""
        replies = []
        if self._pulling is not None and self._pulling.done():
            found, self._pulling = _checked(self._pulling.result), None
            # What a reply says it answers is its sender's word: perhaps nothing that was asked.
            replies = [
                self._reply(r) for r in found if r.metadata.reply_to_message_id in self._tasks
            ]
        waiting = [message for message in messages if message in self._tasks]
        if waiting and self._pulling is None:
            self._pulling = in_background(lambda: list(self._grid.pull_messages(waiting)))
        return replies

    def _reply(self, message: Message) -> Reply:
        answered = message.metadata.reply_to_message_id
        task = self._tasks.pop(answered)
        if message.has_error():
            reason = one_line(message.error.reason or "no reason was given")
            why = f"Flower error {message.error.code}: {reason}"
            return Reply(message=answered, node=task.node, error=why)
        facts = facts_of(message.content)
        steps = facts.get("steps_done", task.steps)  # who honours `steps` need not say
        site = self._names.get(task.node, facts.get("site"))
        return Reply(
            message=answered,
            node=message.metadata.src_node_id,
            error=_protocol_problem(facts),
            greeting=Greeting(
                site if isinstance(site, str) else None,
                whole(facts.get("samples", facts.get("num-examples"))) or 0,
            ),
            payload=RecordPayload(message.content),
            task=_echo(facts, "task"),
            version=_echo(facts, "version"),
            steps_done=whole(steps),
            seconds=number(facts.get("seconds")),
            epsilon=number(facts.get("epsilon")),
            delta=number(facts.get("delta")),
            budget_spent=bool(facts.get("budget_spent")),
        )


def _config_of(assignment: Assignment) -> Facts:
    config: Facts = {
        "server-round": assignment.version + 1,
        "steps": assignment.steps,
        "steps_before": assignment.steps_before,
        "task": assignment.task,
        "version": assignment.version,
        "run": assignment.run,
        "protocol": _PROTOCOL,
    }
    return config if assignment.refused is None else {**config, "refused": assignment.refused}


def _protocol_problem(facts: Facts) -> str | None:
    said = facts.get("protocol", _PROTOCOL)
    if said == _PROTOCOL:
        return None
    return f"speaks protocol {str(said)[:20]!r}, this server {_PROTOCOL}; upgrade the older"


def _echo(facts: Facts, name: str) -> int | None:
    """A number of ours that an answer repeats; -1: it says something else there."""
    if name not in facts:
        return None
    said = whole(facts[name])
    return -1 if said is None else said


def _checked(call: Callable[[], _T]) -> _T:
    """A call to the SuperLink; whatever breaks there is one line of ours."""
    try:
        return call()
    except Exception as error:  # Flower does not say which errors its Grid raises
        why = one_line(f"{type(error).__name__}: {error}")
        raise TransportBroken(f"the SuperLink does not answer: {why}") from error
