"""Our messages as Flower's and back: nothing parsed, nothing invented, identity from the key."""

from collections.abc import Iterable
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Error,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import Metadata as ProtoMetadata
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.task_identity import TaskIdentity

from fedcompass.deployment.flower_engine.flower_transport import FlowerTransport, arrays_of
from fedcompass.deployment.wire.messages import WireArray, train_facts
from fedcompass.deployment.wire.transport import Reply
from fedcompass.errors import TransportBroken

NODE = 7
TENSOR = Array(np.arange(6, dtype=np.float32).reshape(2, 3))
WIRE = WireArray("float32", (2, 3), TENSOR.data)


class Grid:
    """A Grid and the SuperLink behind it, in memory; parts of a reply can be held back."""

    def __init__(self, names: dict[int, str]) -> None:
        self.names = names
        self.pushed: dict[str, Message] = {}
        self.replies: dict[str, ObjectTree] = {}  # not handed out yet, by what they answer
        self.contents: dict[str, bytes] = {}
        self.held_back: set[str] = set()
        self.confirmed: list[str] = []
        self.run = SimpleNamespace(run_id=1)

    @property
    def _runtime_client(self) -> "Grid":
        return self

    def get_nodes(self) -> list[NodeInfo]:
        return [NodeInfo(node_id=node, name=name) for node, name in self.names.items()]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            known = message.metadata.dst_node_id in self.names
            ids.append(f"m{len(self.pushed)}" if known else "")
            if known:
                message.metadata.__dict__["_message_id"] = ids[-1]
                self.pushed[ids[-1]] = message
        return ids

    def answer(self, message: str, reply: Message) -> ObjectTree:
        """A site has answered."""
        self.contents |= {k: v.deflate() for k, v in get_all_nested_objects(reply).items()}
        self.replies[message] = get_object_tree(reply)
        return self.replies[message]

    def PullMessages(self, request: Any) -> PullAppMessagesResponse:  # noqa: N802
        found = {m: self.replies.pop(m) for m in request.message_ids if m in self.replies}
        protos = [
            ProtoMessage(metadata=ProtoMetadata(reply_to_message_id=m, src_node_id=NODE))
            for m in found
        ]
        trees = list(found.values())
        return PullAppMessagesResponse(messages_list=protos, message_object_trees=trees)

    def PullObject(self, request: Any) -> PullObjectResponse:  # noqa: N802
        there = request.object_id not in self.held_back
        content = self.contents.get(request.object_id, b"") if there else b""
        return PullObjectResponse(
            object_found=request.object_id in self.contents,
            object_available=there,
            object_content=content,
        )

    def ConfirmMessageReceived(self, request: Any) -> None:  # noqa: N802
        self.confirmed.append(request.message_object_id)


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> Grid:
    monkeypatch.setattr(TaskIdentity, "_run_id", 1)
    monkeypatch.setattr(TaskIdentity, "_node_id", SUPERLINK_NODE_ID)
    monkeypatch.setattr(TaskIdentity, "_task_id", 1)
    return Grid({NODE: "north"})


@pytest.fixture
def transport(grid: Grid) -> FlowerTransport:
    made = FlowerTransport(grid)  # type: ignore[arg-type]
    assert made.nodes() == {NODE}
    return made


def push(transport: FlowerTransport, task: int = 1) -> str:
    facts = train_facts(steps=5, task=task, version=0, run="r")
    message = transport.push(NODE, "train", facts, {"w": WIRE}, 60.0)
    assert message is not None
    return message


def answer(grid: Grid, message: str, **records: Any) -> ObjectTree:
    return grid.answer(message, Message(RecordDict(records), reply_to=grid.pushed[message]))


def pulled(transport: FlowerTransport, *messages: str, count: int = 1) -> list[Reply]:
    """The first replies to come, in their order; replies are fetched by threads."""
    replies: list[Reply] = []
    until = monotonic() + 30
    while len(replies) < count and monotonic() < until:
        replies += transport.pull(messages)
        sleep(0.01)
    return replies


def test_a_task_is_an_ordinary_flower_train_message(grid: Grid, transport: FlowerTransport) -> None:
    sent = grid.pushed[push(transport)]
    assert sent.metadata.message_type == MessageType.TRAIN
    assert sent.metadata.dst_node_id == NODE
    assert sent.content["config"]["steps"] == 5
    record = sent.content["arrays"]
    assert isinstance(record, ArrayRecord)
    np.testing.assert_array_equal(record["w"].numpy(), TENSOR.numpy())


def test_an_unknown_node_gives_none(transport: FlowerTransport) -> None:
    assert transport.push(99, "query", {"protocol": 1, "run": "r"}, None, 60.0) is None


def test_metrics_and_config_of_an_answer_come_as_one(
    grid: Grid, transport: FlowerTransport
) -> None:
    message = push(transport)
    metrics = MetricRecord({"steps_done": 5, "seconds": 0.5, "curve": [1.0, 2.0]})
    config = ConfigRecord({"task": 1, "blob": b"x"})
    answer(grid, message, arrays=ArrayRecord({"w": TENSOR}), metrics=metrics, config=config)
    (reply,) = pulled(transport, message)
    assert reply.error is None
    assert reply.message == message
    assert reply.node == NODE
    assert reply.facts == {"steps_done": 5, "seconds": 0.5, "task": 1, "site": "north"}
    assert reply.arrays == {"w": WIRE}
    assert transport.pull([message]) == []
    assert len(grid.confirmed) == 1


