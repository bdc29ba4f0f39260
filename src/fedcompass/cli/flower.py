"""`fedcompass flower`: our strategies in Flower projects."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["flower"]

flower = typer.Typer(help="Run our strategies in Flower projects.", no_args_is_help=True)

# Otherwise Flower makes an environment for every run, from a package index.
_INSTALLED = "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1"


@flower.callback()
def _commands() -> None:
    """Run our strategies in Flower projects."""


@flower.command("new")
def _new(
    path: Annotated[Path, typer.Argument(help="The project's folder: new, or empty.")],
) -> None:
    """Write a Flower project that runs as it is; then put in a model and data of your own."""
    from fedcompass.flower.new_project import write_project

    module = write_project(path)
    print(f"{path}: a Flower project whose server is fedcompass")
    print(f"  {module}/task.py        model, data, training and test: make them yours")
    print(f"  {module}/client_app.py  how a client answers")
    print("  pyproject.toml  strategy and settings")
    print("run it, with two simulated clients:")
    print(f"  {_INSTALLED} flwr run {shlex.quote(str(path))} --stream")
