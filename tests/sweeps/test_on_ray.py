"""A sweep on a real Ray cluster of two nodes: the same records as here, though a worker dies."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.child_processes import PATIENCE, importing_tests
from tests.sweeps.small_sweeps import FILE, experiments

from fedcompass.errors import MissingExtra
from fedcompass.settings.training import METRICS
from fedcompass.simulation.problems import build_problem
from fedcompass.sweeps.ray_problems import ProblemReceiver, ProblemSender
from fedcompass.sweeps.running import run_all
from fedcompass.sweeps.store import Store
from fedcompass.sweeps.sweep_file import Sweep

OURS = {**importing_tests(), "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture(scope="module")
def death(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the cluster's first worker to build `dies_once` makes before it dies."""
    return tmp_path_factory.mktemp("cluster") / "died"


@pytest.fixture(scope="module")
def cluster(death: Path) -> Iterator[str]:
    """The address of one cluster for all tests: it takes long to start."""
    pytest.importorskip("ray")
    complaints = death.with_name("cluster.log")
    with complaints.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("ray_cluster.py"))],
            env={**os.environ, **OURS, "SWEEP_TEST_DEATH": str(death)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            text=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address, f"the cluster did not start: {complaints.read_text()}"
        yield address
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its own session: nothing is left behind
            process.wait()
            process.stdout.close()


def test_a_cluster_gives_the_same_records_though_a_worker_is_killed(
    cluster: str, death: Path, tmp_path: Path
) -> None:
    file = tmp_path / "small.toml"
    model = 'model = "tests.sweeps.small_sweeps:dies_once"'
    file.write_text(FILE.replace("horizon =", f"{model}\nhorizon ="))
    command = ["sweep", str(file), "--store", str(tmp_path / "ray.jsonl"), "--on", cluster]
    done = subprocess.run(
        [sys.executable, "-m", "fedcompass", *command],
        env={**os.environ, **OURS},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Ray itself prints a remark about the dead worker first.
    assert done.stdout.splitlines()[-1].startswith("4 of 4 done; see them: fedcompass table")
    assert death.exists(), "no worker was killed"
    lines = (tmp_path / "ray.jsonl").read_text().splitlines()
    assert len(lines) == 1 + 4
    there = Store(tmp_path / "ray.jsonl").records()
    local = run_all(
        Sweep.from_toml(file).experiments(), Store(tmp_path / "here.jsonl"), executor="serial"
    )
    assert sorted(there, key=lambda record: record.key) == sorted(
        local, key=lambda record: record.key
    )


OWN = """
import torch
from torch import nn
from fedcompass.settings.aggregation import AggregationSettings
from fedcompass.aggregation import WeightedSum
from fedcompass.strategies import Recipe
from fedcompass.training import metric

def lines():
    items = [(torch.arange(1 + n % 5), n % 2) for n in range(60)]
    return {"train": items[:50], "test": items[50:], "collate": padded, "model": Net}

def padded(items):
    tokens = nn.utils.rnn.pad_sequence([tokens for tokens, _ in items], batch_first=True)
    return {"tokens": tokens}, torch.tensor([label for _, label in items])

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(8, 4), nn.Linear(4, 2)

    def forward(self, tokens):
        return self.head(self.embed(tokens).mean(1))

class Rule(WeightedSum):
    pass

strategy = Recipe("mine", "synchronous", aggregator=Rule)

@metric(higher_is_better=True)
def right(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()
"""

OWN_SWEEP = """
base.data.name = "./own_lines.py:lines"
base.evaluation.target_metric = "./own_lines.py:right"
base.horizon = 3.0
base.strategy.steps = 3
grid."strategy.name" = ["fedavg", "./own_lines.py:strategy"]
"""


def test_a_cluster_trains_own_data_with_an_own_strategy_and_metric(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_lines.py").write_text(OWN)
    (tmp_path / "own.toml").write_text(OWN_SWEEP)
    done = subprocess.run(
        [sys.executable, "-m", "fedcompass", "sweep", "own.toml", "--on", cluster],
        env={**os.environ, **OURS},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    there = Store(tmp_path / "runs" / "own" / "results.jsonl").records()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    chosen = Sweep.from_toml(Path("own.toml")).experiments()
    local = list(run_all(chosen, Store(tmp_path / "here.jsonl"), executor="serial"))
    sys.modules.pop("own_lines")
    METRICS.pop("own_lines.right")
    assert len(there) == 2
    assert sorted(there, key=lambda r: r.key) == sorted(local, key=lambda r: r.key)


def test_what_problems_share_is_stored_once_and_shared_again() -> None:
    stored: list[Any] = []

    def put(thing: Any) -> int:
        stored.append(thing)
        return len(stored) - 1

    sender, receiver = ProblemSender(put), ProblemReceiver(stored.__getitem__)
    problems = [build_problem(experiment) for experiment in experiments(3)]
    packed = [sender.pack(problem) for problem in problems]
    assert len(stored) == 5  # inputs and targets, for training and test, and the normalization
    assert all(len(packed.content) < 200_000 for packed in packed)
    unpacked = [receiver.unpack(packed) for packed in packed]
    assert len({id(problem.clients[0].inputs) for problem in unpacked}) == 1
    assert len({id(problem.transform) for problem in unpacked}) == 1
    for problem, other in zip(problems, unpacked, strict=True):
        assert torch.equal(problem.test.tensor, other.test.tensor)
        for samples, others in zip(problem.clients, other.clients, strict=True):
            rows = torch.arange(len(samples))
            for one, two in zip(samples.batch(rows), others.batch(rows), strict=True):
                assert torch.equal(one, two)


def test_without_ray_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install -c constraints.txt '\.\[ray\]'"):
        list(run_all(experiments(1), Store(tmp_path / "r.jsonl"), where="ray"))
