"""Tensors and JSON facts in one safetensors file that is either the old one or the new one.

A checksum of both ends the facts, so that a file that was damaged later is refused.
"""

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedcompass.errors import CheckpointError
from fedcompass.runs.files import replacing

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint", "save_model"]

FORMAT = 1
"""Rises when the meaning of a checkpoint changes."""

_KEY = "fedcompass"
_CRC = re.compile(r', "crc": (\d+)}\Z')  # ends the facts; files from before it have none


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
    text = json.dumps({**facts, "format": FORMAT})
    saved = {name: t.detach().contiguous().cpu() for name, t in tensors.items()}
    text = f'{text[:-1]}, "crc": {_checksum(text, saved)}}}'
    _save(path, saved, {_KEY: text})


def save_model(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a model atomically, as tensors by name for `load_state_dict`; anybody may read it.

    Raises:
        CheckpointError: it cannot be written; the old file stays.
    """
    _save(path, {name: t.detach().cpu().clone() for name, t in tensors.items()}, mode=0o644)


def _save(
    path: Path,
    tensors: dict[str, Tensor],
    metadata: dict[str, str] | None = None,
    mode: int | None = None,
) -> None:
    try:
        with replacing(path) as beside:
            save_file(tensors, beside, metadata)
            if mode is not None:
                beside.chmod(mode)  # safetensors makes it private
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} could not be written: {error}. The checkpoint before it is untouched; "
            "free some space or choose another folder, then resume."
        ) from None


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
    return Checkpoint(tensors, _facts(path, _checked(path, metadata, tensors)))


def _checked(path: Path, text: str | None, tensors: Mapping[str, Tensor]) -> str | None:
    """The facts' text without its checksum, which must be that of the content."""
    found = _CRC.search(text) if text is not None else None
    if text is None or found is None:
        return text
    text = text[: found.start()] + "}"
    crc = _checksum(text, tensors)
    if int(found[1]) != crc:
        raise CheckpointError(
            f"{path} is damaged: its checksum is {found[1]}, its content gives {crc}; "
            "restore it from a backup"
        )
    return text


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> int:
    """CRC-32 of facts and of tensors on the CPU, in the order of their names."""
    crc = zlib.crc32(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        crc = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), crc)
        crc = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, crc)
    return crc


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
