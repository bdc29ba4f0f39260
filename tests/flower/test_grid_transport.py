"""A Grid as a transport: the names stock clients read, and answers of any ClientApp."""

from threading import Event
from time import monotonic, sleep
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from tests.flower.fake_grid import FakeGrid, Net

from fedcompass.aggregation.layout import Layout
from fedcompass.deployment.wire.transport import Assignment, Greeting, Reply
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
    return GridTransport(grid.as_grid(), LAYOUT, {"lr": 0.1}, 60.0)


def push(transport: GridTransport, node: int = NODE, steps: int = 4) -> str | None:
    model = LAYOUT.state_of(Net())
    assignment = Assignment(task=3, steps=steps, version=2, run="r", model=model, steps_before=11)
    return transport.push(node, assignment)


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
    assert (config["steps"], config["steps_before"]) == (4, 11)
    assert config["lr"] == 0.1
    assert config["server-round"] == 3
    tensors = content.array_records["arrays"].to_torch_state_dict()
    assert {name: tuple(t.shape) for name, t in tensors.items()} == {"weight": (3,), "batches": ()}
    assert grid.pushed[message].metadata.message_type == "train"
    assert grid.pushed[message].metadata.ttl == 60.0


def test_a_client_that_says_nothing_of_steps_has_done_those_it_was_told(
    transport: GridTransport,
) -> None:
    reply = reply_to(transport, push(transport, steps=4))
    assert reply.error is None
    assert reply.node == NODE
    assert reply.steps_done == 4
    assert reply.greeting.samples == 15


def test_a_client_that_says_how_many_steps_it_did_is_believed(grid: FakeGrid) -> None:
    grid.app = answering(MetricRecord({"steps_done": 2, "num-examples": 3}))
    transport = GridTransport(grid.as_grid(), LAYOUT, {}, 60.0)
    assert reply_to(transport, push(transport)).steps_done == 2


def test_a_client_says_who_it_is_with_its_first_answer(transport: GridTransport) -> None:
    assert transport.greeting(NODE) is None
    assert reply_to(transport, push(transport)).greeting == Greeting(None, 15)


def test_a_resumed_runs_client_is_known_by_its_number_once(
    transport: GridTransport, grid: FakeGrid
) -> None:
    transport.recognise({str(NODE): 240})
    assert transport.greeting(NODE) == Greeting(str(NODE), 240)
    assert transport.greeting(NODE) is None
    assert grid.pushed == {}


@pytest.mark.parametrize(
    ("said", "understood"),
    [
        ({"task": "one"}, {"task": -1}),
        ({"version": "new"}, {"version": -1}),
        ({"steps_done": 2.0}, {"steps_done": 2}),
        ({"steps_done": 1.5}, {"steps_done": None}),
        ({"steps_done": True}, {"steps_done": None}),
        ({"seconds": "soon"}, {"seconds": None}),
        ({"seconds": True}, {"seconds": None}),
        ({"epsilon": "much", "delta": 1e-5}, {"epsilon": None, "delta": 1e-5}),
        ({"epsilon": True}, {"epsilon": None}),
        ({"samples": "many"}, {"greeting": Greeting()}),
        ({"site": 7, "num-examples": 3}, {"greeting": Greeting(None, 3)}),
        ({"protocol": 2}, {"error": "speaks protocol '2', this server 1; upgrade the older"}),
    ],
)
def test_a_value_of_another_kind_is_not_believed(
    transport: GridTransport, grid: FakeGrid, said: dict[str, Any], understood: dict[str, Any]
) -> None:
    grid.app = answering(ConfigRecord(said))
    reply = reply_to(transport, push(transport))
    assert {name: getattr(reply, name) for name in understood} == understood


def test_a_name_that_a_supernode_was_registered_with_wins(grid: FakeGrid) -> None:
    grid.names[NODE] = "north"
    grid.app = answering(MetricRecord({"num-examples": 3}), ConfigRecord({"site": "south"}))
    transport = GridTransport(grid.as_grid(), LAYOUT, {}, 60.0)
    assert transport.nodes() == {NODE}
    assert reply_to(transport, push(transport)).greeting == Greeting("north", 3)


def test_an_error_is_one_line(grid: FakeGrid) -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        raise RuntimeError("no\ndata")

    grid.app = app
    transport = GridTransport(grid.as_grid(), LAYOUT, {}, 60.0)
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
