"""`fedcompass completion`: what makes a shell complete our commands, options and their values."""

import os
from typing import Annotated

import typer

from fedcompass.cli.options import check_choice

__all__ = ["answer_shells", "completion"]

_SHELLS = ("bash", "zsh", "fish")
_ASKED = "_FEDCOMPASS_COMPLETE"  # set by the printed scripts when a shell asks what could follow


def completion(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")],
) -> None:
    """Print a script that makes the Tab key complete fedcompass's commands and options.

    In ~/.bashrc: eval "$(fedcompass completion bash)"; zsh and fish likewise.
    """
    check_choice("the shell", shell, _SHELLS)
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="fedcompass", complete_var=_ASKED, shell=shell)
    if shell == "zsh":
        script = f"(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit; }}\n{script}"
    print(script)


def answer_shells() -> None:
    """Let a shell that asks what could follow get its answer; costs nothing if none asks."""
    if _ASKED in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
