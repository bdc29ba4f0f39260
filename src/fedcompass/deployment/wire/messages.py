"""What server and site say to each other; plain values, so that neither torch nor Flower is needed.

query   server: protocol, run                          site: samples, site, fedcompass, protocol
train   server: steps, task, version, run, protocol    site: steps_done, seconds, num-examples,
        and the model to start from                          task, version, and the end model

A site has to honour `steps` and report `steps_done`, `seconds` (of computing) and `num-examples`;
the rest may be missing.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

from fedcompass.vocabulary import ModelVersion, Steps, TaskId

__all__ = [
    "KEPT",
    "PROTOCOL",
    "Facts",
    "Kind",
    "one_line",
    "query_facts",
    "train_facts",
    "without_folders",
]

PROTOCOL = 1
"""Rises when the meaning of a message changes."""

KEPT = "kept"
"""The form of an answer whose update stays at the site until a secure sum asks for it."""

_LONGEST = 300  # characters of a text that one side hands to the other
_QUOTED_FOLDER = re.compile(r"""(?<=['"])/[^'"]*/(?=[^'"/]*['"])""")
_FOLDER = re.compile(r"""(?<![\w./~])~?/(?:[^\s/:;,'"()\[\]]+/)+""")

Kind: TypeAlias = Literal["query", "train"]
"""A query asks who a site is; train gives it a task."""

Facts: TypeAlias = dict[str, int | float | str]
"""Everything in a message that is not an array."""


def query_facts(run: str) -> Facts:
    """The facts of a query."""
    return {"protocol": PROTOCOL, "run": run}


def train_facts(
    *, steps: Steps, task: TaskId, version: ModelVersion, run: str, refused: str | None = None
) -> Facts:
    """The facts of a task.

    Args:
        steps: how many to train, exactly.
        task: its number; echoed in the answer.
        version: the model's.
        run: the run's name, so that a site never mixes up two runs' tasks.
        refused: why the site's answer before this one was refused, if it was.
    """
    facts: Facts = {
        "steps": steps,
        "task": task,
        "version": version,
        "run": run,
        "protocol": PROTOCOL,
    }
    return facts if refused is None else {**facts, "refused": refused}


def without_folders(text: str, known: Iterable[Path] = ()) -> str:
    """A text with files' names in place of their absolute paths: a site's folders are its own.

    Args:
        text: what is to leave the site.
        known: folders that may occur in it; one whose name has a space is found only so.
    """
    for folder in sorted({str(folder) for folder in known if folder.is_absolute()}, reverse=True):
        text = text.replace(f"{folder}/", "")
    return _FOLDER.sub("", _QUOTED_FOLDER.sub("", text))


def one_line(text: str) -> str:
    """What a site, an app or an engine said, as one short line that can be printed."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text[:4000]).split())
    return words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…"
