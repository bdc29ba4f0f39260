"""A ServerApp's Grid as our `Transport`: three of its public calls, and nothing below them."""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from flwr.app import ArrayRecord, Message, MessageType
from flwr.serverapp import Grid

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.deployment.wire.messages import Facts, Kind, one_line
from fedcompass.deployment.wire.transport import MessageId, NodeId, Reply
from fedcompass.errors import TransportBroken
from fedcompass.flower.background import in_background
from fedcompass.flower.records import Config, RecordPayload, content_of, facts_of, record_of
from fedcompass.vocabulary import ClientId, ModelVersion, Seconds, Steps

__all__ = ["GridTransport"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Task:
    """A train message that was pushed."""

    node: NodeId
    steps: Steps


class GridTransport:
    """Carries messages through a Grid.

    A stock ClientApp answers no queries. So a query is not sent: it counts as failed at once, and
    the server asks by a task of one step, whose answer has `num-examples`.

    Args:
        grid: the one a ServerApp was given.
        layout: the model's.
        config: what every train message has besides our own facts, such as a learning rate.
    """

    def __init__(self, grid: Grid, layout: Layout, config: Config) -> None:
        self._grid, self._layout, self._config = grid, layout, config
        self._encoded: tuple[ModelVersion, ArrayRecord] | None = None  # the version pushed last
        self._names: dict[NodeId, str] = {}  # of SuperNodes that were registered with a name
        self._tasks: dict[MessageId, _Task] = {}  # not answered yet
        self._queries: dict[MessageId, Reply] = {}  # with the answer to be
        self._known: dict[ClientId, int] = {}  # samples of those that need not be asked
        self._numbers = count()  # of queries
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

    def departures(self) -> list[Reply]:
        """None: a Flower client that leaves just goes."""
        return []

    def push(
        self, node: NodeId, kind: Kind, facts: Facts, model: FlatState | None, ttl: Seconds
    ) -> MessageId | None:
        """Send a message; None: no such node."""
        if kind == "query" or model is None:
            return self._answer_query(node)
        version = int(facts["version"])
        config = {**self._config, "server-round": version + 1, **facts}
        content = content_of(config, self._arrays(version, model))
        message = Message(content, int(node), MessageType.TRAIN, ttl=ttl)
        pushed = _checked(lambda: list(self._grid.push_messages([message])))
        if not pushed or not pushed[0]:
            return None
        self._tasks[pushed[0]] = _Task(node, int(facts["steps"]))
        return pushed[0]

    def _arrays(self, version: ModelVersion, model: FlatState) -> ArrayRecord:
        if self._encoded is None or self._encoded[0] != version:
            self._encoded = (version, record_of(self._layout, model))
        return self._encoded[1]

    def _answer_query(self, node: NodeId) -> MessageId:
        query, name = f"query-{next(self._numbers)}", self._names.get(node, str(node))
        samples = self._known.pop(name, None)  # once: one that was given up has to show it works
        facts: Facts = {} if samples is None else {"site": name, "samples": samples}
        why = "a ClientApp answers no queries" if samples is None else None
        self._queries[query] = Reply(query, node, None, facts, why)
        return query

    def pull(self, messages: Collection[MessageId]) -> list[Reply]:
        """The replies that have come since the last call."""
        replies = [self._queries.pop(query) for query in messages if query in self._queries]
        if self._pulling is not None and self._pulling.done():
            found, self._pulling = _checked(self._pulling.result), None
            # What a reply says it answers is its sender's word: perhaps nothing that was asked.
            replies += [
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
            return Reply(answered, task.node, None, {}, why)
        facts, payload = facts_of(message.content), RecordPayload(message.content)
        facts.setdefault("steps_done", task.steps)  # a ClientApp that honours `steps` need not say
        if task.node in self._names:
            facts["site"] = self._names[task.node]
        return Reply(answered, message.metadata.src_node_id, payload, facts, None)


def _checked(call: Callable[[], _T]) -> _T:
    """A call to the SuperLink; whatever breaks there is one line of ours."""
    try:
        return call()
    except Exception as error:  # Flower does not say which errors its Grid raises
        why = one_line(f"{type(error).__name__}: {error}")
        raise TransportBroken(f"the SuperLink does not answer: {why}") from error
