"""What a site reports, believing nothing: a value that can be true, or why not."""

import json
import re
from dataclasses import replace
from pathlib import Path

from fedcompass.coordinator import possible
from fedcompass.deployment.wire.transport import Greeting, Reply
from fedcompass.errors import RunFolderError
from fedcompass.runs.files import write_whole
from fedcompass.vocabulary import ClientId

__all__ = ["LargestSpent", "checked_greeting", "spent_by"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_SAMPLES = 10**12
_ACCURACY = 0.01  # of an epsilon: it may be too high by this


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


class LargestSpent:
    """What each site has reported of its privacy budget at most, in any run: it never falls.

    Args:
        path: where that is kept from run to run; None: nowhere.

    Raises:
        RunFolderError: the file is damaged.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._largest: dict[ClientId, dict[str, float]] = {}  # epsilon and delta
        self._latest: dict[ClientId, float] = {}  # epsilon
        if path is None or not path.exists():
            return
        try:
            for site, spent in json.loads(path.read_text(encoding="utf-8")).items():
                self._largest[site] = {name: float(spent[name]) for name in ("epsilon", "delta")}
        except (OSError, AttributeError, KeyError, TypeError, ValueError, RecursionError):
            raise RunFolderError(
                f"{path}, what sites have spent of their privacy budgets, is damaged; restore it "
                "from a backup, or remove it: then this server begins to remember anew"
            ) from None

    def problem(self, site: ClientId, spent: dict[str, float]) -> str | None:
        """Why an account at the site must have been lost or set back; said once for each fall."""
        before, latest = self._largest.get(site), self._latest.get(site)
        if before is None:
            if spent:
                self._remember(site, spent)
            return None
        now = spent.get("epsilon", 0.0)
        self._latest[site] = now
        told = f"{before['epsilon']:.4g} (delta {before['delta']:.2g}) before"
        if spent and spent["delta"] != before["delta"]:
            self._remember(site, spent)
            return f"its delta is {spent['delta']:.2g}, with epsilon {now:.4g}; it was {told}"
        if now > before["epsilon"]:
            self._remember(site, spent)
            return None
        fell = now < before["epsilon"] - _ACCURACY and (latest is None or now < latest - _ACCURACY)
        if not fell:
            return None
        reports = f"epsilon {now:.4g} spent" if spent else "no privacy budget"
        return f"it reports {reports}, and had {told}: its account was lost or set back; ask there"

    def _remember(self, site: ClientId, spent: dict[str, float]) -> None:
        self._largest[site], self._latest[site] = spent, spent["epsilon"]
        if self._path is not None:
            write_whole(self._path, json.dumps(self._largest) + "\n")
