"""The command line: one file per command. Heavy imports happen inside the commands."""

import sys

from fedcompass.cli.app import app
from fedcompass.errors import FedcompassError

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; an error of ours is one line and exit code 1."""
    try:
        app()
    except FedcompassError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
