"""Measuring merged models by the clients or by a function, and a client's own pace."""

from threading import Event, Thread
from typing import Any

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from tests.flower.fake_grid import FakeGrid, Net, evaluate, global_evaluate
from torch import nn

from fedcompass.aggregation.layout import Layout
from fedcompass.errors import AppError, SettingsError
from fedcompass.flower import pace_mod
from fedcompass.flower.measured_models import by_clients, by_function, weighted_mean
from fedcompass.flower.server_app import load_object, make_model

pytestmark = pytest.mark.usefixtures("in_a_run")

ASKED = {"message_type": "train", "dst_node_id": 3}


def asked(kind: str = "train") -> Message:
    return Message(RecordDict({"config": ConfigRecord({})}), dst_node_id=3, message_type=kind)


def measured(**metrics: float) -> Message:
    return Message(RecordDict({"metrics": MetricRecord(dict(metrics))}), reply_to=asked("evaluate"))


def failed(reason: str) -> Message:
    return Message(Error(code=2, reason=reason), reply_to=asked("evaluate"))


def test_clients_count_by_their_examples() -> None:
    replies = [
        measured(acc=0.5, **{"num-examples": 30}),
        measured(acc=1.0, loss=2.0, **{"num-examples": 10}),
        failed("crashed"),
    ]
    assert weighted_mean(replies) == {"acc": 0.625, "loss": 2.0}


def test_a_client_that_does_not_count_its_examples_counts_once() -> None:
    assert weighted_mean([measured(acc=0.5), measured(acc=1.0)]) == {"acc": 0.75}


def test_when_nobody_measures_it_says_why() -> None:
    with pytest.raises(AppError, match="no client measured the model: no evaluate function"):
        weighted_mean([failed("no evaluate function")])
    with pytest.raises(AppError, match="no client measured the model: none answered"):
        weighted_mean([])


def test_each_connected_client_is_asked() -> None:
    module = Net()
    layout = Layout.of(module)
    grid = FakeGrid({1: "", 2: ""})
    found = by_clients(grid.as_grid(), layout, 60.0, Event())(4, layout.state_of(module))
    assert found["accuracy"] == pytest.approx(module.weight.mean().item())
    assert [m.metadata.dst_node_id for m in grid.pushed.values()] == [1, 2]
    configs = [m.content.config_records["config"] for m in grid.pushed.values()]
    assert [config["server-round"] for config in configs] == [4, 4]


def test_a_run_that_is_stopped_waits_for_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    module, grid, stopped, asked, over = Net(), FakeGrid({1: ""}), Event(), Event(), Event()
    layout = Layout.of(module)

    def never(*_: object, **__: object) -> list[Message]:
        asked.set()
        over.wait(120)
        raise ConnectionError

    monkeypatch.setattr(grid, "send_and_receive", never)
    told = []

    def evaluate() -> None:
        with pytest.raises(AppError, match="the run was stopped"):
            by_clients(grid.as_grid(), layout, 60.0, stopped)(0, layout.state_of(module))
        told.append("stopped")

    evaluating = Thread(target=evaluate)
    evaluating.start()
    assert asked.wait(60)
    stopped.set()
    evaluating.join(60)
    over.set()
    assert told == ["stopped"]


def test_a_projects_own_function_gets_round_and_arrays() -> None:
    module = Net()
    layout = Layout.of(module)
    function = by_function(global_evaluate, layout)
    found = function(4, layout.state_of(module))
    assert found == {"accuracy": pytest.approx(module.weight.mean().item()), "round": 4.0}
    assert function(0, layout.state_of(module)) == {}  # it gave None


def context(**node: Any) -> Context:
    return Context(1, 3, node, RecordDict(), {})


@pytest.mark.parametrize(
    ("node", "site"),
    [
        ({"partition-id": 2, "num-partitions": 4}, {"site": "2"}),
        ({"partition-id": 2, "site": "north"}, {"site": "north"}),
        ({}, None),
    ],
)
def test_the_mod_adds_seconds_and_name_to_a_trained_answer(
    node: dict[str, Any], site: dict[str, str] | None
) -> None:
    app = ClientApp(mods=[pace_mod])

    @app.train()
    def train(message: Message, _: Context) -> Message:
        return Message(RecordDict({"arrays": ArrayRecord({})}), reply_to=message)

    content = app(asked(), context(**node)).content
    assert 0 <= float(content.metric_records["fedcompass.pace"]["seconds"]) < 60  # type: ignore[arg-type]
    assert content.config_records.get("fedcompass.site") == site


def test_the_mod_leaves_other_answers_alone() -> None:
    app = ClientApp(mods=[pace_mod])
    app.evaluate()(evaluate)

    @app.train()
    def train(message: Message, _: Context) -> Message:
        return Message(Error(code=2, reason="no data"), reply_to=message)

    assert app(asked(), context()).error.reason == "no data"


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("task", "model 'task' is not of the form package.module:name or FILE.py:name"),
        ("no_such:Net", "model 'no_such:Net': importing no_such raised ModuleNotFoundError"),
        ("tests.flower.fake_grid:Nett", "fake_grid.py has no Nett"),
        ("tests.flower.test_flower_evaluation:ASKED", "is a dict; allowed: a function or a class"),
        ("tests.flower.fake_grid:stepped", "does not work without arguments: TypeError"),
        ("builtins:dict", "model 'builtins:dict' made a dict; it must make a torch.nn.Module"),
    ],
)
def test_a_model_that_cannot_be_made_is_one_line(reference: str, told: str) -> None:
    with pytest.raises((AppError, SettingsError)) as error:
        make_model(reference, 0)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_seed_decides_the_initial_model() -> None:
    one, same, other = (make_model("tests.flower.fake_grid:Net", seed) for seed in (1, 1, 2))
    assert one.weight.tolist() == same.weight.tolist() != other.weight.tolist()  # type: ignore[operator]


def test_a_function_is_found_by_its_name() -> None:
    found = load_object("evaluate", "tests.flower.fake_grid:global_evaluate")
    assert found is global_evaluate


def frozen() -> nn.Module:
    return nn.Linear(3, 2).requires_grad_(False)


def test_frozen_parameters_travel_as_a_clientapp_expects_them() -> None:
    layout = Layout.of(make_model(f"{__name__}:frozen", 0))
    assert [spec.name for spec in layout.specs] == ["weight", "bias"]
