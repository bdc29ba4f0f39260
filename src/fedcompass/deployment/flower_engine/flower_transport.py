"""Flower as the engine: our messages through a ServerApp's Grid, and replies back as they come."""

import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from fedcompass.deployment.wire.messages import Arrays, Facts, Kind, WireArray
from fedcompass.deployment.wire.transport import MessageId, NodeId, Reply
from fedcompass.errors import AnswerTooLarge, FedcompassError, MissingExtra, TransportBroken
from fedcompass.vocabulary import Seconds

try:
    import httpx
    from flwr.app import (
        Array,
        ArrayRecord,
        ConfigRecord,
        Message,
        MessageType,
        MetricRecord,
        RecordDict,
    )
    from flwr.common.constant import SUPERLINK_NODE_ID
    from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
    from flwr.proto.node_pb2 import Node
    from flwr.proto.runtime_pb2 import PullAppMessagesRequest
    from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf

    from fedcompass.deployment.flower_engine.flower_objects import fetch_message
except ImportError:
    raise MissingExtra("flwr", "deploy", "a deployment") from None

if TYPE_CHECKING:
    from flwr.serverapp import Grid

__all__ = ["FlowerTransport", "arrays_of", "facts_of", "record_of"]

_NPY = "numpy.ndarray"  # Flower's name for arrays in the .npy format
_MOST_BYTES = 1 << 32
_PATIENCE: Seconds = 300.0
_T = TypeVar("_T")
_KINDS = {"query": MessageType.QUERY, "train": MessageType.TRAIN}


class FlowerTransport:
    """Carries messages through a Grid.

    A site that was registered by name is known by that name: whatever it calls itself in its
    answers, `site` says what its key proves.

    Replies are fetched by a thread each, so that a site that stops half-way holds up nobody.

    Args:
        grid: the Grid a ServerApp was given.
        most_bytes: a reply that is larger is an error; it is never put together.
        patience: how long a site may take to send a reply once it has begun.
    """

    def __init__(
        self, grid: "Grid", most_bytes: int = _MOST_BYTES, patience: Seconds = _PATIENCE
    ) -> None:
        self._grid = grid
        self._most_bytes, self._patience = most_bytes, patience
        self._fetching: set[MessageId] = set()  # answers that are coming in
        self._fetched: SimpleQueue[Reply] = SimpleQueue()
        self._sender = Node(node_id=SUPERLINK_NODE_ID)
        self._names: dict[NodeId, str] = {}  # of those registered with a name
        self._nodes_of: dict[MessageId, NodeId] = {}  # messages that may still be answered

    def nodes(self) -> set[NodeId]:
        """Who is connected now."""
        infos = _checked(lambda: list(_node_infos(self._grid)))
        self._names.update({node: name for node, name in infos if name})
        return {node for node, _ in infos}

    def push(
        self, node: NodeId, kind: Kind, facts: Facts, arrays: Arrays | None, ttl: Seconds
    ) -> MessageId | None:
        """Send a message; None: no such node."""
        content = RecordDict({"config": ConfigRecord(dict(facts))})
        if arrays is not None:
            content["arrays"] = record_of(arrays)
        message = Message(content, dst_node_id=node, message_type=_KINDS[kind], ttl=ttl)
        identifiers = _checked(lambda: list(self._grid.push_messages([message])))
        if not identifiers or not identifiers[0]:
            return None
        self._nodes_of[identifiers[0]] = node
        return str(identifiers[0])

    def pull(self, messages: Collection[MessageId]) -> list[Reply]:
        """The replies that are here, in the order in which they were complete."""
        waiting = [message for message in messages if message not in self._fetching]
        if waiting:
            self._look_for(waiting)
        replies = []
        while not self._fetched.empty():
            reply = self._fetched.get()
            self._fetching.discard(reply.message)
            if reply.message in messages:  # others were given up; nobody asks for them
                replies.append(reply)
        return replies

    def _look_for(self, messages: list[MessageId]) -> None:
        """Start to fetch the replies that are there, or on their way."""
        client = self._grid._runtime_client  # type: ignore[attr-defined]
        request = PullAppMessagesRequest(message_ids=messages)
        answer = _checked(lambda: client.PullMessages(request))
        for found, tree in zip(answer.messages_list, answer.message_object_trees, strict=True):
            answered = found.metadata.reply_to_message_id
            node = self._nodes_of.pop(answered, found.metadata.src_node_id)
            self._fetching.add(answered)
            threading.Thread(
                target=self._fetch, args=(answered, node, tree, client), daemon=True
            ).start()

    def _fetch(self, answered: MessageId, node: NodeId, tree: Any, client: Any) -> None:
        run = self._grid.run.run_id
        try:
            pull = make_pull_object_fn_protobuf(client.PullObject, self._sender, run)
            message = fetch_message(
                tree, pull, most_bytes=self._most_bytes, patience=self._patience
            )
            reply = self._reply(answered, node, message)
        except Exception as error:
            known = isinstance(error, FedcompassError)
            told = str(error) if known else f"{type(error).__name__}: {error}"
            too_large = isinstance(error, AnswerTooLarge)
            reply = Reply(answered, node, {}, {}, told, too_large)
        with suppress(httpx.HTTPError, RuntimeError):  # it only lets the SuperLink forget it
            client.ConfirmMessageReceived(
                ConfirmMessageReceivedRequest(
                    node=self._sender, run_id=run, message_object_id=tree.object_id
                )
            )
        self._fetched.put(reply)

    def _reply(self, answered: MessageId, node: NodeId, message: Message) -> Reply:
        if message.has_error():
            reason = " ".join((message.error.reason or "").split()) or "no reason was given"
            return Reply(answered, node, {}, {}, f"Flower error {message.error.code}: {reason}")
        try:
            facts = facts_of(message.content)
            arrays = arrays_of(message.content)
        except (TypeError, ValueError) as error:
            return Reply(answered, node, {}, {}, f"malformed answer: {error}")
        if node in self._names:
            facts["site"] = self._names[node]
        return Reply(answered, node, arrays, facts, None)


