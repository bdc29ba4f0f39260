"""Settings as plain tables: laid over each other, nested, and asked for unknown keys.

Apart from `settings`, whose checks need pydantic: a reader of stored runs does without.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["flat", "merged", "nearest", "nested", "unknown_key", "unknown_name"]


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of settings laid over each other: later ones win, nested tables key by key."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
            result[key] = merged(result[key], value) if both else value
    return result


def nested(key: str, value: Any) -> dict[str, Any]:
    """{"a": {"b": value}} for "a.b"."""
    for part in reversed(key.split(".")):
        value = {part: value}
    result: dict[str, Any] = value
    return result


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a.b": value} for {"a": {"b": value}}."""
    result: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result


def unknown_key(key: str, known: Iterable[str], where: str, what: str = "setting") -> str:
    """Say that a key is unknown, list the known ones and point at the nearest."""
    known = list(known)
    return f"{where} has no {what} {key!r}{nearest(key, known)}; it has: {', '.join(known)}"


def unknown_name(name: str, known: Iterable[str], what: str) -> str:
    """Say that nothing of a kind has this name, list those there are and point at the nearest."""
    known = list(known)
    return f"{name!r} is no {what}{nearest(name, known)}; there are: {', '.join(known)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """A question after a name that nothing has: whether the most similar one was meant."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
