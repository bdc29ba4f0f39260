"""A stand-in for a Hugging Face model with an adapter: an object as output, most of it frozen."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from fedcompass import Experiment, Problem, simulate
from fedcompass.aggregation.layout import Layout
from fedcompass.errors import TaskFailed
from fedcompass.training.problem import outputs_of


class Adapted(nn.Module):
    """Logits over 8 tokens for each place, from a frozen table and a small trained change."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(8, 16)
        self.head = nn.Linear(16, 8)
        self.requires_grad_(False)
        self.down, self.up = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)

    def forward(self, tokens: Tensor) -> SimpleNamespace:
        hidden = self.embed(tokens)
        return SimpleNamespace(logits=self.head(hidden + self.up(self.down(hidden))), past=None)


def next_token(logits: Tensor, tokens: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits[:, :-1].mT, tokens[:, 1:])


def problem() -> Problem:
    tokens = torch.arange(60 * 5).view(60, 5) % 8
    parts = [torch.arange(client, 50, 2) for client in range(2)]
    train, test = (tokens[:50], tokens[:50]), (tokens[50:], tokens[50:])
    return Problem.from_tensors(Adapted, train=train, test=test, parts=parts, loss=next_token)


def experiment(*metrics: str) -> Experiment:
    return Experiment(
        fleet={"paces": [0.1, 0.2]},
        strategy={"name": "fedavg", "steps": 5},
        local={"learning_rate": 0.05},
        evaluation={"metrics": metrics, "target_metric": metrics[-1]},
        target=None,
        horizon=8.0,
    )


def test_the_logits_of_an_output_are_what_a_loss_gets() -> None:
    outputs = outputs_of(Adapted(), torch.zeros(2, 5, dtype=torch.int64))
    assert isinstance(outputs, Tensor)
    assert outputs.shape == (2, 5, 8)


def test_only_the_adapter_travels_and_it_learns() -> None:
    assert {spec.name for spec in Layout.of(Adapted()).specs} == {"down.weight", "up.weight"}
    result = simulate(experiment("loss"), problem=problem())
    losses = [row["loss"] for row in result.curve]
    assert losses[-1] < losses[0]
    assert torch.equal(result.model["embed.weight"], Adapted().embed.weight)


def test_accuracy_says_what_it_needs_of_outputs_place_by_place() -> None:
    with pytest.raises(TaskFailed, match=r"accuracy needs outputs \[samples, classes, ...\]"):
        simulate(experiment("accuracy"), problem=problem())


def test_with_a_loss_of_ones_own_as_metric_nothing_else_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("def mine(outputs, targets):\n    return outputs.mean()\n")
    chosen = Experiment(loss="./own.py:mine", evaluation={"target_metric": "loss"})
    assert chosen.evaluation.metrics == ("loss",)
    with_more = {"target_metric": "loss", "metrics": ["loss", "accuracy"]}
    assert len(Experiment(loss="./own.py:mine", evaluation=with_more).evaluation.metrics) == 2
