"""The schedulers by name, as journals and experiments give them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedcompass.errors import SettingsError
from fedcompass.scheduling.compass import Compass, CompassSettings
from fedcompass.scheduling.immediate import BufferedSettings, Immediate, buffered
from fedcompass.scheduling.metronome import Metronome, MetronomeSettings
from fedcompass.scheduling.policy import FixedStepsSettings, Policy, SchedulerSettings
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.scheduling.synchronous import Synchronous
from fedcompass.scheduling.tiered import Tiered, TieredSettings

__all__ = ["PolicyKind", "new_scheduler", "policy_kind", "register_policy"]


class PolicyKind(NamedTuple):
    """A kind of scheduler: what it can be told, and how it is made."""

    settings: type[SchedulerSettings]
    build: Callable[[Any], Policy]  # takes an instance of `settings`


_KINDS: dict[str, PolicyKind] = {
    "compass": PolicyKind(CompassSettings, Compass),
    "synchronous": PolicyKind(FixedStepsSettings, Synchronous),
    "immediate": PolicyKind(FixedStepsSettings, Immediate),
    "buffered": PolicyKind(BufferedSettings, buffered),
    "tiered": PolicyKind(TieredSettings, Tiered),
    "metronome": PolicyKind(MetronomeSettings, Metronome),
}


def register_policy(
    name: str, settings: type[SchedulerSettings], build: Callable[[Any], Policy]
) -> None:
    """Make a scheduler of your own known by name; the name must be free (or mean the same)."""
    kind = PolicyKind(settings, build)
    if _KINDS.setdefault(name, kind) != kind:
        raise SettingsError(f"a scheduler named {name!r} exists already; choose another name")


def policy_kind(name: str) -> PolicyKind:
    """Look a scheduler up.

    Raises:
        SettingsError: there is none of that name.
    """
    if name not in _KINDS:
        raise SettingsError(f"scheduler is {name!r}; allowed: {', '.join(_KINDS)}")
    return _KINDS[name]


def new_scheduler(name: str, settings: SchedulerSettings) -> Scheduler:
    """A fresh scheduler of a kind."""
    return Scheduler(policy_kind(name).build(settings))
