"""A Grid in memory: nodes that answer at once by a ClientApp, and can be made to fail."""

import threading
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from flwr.app import ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from torch import nn

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.flower.background import THREAD
from fedcompass.scheduling.events import UpdateArrived

client_app = ClientApp()


class Net(nn.Module):
    """Three numbers and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.register_buffer("batches", torch.tensor(0))


def stepped(tensors: dict[str, torch.Tensor], steps: int) -> dict[str, torch.Tensor]:
    """A model after so many "steps", without an optimizer: the same every time."""
    return {
        "weight": tensors["weight"] * 0.5 + 0.01 * steps,
        "batches": tensors["batches"] + steps,
    }


@client_app.train()
def train(message: Message, context: Context) -> Message:
    steps = cast(int, message.content.config_records["config"]["steps"])
    tensors = message.content.array_records["arrays"].to_torch_state_dict()
    metrics = MetricRecord({"train_loss": 0.5, "num-examples": 10 + context.node_id})
    arrays = ArrayRecord(stepped(dict(tensors), steps))
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@client_app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    tensors = message.content.array_records["arrays"].to_torch_state_dict()
    metrics = MetricRecord({"accuracy": float(tensors["weight"].mean()), "num-examples": 10})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
    """What a project has for its strategy's `evaluate_fn`."""
    tensors = arrays.to_torch_state_dict()
    mean = float(tensors["weight"].mean())
    return MetricRecord({"accuracy": mean, "round": server_round}) if server_round else None


class TwinOfClientApp:
    """Trains as the ClientApp does."""

    def __init__(self, seed: int = 0) -> None:
        from fedcompass.flower.server_app import make_model

        module = make_model("tests.flower.fake_grid:Net", seed)
        self.layout = Layout.of(module)
        self.initial = self.layout.state_of(module)

    def trained(self, start: FlatState, event: UpdateArrived, steps_before: int) -> FlatState:
        tensors = stepped(self.layout.unflatten(start), event.steps_done)
        return self.layout.flatten(tensors)


class FakeGrid:
    """Nodes by number and registered name, each with a ClientApp that answers when it is pulled.

    breaks_after: so many pushes work; then the SuperLink is gone.
    """

    def __init__(
        self, names: dict[int, str], app: ClientApp = client_app, run_config: Any = None
    ) -> None:
        self.names, self.app = names, app
        self.pushed: dict[str, Message] = {}
        self.breaks_after: int | None = None
        self._config = run_config or {}
        self._numbers = count()

    def get_nodes(self) -> Iterator[Any]:
        return (SimpleNamespace(node_id=node, name=name) for node, name in self.names.items())

    def get_node_ids(self) -> list[int]:
        return list(self.names)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        identifiers = []
        for message in messages:
            if self.breaks_after is not None and len(self.pushed) >= self.breaks_after:
                raise ConnectionError("connection refused")
            known = message.metadata.dst_node_id in self.names
            identifiers.append(f"m{next(self._numbers)}" if known else "")
            if known:
                message.metadata.__dict__["_message_id"] = identifiers[-1]
                self.pushed[identifiers[-1]] = message
        return identifiers

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._answer(self.pushed[message]) for message in message_ids]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float) -> list[Message]:
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        part = {"partition-id": node - 1, "num-partitions": len(self.names)}
        context = Context(1, node, part, RecordDict(), self._config)  # type: ignore[arg-type]
        try:
            return self.app(message, context)
        except Exception as error:
            return Message(Error(code=2, reason=str(error)), reply_to=message)

    def as_grid(self) -> Grid:
        return cast(Grid, self)


def server_context(folder: Path, run_id: int = 7, **settings: Any) -> Context:
    """What a ServerApp is given, with these settings of ours."""
    config = {
        "fedcompass.model": "tests.flower.fake_grid:Net",
        "fedcompass.folder": str(folder),
        "fedcompass.poll_interval": 0.001,
        "fedcompass.strategy.name": "fedcompass",
        "fedcompass.max_updates": 3,
        **{f"fedcompass.{key.replace('__', '.')}": value for key, value in settings.items()},
    }
    return Context(run_id, 1, {}, RecordDict(), config)


@pytest.fixture
def in_a_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Flower's messages are made by a task of a run; the last pull may go on when it is over."""
    monkeypatch.setattr(TaskIdentity, "_run_id", 1)
    monkeypatch.setattr(TaskIdentity, "_node_id", SUPERLINK_NODE_ID)
    monkeypatch.setattr(TaskIdentity, "_task_id", 1)
    yield
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join(60)
