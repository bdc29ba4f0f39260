"""Lines of the audit log that people are told while a run goes on."""

from typing import Any

__all__ = ["in_words"]

_TOLD = (
    "joined",
    "turned away",
    "left",
    "revoked",
    "refused",
    "task lost",
    "claims most samples",
    "has had its share",
    "quarantined",
    "sum failed",
    "accused",
    "spoiler found",
    "paused",
    "readmitted",
    "not readmitted",
    "resumed",
    "returned",
    "second process",
    "connected anew",
    "evaluation failed",
    "diverged",
    "no best model",
    "must wait",
    "account set back",
    "disk full",
)


def in_words(line: dict[str, Any]) -> str | None:
    """A line of the log as people read it; None: it is not worth a word."""
    what, at = line["what"], f"{line.get('at', 0.0):7.1f} s"
    if what not in _TOLD:
        return None
    if what == "resumed":
        run = f"run {line['run']}" if "run" in line else "the run"
        return f"{at}  {run} resumed at version {line.get('version', '?')}"
    if what == "sum failed":
        lost = ", ".join(f"{client}'s {task}" for client, task in line["lost"]) or "none"
        took_part = f" of {', '.join(line['members'])}" if line["members"] else ""
        names = line.get("among", [])
        among = f"; {'one of ' if names[1:] else ''}{', '.join(names)} spoiled it" if names else ""
        return f"{at}  a sum{took_part} failed{among}; updates lost: {lost}: {line['why']}"
    if what == "paused":
        return f"{at}  paused: {', '.join(line['sites'])}: {line['why']}"
    who = line.get("who") or (f"node {line['node']}" if "node" in line else "")
    why = line.get("reason") or line.get("why") or ""
    by = f" by {line['by']}" if "by" in line else ""
    samples = f" with {line['samples']:,} samples" if "samples" in line else ""
    return f"{at}  {f'{who} {what}'.strip()}{by}{samples}{': ' if why else ''}{why}"
