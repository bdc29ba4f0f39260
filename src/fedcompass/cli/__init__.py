"""The command line: one file per command. Heavy imports happen inside the commands."""

import os
import signal
import sys
import traceback

from fedcompass.cli.app import app
from fedcompass.cli.completion import answer_shells
from fedcompass.cli.interrupts import ignore_further, stop_cleanly_at
from fedcompass.error_text import is_of_user, told
from fedcompass.errors import FedcompassError

__all__ = ["app", "main"]

_DEBUG = "FEDCOMPASS_DEBUG"


def main() -> None:
    """Run the command line; print an error the user can act on as one line, exit with 1.

    `--debug`, anywhere on the line, or FEDCOMPASS_DEBUG=1 shows its traceback too.
    """
    stop_cleanly_at(signal.SIGINT)
    debug = _asked_to_debug()
    answer_shells()
    try:
        app()
    except FedcompassError as error:
        _end(str(error), debug=debug)
    except OSError as error:
        if error.filename is None:
            raise  # not about a file of the user's
        _end(f"{error.filename}: {error.strerror}", debug=debug)
    except Exception as error:
        if not is_of_user(error):
            raise  # a bug of ours
        _end(f"your code raised {told(error)}; --debug shows the traceback", debug=debug)
    finally:
        ignore_further()


def _asked_to_debug() -> bool:
    """Whether to show tracebacks; takes the option off the line, wherever it stands."""
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = sys.argv[1:end]
    if "--debug" in options:
        sys.argv[1:end] = [option for option in options if option != "--debug"]
        os.environ[_DEBUG] = "1"
    return os.environ.get(_DEBUG, "") not in ("", "0")


def _end(message: str, *, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    print(f"error: {message}", file=sys.stderr)
    sys.exit(1)
