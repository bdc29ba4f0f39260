"""Reading what a site reports, believing nothing: facts of the right kind, or why not."""

import re
from dataclasses import dataclass
from math import isfinite

from fedcompass.aggregation import RefusedUpdate
from fedcompass.deployment.wire.messages import PROTOCOL, Facts
from fedcompass.scheduling.commands import StartTraining
from fedcompass.vocabulary import ModelVersion, Refusal, Seconds, Steps

__all__ = ["Greeting", "TaskReport", "read_greeting", "read_spent", "read_task_report"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_SAMPLES = 10**12


@dataclass(frozen=True, slots=True)
class Greeting:
    """Who a site says it is."""

    site: str | None  # None: it gave no name, or none we would write down
    samples: int


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What a site says it did; the coordinator compares it with its task."""

    version: ModelVersion
    steps_done: Steps
    seconds: Seconds | None  # of computing; None: it does not say


def read_greeting(facts: Facts, max_samples: int | None = None) -> Greeting | str:
    """Who a site is, or why it cannot take part.

    Args:
        facts: what it said.
        max_samples: the most samples it may claim: they are its weight.
    """
    protocol = facts.get("protocol", PROTOCOL)
    if protocol != PROTOCOL:
        return f"speaks protocol {str(protocol)[:20]!r}, this server {PROTOCOL}; upgrade the older"
    samples = _whole(facts.get("samples", facts.get("num-examples")))
    if samples is None or not 1 <= samples <= _MOST_SAMPLES:
        return "does not say how many samples it has (samples, or num-examples of a first answer)"
    site = facts.get("site")
    name = site if isinstance(site, str) and _NAME.fullmatch(site) else None
    if max_samples is not None and samples > max_samples:
        return f"{name or 'it'} claims {samples} samples; max_samples allows {max_samples}"
    return Greeting(name, samples)


def read_task_report(facts: Facts, order: StartTraining) -> TaskReport | RefusedUpdate:
    """What was done for a task, or why the answer is refused; a missing echo is filled in."""
    task = facts.get("task", order.task)
    if task != order.task:
        message = f"the answer to task {order.task} says it is task {str(task)[:20]}"
        return RefusedUpdate(reason=Refusal.UNEXPECTED_TASK, message=message)
    steps = _whole(facts.get("steps_done"))
    if steps is None:
        message = "the answer has no steps_done, or one that is not a whole number; report it"
        return RefusedUpdate(reason=Refusal.WRONG_STEPS, message=message)
    version = _whole(facts.get("version", order.version))
    return TaskReport(
        -1 if version is None else version, steps, _not_negative(facts.get("seconds"))
    )


def read_spent(facts: Facts) -> dict[str, float]:
    """What a site says it has spent of its privacy budget: epsilon and delta, or nothing."""
    epsilon, delta = _not_negative(facts.get("epsilon")), _not_negative(facts.get("delta"))
    if epsilon is None or delta is None or not 0 < delta < 1:
        return {}
    return {"epsilon": epsilon, "delta": delta}


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


def _not_negative(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) and number >= 0 else None
