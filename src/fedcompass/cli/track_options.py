"""`--tensorboard [DIR]`, `--mlflow [URI]`, `--wandb [PROJECT]`: the same wherever runs are made."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from typer.core import TyperCommand

from fedcompass.errors import SettingsError

if TYPE_CHECKING:
    from fedcompass.report.tracking import OpenTracker

__all__ = ["Mlflow", "TensorBoard", "TrackingCommand", "Wandb", "run_name", "tracker_openers"]

_USUAL = ""  # the value of an option given without one

TensorBoard = Annotated[
    str | None,
    typer.Option(
        "--tensorboard",
        metavar="[DIR]",
        help="Write TensorBoard's files to DIR/NAME; DIR left out: tensorboard.",
    ),
]
Mlflow = Annotated[
    str | None,
    typer.Option(
        "--mlflow",
        metavar="[URI]",
        help="Log to MLflow; URI left out: $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db.",
    ),
]


Wandb = Annotated[
    str | None,
    typer.Option(
        "--wandb",
        metavar="[PROJECT]",
        help="Log to Weights & Biases; PROJECT left out: $WANDB_PROJECT, else fedcompass.",
    ),
]


class TrackingCommand(TyperCommand):
    """A command whose `--tensorboard`, `--mlflow` and `--wandb` may stand without a value."""

    def __init__(self, *arguments: Any, params: list[click.Parameter], **rest: Any) -> None:
        # Typer has no way to say that a value may be left out; click has.
        super().__init__(*arguments, params=[_value_may_be_left_out(p) for p in params], **rest)


def _value_may_be_left_out(parameter: click.Parameter) -> click.Parameter:
    if parameter.name not in ("tensorboard", "mlflow", "wandb"):
        return parameter
    assert isinstance(parameter, click.Option)
    return click.Option(
        parameter.opts,
        metavar=parameter.metavar,
        help=parameter.help,
        is_flag=False,
        flag_value=_USUAL,
    )


def tracker_openers(
    tensorboard: str | None, mlflow: str | None, wandb: str | None
) -> "list[OpenTracker]":
    """What begins a run in each tool asked for; says at once what is missing.

    Raises:
        MissingExtra: a tool is not installed.
        SettingsError: a folder or server cannot be used.
    """
    options = {"--tensorboard": tensorboard, "--mlflow": mlflow, "--wandb": wandb}
    for option, value in options.items():
        if value is not None and value.endswith(".toml"):  # what follows is taken for its value
            raise SettingsError(
                f"{option} is {value!r}, an experiment's file; put the file before the option"
            )
    openers: list[OpenTracker] = []
    if tensorboard is not None:
        from fedcompass.report.tracking.tensorboard import tensorboard_opener

        openers.append(tensorboard_opener(Path(tensorboard or "tensorboard")))
    if mlflow is not None:
        from fedcompass.report.tracking.mlflow import mlflow_opener, usual_uri

        openers.append(mlflow_opener(mlflow or usual_uri()))
    if wandb is not None:
        from fedcompass.report.tracking.wandb import usual_project, wandb_opener

        openers.append(wandb_opener(wandb or usual_project()))
    return openers


def run_name(folder: Path) -> str:
    """A run's name in the tools: its folder's, and the comparison's it is part of."""
    below = folder.parts[1:] if folder.parts[0] == "runs" else folder.parts[-1:]
    return "/".join(below) or folder.resolve().name