def test_a_site_is_what_its_key_was_registered_as_whatever_it_says(
    grid: Grid, transport: FlowerTransport
) -> None:
    message = push(transport)
    answer(grid, message, config=ConfigRecord({"site": "south", "samples": 3}))
    (reply,) = pulled(transport, message)
    assert reply.facts["site"] == "north"


def test_a_site_without_a_registered_name_may_name_itself(grid: Grid) -> None:
    grid.names = {NODE: ""}
    transport = FlowerTransport(grid)  # type: ignore[arg-type]
    transport.nodes()
    message = push(transport)
    answer(grid, message, config=ConfigRecord({"site": "south"}))
    (reply,) = pulled(transport, message)
    assert reply.facts["site"] == "south"


def test_flowers_errors_are_one_line(grid: Grid, transport: FlowerTransport) -> None:
    message = push(transport)
    error = Error(code=ErrorCode.NODE_UNAVAILABLE, reason="gone\n  for good")
    grid.answer(message, Message(error, reply_to=grid.pushed[message]))
    (reply,) = pulled(transport, message)
    assert reply.error == f"Flower error {ErrorCode.NODE_UNAVAILABLE}: gone for good"
    assert reply.arrays == {}


def test_arrays_that_are_not_npy_or_come_twice_are_an_error_not_a_crash(
    grid: Grid, transport: FlowerTransport
) -> None:
    first, second = push(transport, 1), push(transport, 2)
    odd = Array(dtype="float32", shape=(1,), stype="pickle", data=b"x")
    answer(grid, first, arrays=ArrayRecord({"w": odd}))
    answer(grid, second, a=ArrayRecord({"w": TENSOR}), b=ArrayRecord({"w": TENSOR}))
    errors = {r.message: r.error for r in pulled(transport, first, second, count=2)}
    assert errors == {
        first: "malformed answer: array 'w' is 'pickle', not 'numpy.ndarray'",
        second: "malformed answer: array 'w' came twice",
    }


def test_a_site_that_stops_half_way_holds_up_nobody(grid: Grid) -> None:
    transport = FlowerTransport(grid, patience=3600.0)  # type: ignore[arg-type]
    slow, quick = push(transport, 1), push(transport, 2)
    tree = answer(grid, slow, arrays=ArrayRecord({"w": TENSOR}))
    grid.held_back = {next(iter(tree.children)).object_id}
    assert transport.pull([slow, quick]) == []
    answer(grid, quick, config=ConfigRecord({"task": 2}))
    (reply,) = pulled(transport, slow, quick)
    assert reply.message == quick
    grid.held_back = set()
    (late,) = pulled(transport, slow, quick)
    assert late.message == slow
    assert late.arrays == {"w": WIRE}


def test_a_reply_that_never_ends_is_an_error_when_patience_is_over(grid: Grid) -> None:
    transport = FlowerTransport(grid, patience=0.0)  # type: ignore[arg-type]
    message = push(transport)
    tree = answer(grid, message, arrays=ArrayRecord({"w": TENSOR}))
    grid.held_back = {tree.object_id}
    (reply,) = pulled(transport, message)
    assert reply.error == "the answer was not sent to its end in time"
    assert grid.confirmed == [tree.object_id]


def test_a_reply_with_too_many_bytes_is_not_put_together(grid: Grid) -> None:
    transport = FlowerTransport(grid, most_bytes=4096)  # type: ignore[arg-type]
    message = push(transport)
    answer(grid, message, arrays=ArrayRecord({"w": Array(np.zeros(2000, np.float32))}))
    (reply,) = pulled(transport, message)
    assert reply.error == "the answer is larger than 4,096 bytes"
    assert reply.too_large


def test_a_small_reply_that_would_grow_large_is_not_put_together(
    grid: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = FlowerTransport(grid, most_bytes=20_000)  # type: ignore[arg-type]
    message = push(transport)
    # The same chunk named a thousand times: little to send, much to allocate.
    chunks = TENSOR.slice_array() * 1000
    with monkeypatch.context() as patched:
        patched.setattr(Array, "slice_array", lambda _: chunks)
        bomb = Array(dtype="float32", shape=(2, 3), stype="numpy.ndarray", data=TENSOR.data)
        answer(grid, message, arrays=ArrayRecord({"w": bomb}))
    (reply,) = pulled(transport, message)
    assert reply.error == "the answer's arrays are larger than 20,000 bytes"
    assert reply.too_large


def test_a_reply_to_a_message_that_was_given_up_is_dropped(
    grid: Grid, transport: FlowerTransport
) -> None:
    first, second = push(transport, 1), push(transport, 2)
    grid.held_back = {answer(grid, first).object_id}
    assert transport.pull([first]) == []
    answer(grid, second)
    grid.held_back = set()
    (reply,) = pulled(transport, second)
    assert reply.message == second


def test_nothing_is_asked_when_nothing_is_outstanding(transport: FlowerTransport) -> None:
    assert transport.pull([]) == []


def test_arrays_are_handed_on_as_bytes_without_being_parsed() -> None:
    lie = Array(dtype="float64", shape=(10**9,), stype="numpy.ndarray", data=b"not npy")
    assert arrays_of(RecordDict({"a": ArrayRecord({"w": lie})})) == {
        "w": WireArray("float64", (10**9,), b"not npy")
    }


def test_a_superlink_that_is_gone_is_one_error_of_ours(grid: Grid) -> None:
    class Gone(Grid):
        def get_nodes(self) -> list[NodeInfo]:
            raise httpx.ConnectError("refused")

    with pytest.raises(TransportBroken, match="does not answer: refused"):
        FlowerTransport(Gone({})).nodes()  # type: ignore[arg-type]
