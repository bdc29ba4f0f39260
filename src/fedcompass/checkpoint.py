"""Tensors and JSON facts in one safetensors file that is either the old one or the new one."""

import json
import os
from collections.abc import Mapping
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
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        metadata = {_KEY: json.dumps({"format": FORMAT, **facts})}
        save_file({name: t.contiguous() for name, t in tensors.items()}, beside, metadata)
        _sync(beside)
        beside.replace(path)
        _sync(path.parent)
    except (OSError, SafetensorError) as error:
        beside.unlink(missing_ok=True)
        raise CheckpointError(
            f"{path} could not be written: {error}. The checkpoint before it is untouched; "
            "free some space or choose another folder, then resume."
        ) from None


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
        facts = json.loads(metadata) if metadata else {}
    except (OSError, SafetensorError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if facts.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {facts.get('format')!r}; this version reads {FORMAT}"
        )
    return Checkpoint(tensors, facts)
