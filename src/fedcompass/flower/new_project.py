"""`fedcompass flower new`: a Flower project to change into one's own, runnable as it is."""

import keyword
import re
from pathlib import Path

from fedcompass.errors import ProjectError

__all__ = ["write_project"]

_PYPROJECT = """\
[project]
name = "{name}"
version = "0.1.0"
description = "Federated learning for clients of unequal speed"
license = "Apache-2.0"
dependencies = ["fedcompass[flower]"]

[tool.flwr.app]
publisher = "me"

[tool.flwr.app.components]
serverapp = "fedcompass.flower:app"
clientapp = "{module}.client_app:app"

[tool.flwr.app.config]
batch-size = 32

# `flwr run . -c 'fedcompass.strategy.name="metronome"'` changes for one run what is set here.
[tool.flwr.app.config.fedcompass]
model = "{module}.task:Net"
train.lr = 0.05                   # goes to the clients with every task, next to `steps`
strategy.name = "fedcompass"      # `fedcompass strategies` lists them all
strategy.min_steps = 10           # of a client's task
strategy.max_steps = 50
min_clients = 2                   # to begin with; more may join at any time
max_updates = 10                  # global updates, then the run ends
evaluate = "clients"              # or module:function, or none
target_metric = "eval_acc"        # decides which model is kept as the best
higher_is_better = true
folder = "~/fedcompass-runs"      # of the server; a run's folder in it has Flower's run id as name
resume = ""                       # the run id to go on with, after a crash
"""

_TASK = '''\
"""What is trained, on what, and how: change these four to your own."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

Loader = DataLoader[tuple[Tensor, ...]]


class Net(nn.Sequential):
    """The model."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))


def load_data(partition: int, partitions: int, batch_size: int) -> tuple[Loader, Loader]:
    """A client's own training and test data; here a part of a toy set: points around 3 centers."""
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(3, 8, generator=generator)
    labels = torch.randint(3, (3000,), generator=generator)
    points = centers[labels] + torch.randn(3000, 8, generator=generator)
    mine = torch.arange(partition, 3000, partitions)
    train, test = mine[: len(mine) * 4 // 5], mine[len(mine) * 4 // 5 :]
    return (
        DataLoader(TensorDataset(points[train], labels[train]), batch_size, shuffle=True),
        DataLoader(TensorDataset(points[test], labels[test]), batch_size),
    )


def train(model: nn.Module, batches: Loader, steps: int, lr: float) -> float:
    """Train as many steps as the server asks for; gives the mean loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    model.train()
    total, done = 0.0, 0
    while done < steps:
        for points, labels in batches:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(points), labels)
            loss.backward()
            optimizer.step()
            total, done = total + loss.item(), done + 1
            if done == steps:
                break
    return total / steps


@torch.no_grad()
def test(model: nn.Module, batches: Loader) -> tuple[float, float]:
    """The loss and the accuracy on a client's test data."""
    model.eval()
    loss, correct, count = 0.0, 0, 0
    for points, labels in batches:
        outputs = model(points)
        loss += functional.cross_entropy(outputs, labels, reduction="sum").item()
        correct += int((outputs.argmax(1) == labels).sum())
        count += len(labels)
    return loss / count, correct / count
'''

_CLIENT_APP = '''\
"""How a client answers the server; a ClientApp that reads `steps` needs no more than this."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcompass.flower import pace_mod
from {module}.task import Net, load_data, test, train

app = ClientApp(mods=[pace_mod])  # answers also say how long the training took


@app.train()
def answer_train(message: Message, context: Context) -> Message:
    """Train the server's model on the client's own data."""
    model, config = Net(), message.content["config"]
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    batches, _ = load_data(*_part(context))
    loss = train(model, batches, config["steps"], config["lr"])
    metrics = MetricRecord({{"train_loss": loss, "num-examples": len(batches.dataset)}})
    content = RecordDict({{"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}})
    return Message(content=content, reply_to=message)


@app.evaluate()
def answer_evaluate(message: Message, context: Context) -> Message:
    """Measure the server's model on the client's own data."""
    model = Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    _, batches = load_data(*_part(context))
    loss, accuracy = test(model, batches)
    metrics = {{"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(batches.dataset)}}
    return Message(content=RecordDict({{"metrics": MetricRecord(metrics)}}), reply_to=message)


def _part(context: Context) -> tuple[int, int, int]:
    """Which part of the data this client has, and its batch size."""
    node = context.node_config
    return node["partition-id"], node["num-partitions"], context.run_config["batch-size"]
'''


def write_project(folder: Path) -> str:
    """Write a project into a new or empty folder; returns the name of its Python package.

    Raises:
        ProjectError: the folder holds something, or its name makes no Python package.
    """
    name = folder.resolve().name
    module = name.lower().replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", module) or keyword.iskeyword(module):
        raise ProjectError(
            f"{name!r} cannot name a Python package; allowed: letters, digits, - and _, a letter "
            "first"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ProjectError(f"{folder} is there already; choose a new or empty folder")
    package = folder / module
    package.mkdir(parents=True)
    texts = {
        folder / "pyproject.toml": _PYPROJECT.format(name=name, module=module),
        package / "__init__.py": f'"""{name}: a Flower app."""\n',
        package / "task.py": _TASK,
        package / "client_app.py": _CLIENT_APP.format(module=module),
    }
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return module
