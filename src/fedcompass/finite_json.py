"""JSON that every reader takes."""

import json
from math import isfinite
from typing import Any

__all__ = ["finite", "json_text"]


def json_text(value: Any, indent: int | None = None) -> str:
    """A value as JSON; a number that is not finite is null."""
    return json.dumps(finite(value), indent=indent, allow_nan=False)


def finite(value: Any) -> Any:
    """The same without numbers that JSON does not have."""
    match value:
        case float():
            return value if isfinite(value) else None
        case dict():
            return {key: finite(item) for key, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
        case _:
            return value
