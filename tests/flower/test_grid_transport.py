"""A Grid as a transport: the names stock clients read, and answers of any ClientApp."""

from threading import Event
from time import monotonic, sleep
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from tests.flower.fake_grid import FakeGrid, Net

from fedcompass.aggregation.layout import Layout
from fedcompass.deployment.wire.messages import query_facts, train_facts
from fedcompass.deployment.wire.transport import Reply
from fedcompass.errors import TransportBroken
from fedcompass.flower.grid_transport import GridTransport

pytestmark = pytest.mark.usefixtures("in_a_run")
NODE = 5
LAYOUT = Layout.of(Net())


@pytest.fixture
def grid() -> FakeGrid:
    return FakeGrid({NODE: ""})


@pytest.fixture
def transport(grid: FakeGrid) -> GridTransport:
    return GridTransport(grid.as_grid(), LAYOUT, {"lr": 0.1})


def push(transport: GridTransport, node: int = NODE, steps: int = 4) -> str | None:
    facts = train_facts(steps=steps, task=3, version=2, run="r")
    return transport.push(node, "train", facts, LAYOUT.state_of(Net()), 60.0)


def reply_to(transport: GridTransport, message: str | None) -> Reply:
    assert message is not None
    until = monotonic() + 30
    while monotonic() < until:
        for reply in transport.pull([message]):
            return reply
        sleep(0.001)
    raise AssertionError("no reply")


def answering(*records: Any) -> ClientApp:
    """A ClientApp that answers with these records."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        content = RecordDict({f"r{i}": record for i, record in enumerate(records)})
        return Message(content, reply_to=message)

    return app


def test_a_task_has_the_names_that_stock_clients_read(
    transport: GridTransport, grid: FakeGrid
) -> None:
    message = push(transport)
    assert message is not None
    content = grid.pushed[message].content
    config = content.config_records["config"]
    assert config["steps"] == 4
    assert config["lr"] == 0.1
    assert config["server-round"] == 3
    tensors = content.array_records["arrays"].to_torch_state_dict()
    assert {name: tuple(t.shape) for name, t in tensors.items()} == {"weight": (3,), "batches": ()}
    assert grid.pushed[message].metadata.message_type == "train"


def test_a_client_that_says_nothing_of_steps_has_done_those_it_was_told(
    transport: GridTransport,
) -> None:
    reply = reply_to(transport, push(transport, steps=4))
    assert reply.error is None
    assert reply.node == NODE
    assert reply.facts["steps_done"] == 4
    assert reply.facts["num-examples"] == 15


def test_a_client_that_says_how_many_steps_it_did_is_believed(grid: FakeGrid) -> None:
    grid.app = answering(MetricRecord({"steps_done": 2, "num-examples": 3}))
    transport = GridTransport(grid.as_grid(), LAYOUT, {})
    assert reply_to(transport, push(transport)).facts["steps_done"] == 2


def test_a_query_is_not_sent_and_fails_at_once(transport: GridTransport, grid: FakeGrid) -> None:
    query = transport.push(NODE, "query", query_facts("r"), None, 60.0)
    assert query is not None
    (reply,) = transport.pull([query])
    assert reply.error == "a ClientApp answers no queries"
    assert reply.node == NODE
    assert transport.pull([query]) == []
    assert grid.pushed == {}


def test_a_resumed_runs_client_is_known_by_its_number_once(
    transport: GridTransport, grid: FakeGrid
) -> None:
    transport.recognise({str(NODE): 240})
    errors = []
    for _ in range(2):
        query = transport.push(NODE, "query", query_facts("r"), None, 60.0)
        assert query is not None
        (reply,) = transport.pull([query])
        errors.append(reply.error)
        if reply.error is None:
            assert reply.facts == {"site": str(NODE), "samples": 240}
    assert errors == [None, "a ClientApp answers no queries"]
    assert grid.pushed == {}


def test_a_name_that_a_supernode_was_registered_with_wins(grid: FakeGrid) -> None:
    grid.names[NODE] = "north"
    grid.app = answering(MetricRecord({"num-examples": 3}), ConfigRecord({"site": "south"}))
    transport = GridTransport(grid.as_grid(), LAYOUT, {})
    assert transport.nodes() == {NODE}
    assert reply_to(transport, push(transport)).facts["site"] == "north"


def test_an_error_is_one_line(grid: FakeGrid) -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        raise RuntimeError("no\ndata")

    grid.app = app
    transport = GridTransport(grid.as_grid(), LAYOUT, {})
    assert reply_to(transport, push(transport)).error == "Flower error 2: no data"


def test_a_node_that_is_gone_gets_nothing(transport: GridTransport) -> None:
    assert push(transport, node=99) is None


def test_a_reply_that_is_half_sent_holds_up_nobody(
    transport: GridTransport, grid: FakeGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = Event()
    pull = grid.pull_messages

    def slow(message_ids: Any) -> list[Message]:
        assert complete.wait(60)
        return pull(message_ids)

    monkeypatch.setattr(grid, "pull_messages", slow)
    message = push(transport)
    assert message is not None
    assert transport.pull([message]) == []
    assert transport.pull([message]) == []
    assert transport.nodes() == {NODE}
    complete.set()
    assert reply_to(transport, message).error is None


def test_a_superlink_that_is_gone_is_one_line(transport: GridTransport, grid: FakeGrid) -> None:
    grid.breaks_after = 0
    with pytest.raises(TransportBroken, match="does not answer: ConnectionError: connection ref"):
        push(transport)


def test_an_answer_to_what_nobody_asked_is_dropped(
    transport: GridTransport, grid: FakeGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = push(transport)
    assert message is not None
    (reply,) = grid.pull_messages([message])
    stray = grid.pull_messages([message])[0]
    stray.metadata.__dict__["_reply_to_message_id"] = "another"
    monkeypatch.setattr(grid, "pull_messages", lambda _: [stray, reply])
    assert reply_to(transport, message).message == message
    assert transport.pull([message]) == []
