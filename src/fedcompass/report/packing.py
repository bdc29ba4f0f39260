"""A run's lines, packed small enough to travel inside the page."""

import base64
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedcompass.errors import RunFolderError
from fedcompass.runs.journal import read_journal

__all__ = ["Packed", "pack_journal", "pack_metrics"]

_DIGITS = 9
"""Significant digits kept of a number: far more than a picture shows, and half the bytes."""

_LINES_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class Packed:
    """Lines as base64 of gzip.

    left_out: how many of the file's lines were left out at its end.
    kinds: how many of its lines were of each kind of event or command.
    """

    text: str
    left_out: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)


def pack_journal(path: Path, limit: int) -> Packed:
    """A journal in at most about `limit` characters; the end of a longer one is left out.

    Raises:
        JournalError: it cannot be read.
    """
    if not path.is_file():
        return Packed("")
    kinds: Counter[str] = Counter()

    def counted() -> Iterator[dict[str, Any]]:
        for _, record in read_journal(path):
            kinds[record.get("event") or record.get("command") or ""] += 1
            yield record

    packed = _pack(counted(), limit)
    return replace(packed, kinds=dict(kinds))


def pack_metrics(path: Path, limit: int) -> Packed:
    """A run's evaluations; a last line cut off by a crash is left out.

    Raises:
        RunFolderError: a line is damaged.
    """
    return _pack(_metric_rows(path), limit) if path.is_file() else Packed("")


def _metric_rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith("\n"):
                return
            try:
                yield json.loads(line)
            except ValueError as error:
                raise RunFolderError(f"{path}: line {number} is damaged: {error}") from None


def _pack(records: Iterator[dict[str, Any]], limit: int) -> Packed:
    packer = zlib.compressobj(level=9, wbits=31)  # 31: with gzip's header, without a date
    parts: list[bytes] = []
    lines: list[str] = []
    size = left_out = 0

    def flush(how: Callable[[], bytes] | None = None) -> int:
        nonlocal lines
        part = packer.compress("".join(lines).encode())
        part += how() if how else b""
        parts.append(part)
        lines = []
        return len(part)

    for record in records:
        if size * 4 / 3 > limit:
            left_out += 1
            continue
        lines.append(json.dumps(_rounded(record), separators=(",", ":")) + "\n")
        if len(lines) == _LINES_AT_ONCE:
            size += flush()
    flush(packer.flush)
    return Packed(base64.b64encode(b"".join(parts)).decode("ascii"), left_out)


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.{_DIGITS}g}")
        case dict():
            return {key: _rounded(item) for key, item in value.items()}
        case list():
            return [_rounded(item) for item in value]
        case _:
            return value
