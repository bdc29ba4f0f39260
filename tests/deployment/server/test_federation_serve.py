"""The server's whole part in one call, with a user's app and a real clock."""

import json
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tests.deployment.fake_network import SentModel

import fedcompass.deployment as deployment
from fedcompass.deployment.app.app_file import load_app
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.server.serve import serve
from fedcompass.deployment.wire.transport import Assignment, Greeting, NodeId, Remark, Reply
from fedcompass.errors import SettingsError
from fedcompass.report import RunFiles
from fedcompass.runs.curve import metrics_of
from fedcompass.training import LocalSettings, LocalTrainer, Problem, evaluate

pytestmark = pytest.mark.usefixtures("quick_disk")

APP = """
import torch
from torch import nn
from fedcompass import Samples

def model():
    return nn.Linear(3, 2)

def trainer(site):
    raise AssertionError("the server trains nothing")
"""
TEST_SET = """
def test_set():
    return Samples(torch.ones(200, 3), torch.zeros(200, dtype=torch.int64))
"""
OWN = """
def evaluate(model):
    return {"balance": float(model.bias.sum())}
"""


class AtOnce:
    """Sites that answer every message at once with the model they got."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}
        self.numbers_sent: set[int] = set()  # how many values a model had

    def nodes(self) -> set[NodeId]:
        return {1, 2}

    def greeting(self, node: NodeId) -> Greeting:
        return Greeting(samples=7)

    def push(self, node: NodeId, assignment: Assignment) -> str | None:
        message = f"{len(self.replies)} {time.monotonic_ns()}"
        self.numbers_sent.add(assignment.model.trainable.numel())
        self.replies[message] = Reply(
            message=message,
            node=node,
            payload=SentModel(assignment.model),
            task=assignment.task,
            steps_done=assignment.steps,
            seconds=0.0,
        )
        return message

    def is_revoked(self, node: NodeId) -> bool:
        return False

    def confirm(self, run: str, tasks: Collection[int]) -> None:
        pass

    def departures(self) -> list[Reply]:
        return []

    def remarks(self) -> list[Remark]:
        return []

    def pull(self, messages: Collection[str]) -> list[Reply]:
        return [self.replies.pop(message) for message in messages if message in self.replies]


def app_of(folder: Path, *parts: str) -> Path:
    path = folder / "app.py"
    path.write_text("".join(parts))
    return path


def test_an_app_with_a_test_set_is_measured_on_it(tmp_path: Path) -> None:
    app = load_app(app_of(tmp_path, APP, TEST_SET))
    settings = FederationSettings(max_updates=3, poll_interval=0.005, watch_interval=0.01)
    summary = serve(settings, app, AtOnce(), tmp_path / "run")
    rows = [
        json.loads(row)
        for row in (tmp_path / "run" / "metrics.jsonl").read_text().split("\n")
        if row
    ]
    assert rows[-1]["version"] == summary.global_updates
    assert set(rows[-1]) == {"time", "version", "loss", "accuracy"}
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert written["final_accuracy"] in (0.0, 1.0)
    assert written["global_updates"] == 3
    assert set(written["sites"]) == {"1", "2"}


LARGE_TEST_SET = """
def model():
    return nn.Linear(40_000, 2)

def test_set():
    inputs = torch.randn(200, 40_000, generator=torch.Generator().manual_seed(0))
    return Samples(inputs, torch.arange(200) % 2)
"""


def test_the_server_measures_to_the_bit_as_the_simulator_does(tmp_path: Path) -> None:
    app = load_app(app_of(tmp_path, APP, LARGE_TEST_SET))
    settings = FederationSettings(max_updates=1, poll_interval=0.005, watch_interval=0.01)
    summary = serve(settings, app, AtOnce(), tmp_path / "run")
    test = app.test_set()
    assert test is not None
    problem = Problem(model=app.model, clients=(test,), test=test)
    simulated = LocalTrainer(problem, LocalSettings(), seed=0)
    final = simulated.layout.flatten(load_file(tmp_path / "run" / "final.safetensors"))
    assert summary.final is not None
    assert metrics_of(summary.final) == evaluate(simulated, final, test, settings.metrics)


def test_an_app_may_measure_by_itself_or_not_at_all(tmp_path: Path) -> None:
    settings = FederationSettings(
        max_updates=2,
        poll_interval=0.005,
        watch_interval=0.01,
        target_metric="balance",
        higher_is_better=True,
    )
    summary = serve(settings, load_app(app_of(tmp_path, APP, OWN)), AtOnce(), tmp_path / "own")
    assert summary.final is not None
    assert set(summary.final) == {"time", "version", "balance"}
    summary = serve(settings, load_app(app_of(tmp_path, APP)), AtOnce(), tmp_path / "none")
    assert summary.final is None


def test_the_package_gives_its_names_however_they_are_asked_for() -> None:
    for name in deployment.__all__:
        assert getattr(deployment, name).__name__ == name
        assert getattr(deployment, name).__name__ == name


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_updates": 0}, "max_updates is 0; allowed: at least 1"),
        ({"max_updates": 5, "ttl": 10.0}, "ttl is 10; allowed: at least task_timeout, 600"),
        ({"max_updates": 5, "strategy": {"name": "fedcompas"}}, "strategy is 'fedcompas'"),
        ({"max_updates": 5, "strategy": {"name": "fedavg", "min_clients": 3}}, "move it there"),
        ({"max_updates": 5, "metrics": ["acuracy"]}, "acuracy"),
        ({"max_updates": 5, "patience": 3}, "federation has no setting 'patience'"),
    ],
)
def test_a_wrong_setting_is_told_in_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        FederationSettings(**values)
    assert "\n" not in str(caught.value)


FROZEN = """
def model():
    net = nn.Linear(3, 2)
    net.bias.requires_grad_(False).{fill}
    return net
"""


def test_frozen_parameters_are_not_sent_and_stand_in_the_final_model(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP + FROZEN.format(fill="fill_(0.5)"))
    sites = AtOnce()
    settings = FederationSettings(max_updates=2, min_clients=2, strategy={"name": "fedavg"})
    serve(settings, load_app(app), sites, tmp_path / "run")
    assert sites.numbers_sent == {6}  # the weight alone
    assert next(RunFiles(tmp_path / "run").records())["model_bytes"] == 4 * 6
    final = load_file(tmp_path / "run" / "final.safetensors")
    assert final["bias"].tolist() == [0.5, 0.5]


def test_frozen_parameters_that_are_drawn_at_random_are_refused(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP + FROZEN.format(fill="numel()"))
    settings = FederationSettings(max_updates=2, min_clients=2)
    with pytest.raises(SettingsError, match="frozen parameter 'bias' is drawn at random"):
        serve(settings, load_app(app), AtOnce(), tmp_path / "run")
