"""Tensors and JSON facts in one safetensors file that is either the old one or the new one."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedcompass.errors import CheckpointError

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint"]

FORMAT = 1
"""Rises when the meaning of a checkpoint changes."""

_KEY = "fedcompass"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a file holds."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write atomically: a crash, at any moment, leaves the previous file or the whole new one.

    Raises:
        CheckpointError: it cannot be written (a full disk, no permission); the old file stays.
    """
    beside = path.with_name(f".{path.name}.partial")  # one name, so that crashes leave one at most
    try:
        metadata = {_KEY: json.dumps({**facts, "format": FORMAT})}
        save_file({name: t.contiguous().cpu() for name, t in tensors.items()}, beside, metadata)
        _sync(beside)
        beside.replace(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} could not be written: {error}. The checkpoint before it is untouched; "
            "free some space or choose another folder, then resume."
        ) from None
    finally:
        with suppress(OSError):  # where there is no such folder there is nothing to remove
            beside.unlink(missing_ok=True)
    with suppress(OSError):  # some file systems cannot sync a folder; the file is in place
        _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        CheckpointError: missing, damaged, or not one of ours.
    """
    if not path.is_file():
        raise CheckpointError(f"{path} is not there; nothing to resume from")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    return Checkpoint(tensors, _facts(path, metadata))


def _facts(path: Path, metadata: str | None) -> dict[str, Any]:
    if metadata is None:
        raise CheckpointError(f"{path} is not a fedcompass checkpoint; give one a run has saved")
    try:
        facts = json.loads(metadata)
        found = facts.pop("format", None)
    except (ValueError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if found != FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {found!r}; this version reads {FORMAT}"
        )
    return dict(facts)
