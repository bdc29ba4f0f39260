"""A run's lines, packed small enough to travel inside the page."""

import base64
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedcompass.runs.tally import is_made

__all__ = ["Packed", "pack"]

_DIGITS = 9
"""Significant digits kept of a number: far more than a picture shows, and half the bytes."""

_LINES_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class Packed:
    """Lines as base64 of gzip.

    left_out: how many of the file's lines were left out at its end.
    kinds: how many of its lines were of each kind of event or command; not merges that failed.
    """

    text: str
    left_out: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)


def pack(records: Iterable[Mapping[str, Any]], limit: int) -> Packed:
    """Lines in at most about `limit` characters; the end of longer ones is left out."""
    packer = zlib.compressobj(level=9, wbits=31)  # 31: with gzip's header, without a date
    parts: list[bytes] = []
    lines: list[str] = []
    size = left_out = 0
    kinds: Counter[str] = Counter()

    def flush(how: Callable[[], bytes] | None = None) -> int:
        nonlocal lines
        part = packer.compress("".join(lines).encode())
        part += how() if how else b""
        parts.append(part)
        lines = []
        return len(part)

    for record in records:
        if is_made(record):
            kinds[record.get("event") or record.get("command") or ""] += 1
        if size * 4 / 3 > limit:
            left_out += 1
            continue
        lines.append(json.dumps(_rounded(record), separators=(",", ":")) + "\n")
        if len(lines) == _LINES_AT_ONCE:
            size += flush()
    flush(packer.flush)
    text = base64.b64encode(b"".join(parts)).decode("ascii")
    return Packed(text if kinds else "", left_out, dict(kinds))


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
