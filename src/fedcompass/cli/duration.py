"""Lengths of time as people write them: 9m, 1h30m, 45s."""

import re

from fedcompass.errors import SettingsError
from fedcompass.vocabulary import Seconds

__all__ = ["in_words", "parse_duration"]

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_PART = r"(\d+(?:\.\d+)?)"
_PATTERN = re.compile(rf"(?:{_PART}h)?(?:{_PART}m)?(?:{_PART}s?)?")


def parse_duration(text: str, option: str = "--budget") -> Seconds:
    """Seconds of "9m", "1h30m", "90s" or "90".

    Raises:
        SettingsError: it is none of these, or nothing.
    """
    match = _PATTERN.fullmatch(text.strip())
    parts = match.groups(default="0") if match else ()
    seconds = sum(float(part) * unit for part, unit in zip(parts, _UNITS.values(), strict=False))
    if seconds <= 0:
        raise SettingsError(f"{option} is {text!r}; allowed: such as 9m, 90s or 1h30m")
    return seconds


def in_words(seconds: Seconds) -> str:
    """A length of time in at most two units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole < 600 else f"{round(whole / 60)} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