def record_of(arrays: Arrays) -> ArrayRecord:
    """Our arrays as Flower's, without a copy of their bytes."""
    return ArrayRecord(
        {
            name: Array(dtype=array.dtype, shape=array.shape, stype=_NPY, data=array.data)
            for name, array in arrays.items()
        }
    )


def arrays_of(content: RecordDict) -> Arrays:
    """The arrays of a message as they came: nothing is parsed here.

    Raises:
        ValueError: an array is not in the .npy format, or two records have the same name in them.
    """
    arrays: Arrays = {}
    for record in content.array_records.values():
        for name, array in record.items():
            if array.stype != _NPY:
                raise ValueError(f"array {name!r} is {array.stype!r}, not {_NPY!r}")
            if name in arrays:
                raise ValueError(f"array {name!r} came twice")
            arrays[name] = WireArray(array.dtype, tuple(array.shape), array.data)
    return arrays


def facts_of(content: RecordDict) -> Facts:
    """Metrics and config of a message in one; lists and bytes, which nobody asked for, are left."""
    facts: Facts = {}
    records: Iterable[ConfigRecord | MetricRecord] = (
        *content.config_records.values(),
        *content.metric_records.values(),
    )
    for record in records:
        for key, value in record.items():
            if isinstance(value, (int, float, str)):
                facts[key] = value
    return facts


def _node_infos(grid: "Grid") -> Iterable[tuple[NodeId, str]]:
    """Ids and registered names; a Grid that knows no names gives ids alone."""
    listed: Callable[[], Iterable[Any]] | None = getattr(grid, "get_nodes", None)
    if listed is None:
        return [(node, "") for node in grid.get_node_ids()]
    return [(info.node_id, info.name) for info in listed()]


def _checked(call: Callable[[], _T]) -> _T:
    """A call to the SuperLink; whatever breaks there is one line of ours."""
    try:
        return call()
    except (httpx.HTTPError, OSError) as error:
        raise TransportBroken(f"the SuperLink does not answer: {error}") from None
