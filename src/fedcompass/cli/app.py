"""The `fedcompass` command and its subcommands."""

from typing import Annotated

import typer
import typer.core

from fedcompass import __version__
from fedcompass.cli.advise import advise
from fedcompass.cli.compare import compare
from fedcompass.cli.completion import completion
from fedcompass.cli.data import data
from fedcompass.cli.deploy import deploy
from fedcompass.cli.fleet import fleet
from fedcompass.cli.flower import flower
from fedcompass.cli.paper import paper
from fedcompass.cli.partition import partition
from fedcompass.cli.plot import plot
from fedcompass.cli.report import report
from fedcompass.cli.run import run
from fedcompass.cli.schedule import schedule
from fedcompass.cli.setting_options import settings_command
from fedcompass.cli.strategies import strategies
from fedcompass.cli.sweep import sweep
from fedcompass.cli.table import table
from fedcompass.cli.watch import watch

__all__ = ["app"]

# Plain help and one-line errors: drawing them with rich doubles the start and eats "[…]" in texts.
typer.core.HAS_RICH = False

app = typer.Typer(
    name="fedcompass",
    help="Federated learning for clients of unequal speed.",
    no_args_is_help=True,
    add_completion=False,  # `fedcompass completion` prints the scripts
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fedcompass {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print and exit."),
    ] = False,
    debug: Annotated[  # taken off the line before, so that it may stand anywhere
        bool, typer.Option("--debug", help="Show the traceback of an error, too.")
    ] = False,
) -> None:
    """Federated learning for clients of unequal speed."""


app.command(cls=settings_command())(run)
app.command(cls=settings_command("strategy", "seed"))(compare)
for command in (sweep, table, report, watch, plot, schedule, partition, fleet, advise, strategies):
    app.command()(command)
app.command()(completion)
for name, group in {"data": data, "paper": paper, "deploy": deploy, "flower": flower}.items():
    app.add_typer(group, name=name)
