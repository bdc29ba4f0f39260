"""The options that `run` and `compare` share, and how they become settings."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcompass.errors import SettingsError

if TYPE_CHECKING:
    from fedcompass.experiment import Experiment

__all__ = [
    "BatchSize",
    "BufferSize",
    "Clients",
    "Data",
    "DataRoot",
    "Device",
    "ExperimentFile",
    "Horizon",
    "Latest",
    "LearningRate",
    "MaxStack",
    "MaxSteps",
    "MinSteps",
    "Model",
    "PartitionKind",
    "Profile",
    "Resample",
    "SetKeys",
    "Speed",
    "Steps",
    "StopAtTarget",
    "Target",
    "TierRatio",
    "KEYS",
    "assigned",
    "experiment_from",
    "file_and_options",
    "named",
    "next_free",
    "parse_assignment",
]

ExperimentFile = Annotated[
    Path | None, typer.Argument(help="An experiment's TOML file; left out: the default one.")
]
SetKeys = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting: fleet.jitter=0.1. Repeatable."),
]
Data = Annotated[str | None, typer.Option("--data", help="mnist-mini, mnist, cifar10, …")]
DataRoot = Annotated[Path | None, typer.Option(help="Folder with the datasets.")]
Model = Annotated[
    str | None,
    typer.Option(help="mnist_cnn, resnet18, mlp, package.module:factory, FILE.py:factory."),
]
Clients = Annotated[int | None, typer.Option(help="Number of clients.")]
PartitionKind = Annotated[
    str | None, typer.Option("--partition", help="class, dual-dirichlet, iid, center.")
]
Speed = Annotated[str | None, typer.Option(help="homogeneous, normal, exponential.")]
Resample = Annotated[
    float | None, typer.Option("--speed-change", help="Chance per round of another speed.")
]
Steps = Annotated[int | None, typer.Option(help="Q: local steps of fixed-step strategies.")]
MinSteps = Annotated[int | None, typer.Option(help="Q_min of fedcompass.")]
MaxSteps = Annotated[int | None, typer.Option(help="Q_max of fedcompass.")]
Latest = Annotated[float | None, typer.Option(help="λ of fedcompass.")]
BufferSize = Annotated[int | None, typer.Option(help="K of fedbuff.")]
TierRatio = Annotated[float | None, typer.Option(help="υ of fedat.")]
LearningRate = Annotated[float | None, typer.Option(help="Clients' learning rate.")]
BatchSize = Annotated[int | None, typer.Option(help="Clients' batch size.")]
Horizon = Annotated[float | None, typer.Option(help="Virtual seconds to simulate.")]
Target = Annotated[float | None, typer.Option(help="Accuracy (or other metric) to reach.")]
StopAtTarget = Annotated[
    bool | None, typer.Option("--stop-at-target", help="End a run once it reaches the target.")
]
Device = Annotated[str, typer.Option(help="Where to train: cpu or cuda.")]
MaxStack = Annotated[
    int | None,
    typer.Option(min=1, help="Most tasks in a stack; default: as many as pay and fit the memory."),
]
Profile = Annotated[
    str | None, typer.Option(help="Strategies' settings: the FedCompass paper's, or their own.")
]

KEYS = {
    "data": "data.name",
    "data_root": "data.root",
    "model": "model",
    "clients": "fleet.clients",
    "partition": "partition.kind",
    "speed": "fleet.speed",
    "speed_change": "fleet.resample_probability",
    "learning_rate": "local.learning_rate",
    "batch_size": "local.batch_size",
    "horizon": "horizon",
    "target": "target",
    "stop_at_target": "stop_at_target",
    "profile": "profile",
    "seed": "seed",
    "strategy": "strategy.name",
    "steps": "strategy.steps",
    "min_steps": "strategy.min_steps",
    "max_steps": "strategy.max_steps",
    "latest": "strategy.latest",
    "buffer_size": "strategy.buffer_size",
    "tier_ratio": "strategy.tier_ratio",
}


def experiment_from(
    file: Path | None, assignments: list[str] | None, options: dict[str, Any]
) -> "Experiment":
    """An experiment from a file, then the options, then --set; the later ones win.

    Raises:
        SettingsError: one line about the first thing that is wrong.
    """
    from fedcompass.experiment import Experiment
    from fedcompass.settings import merged

    return Experiment(**merged(file_and_options(file, options), assigned(assignments)))


def file_and_options(file: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    """A file's settings with the options that were given laid over them."""
    from fedcompass.experiment import read_experiment
    from fedcompass.settings import merged, nested

    given = [nested(KEYS[name], _plain(v)) for name, v in options.items() if v is not None]
    return merged(read_experiment(file) if file else {}, *given)


def assigned(assignments: list[str] | None) -> dict[str, Any]:
    """What --set says, as nested tables; the later ones win."""
    from fedcompass.settings import merged

    return merged(*(parse_assignment(text) for text in assignments or ()))


def _plain(value: Any) -> Any:
    """An option's value as a settings file has it."""
    return str(value) if isinstance(value, Path) else value


def parse_assignment(text: str) -> dict[str, Any]:
    """`fleet.jitter=0.1` as a nested table; the value is TOML, or else plain text."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SettingsError(f"--set is {text!r}; allowed: KEY=VALUE, such as fleet.jitter=0.1")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    from fedcompass.settings import nested

    return nested(key, parsed)


def named(name: str) -> Path:
    """The folder of that name under runs/.

    Raises:
        SettingsError: the name is a path that leads elsewhere.
    """
    if name in (".", "..") or Path(name).name != name:
        raise SettingsError(f"--name is {name!r}; allowed: a plain name, without folders")
    return Path("runs") / name


def next_free(folder: Path, name: str) -> Path:
    """The first of name, name-2, name-3, … that is not there yet."""
    path, number = folder / name, 2
    while path.exists():
        path, number = folder / f"{name}-{number}", number + 1
    return path
