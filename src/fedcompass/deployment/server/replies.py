"""What a site reports, believing nothing: a value that can be true, or why not."""

import re
from dataclasses import replace

from fedcompass.coordinator import possible
from fedcompass.deployment.wire.transport import Greeting, Reply

__all__ = ["checked_greeting", "spent_by"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_SAMPLES = 10**12


def checked_greeting(greeting: Greeting, max_samples: int | None = None) -> Greeting | str:
    """Who a site is, without a name that we would not write down; or why it cannot take part.

    Args:
        greeting: what it said.
        max_samples: the most samples it may claim: they are its weight.
    """
    site, samples = greeting.site, greeting.samples
    if not 1 <= samples <= _MOST_SAMPLES:
        return "does not say how many samples it has (samples, or num-examples of a first answer)"
    if site is not None and _NAME.fullmatch(site) is None:
        site = None
    if max_samples is not None and samples > max_samples:
        return f"{site or 'it'} claims {samples} samples; max_samples allows {max_samples}"
    return replace(greeting, site=site)


def spent_by(reply: Reply) -> dict[str, float]:
    """What a site says it has spent of its privacy budget: epsilon and delta, or nothing."""
    epsilon, delta = possible(reply.epsilon), possible(reply.delta)
    if epsilon is None or delta is None or not 0 < delta < 1:
        return {}
    return {"epsilon": epsilon, "delta": delta}
