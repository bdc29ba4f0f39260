"""What a fleet of unequal clients is made of (paper, "Client Heterogeneity Simulation")."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from fedcompass.settings import Settings
from fedcompass.settings.per_client import PerClient, numbers, spread_out
from fedcompass.vocabulary import Seconds

__all__ = [
    "PAPER_SECONDS_PER_STEP",
    "Dropout",
    "FleetSettings",
    "Speed",
    "SpeedChange",
]

PAPER_SECONDS_PER_STEP: dict[str, Seconds] = {
    "mnist": 0.15,
    "cifar10": 0.5,
    "fed-ixi": 0.8,
    "fed-isic2019": 1.5,
}
"""The paper's mean seconds per step of each dataset."""

Speed: TypeAlias = Literal["homogeneous", "normal", "exponential", "trace"]
"""How the clients' paces are spread: all equal, drawn from a distribution, or read from a file."""


class SpeedChange(Settings):
    """From a local round on (the warm-up is round 0), a client has this pace."""

    client: int = Field(ge=0)
    from_round: int = Field(ge=0)
    seconds_per_step: Seconds = Field(gt=0)


class Dropout(Settings):
    """A client is away from a virtual time until it returns, or for the rest of the run."""

    client: int = Field(ge=0)
    at: Seconds = Field(ge=0)
    returns_at: Seconds | None = None


def _listed(kind: type[Settings]) -> BeforeValidator:
    """Accept each item of a list as its bare values in order: `[2, 1, 0.3]`."""
    names = list(kind.model_fields)
    allowed = f"[{', '.join(names)}]"

    def named(items: Any, info: ValidationInfo) -> Any:
        if not isinstance(items, (list, tuple)):
            raise ValueError(f"{info.field_name} is {items!r}; allowed: a list of {allowed}")
        return tuple(
            _named_values(item, names, f"{info.field_name} has {item!r}") for item in items
        )

    return BeforeValidator(named)


def _named_values(item: Any, names: Sequence[str], what: str) -> Any:
    if isinstance(item, (list, tuple)) and len(item) <= len(names):
        return dict(zip(names, item, strict=False))
    if not isinstance(item, (dict, Settings)):
        raise ValueError(f"{what}; allowed: [{', '.join(names)}]")
    return item


_PACES = numbers("a list with one number above 0 per client", alone=False)
_LATENCY = numbers("a number at least 0, or a list with one per client", zero=True)
_BANDWIDTH = numbers("a number above 0, or a list with one per client; leave it out for no limit")


class FleetSettings(Settings):
    """How many clients there are, how fast each one is, and what happens to them.

    clients: number of clients.
    speed: how the clients' paces are spread, or read from a file.
    mean_seconds_per_step: mean of the distribution; `PAPER_SECONDS_PER_STEP` has the paper's.
    spread: standard deviation of the normal distribution as a fraction of the mean.
    jitter: each local round takes t ~ N(base, (jitter * base)²) seconds per step.
    floor: no drawn pace falls below this fraction of the mean. An exponential draw comes
        arbitrarily near 0, and a client 1000 times faster than the mean would decide every
        experiment: it is lifted to the floor. A normal one may be negative: it is drawn again.
        A pace you give yourself is held to this fraction of itself, so only jitter can meet the
        floor.
    resample_probability: chance, at the start of each local round after the first, that a client's
        pace is drawn anew (the paper's speed-change study uses 0.1).
    changes: scripted changes of pace; the later of a change and a redraw counts.
    paces: seconds per step of each client, instead of a first draw.
    trace: CSV file with the columns client,seconds_per_step or client,round,seconds_per_step.
    least_task_seconds: no task takes less than this, however few steps it has.
    nap_seconds: a client's answer waits for the end of a nap: beyond `least_task_seconds` a task
        takes a whole number of naps. 0, the default: no naps. The paper's authors' code slept
        second by second until a task's simulated time was over.
    latency_seconds: one-way delay of a message, paid down and up.
    bandwidth_bytes_per_second: of the client's link, paid down and up; absent, it is unlimited.
    dropouts: scripted absences in virtual time.
    dropout_probability: chance, per local round, that a client drops out during it.
    dropout_seconds: mean absence (exponential) after such a drop.
    """

    clients: int = Field(default=5, ge=1)
    speed: Speed = "exponential"
    mean_seconds_per_step: Seconds = Field(default=PAPER_SECONDS_PER_STEP["mnist"], gt=0)
    spread: float = Field(default=0.3, ge=0)
    jitter: float = Field(default=0.05, ge=0)
    floor: float = Field(default=0.02, gt=0, le=1)
    resample_probability: float = Field(default=0.0, ge=0, le=1)
    changes: Annotated[tuple[SpeedChange, ...], _listed(SpeedChange)] = ()
    paces: Annotated[tuple[float, ...], _PACES] | None = None
    trace: Path | None = None
    least_task_seconds: Seconds = Field(default=0.0, ge=0)
    nap_seconds: Seconds = Field(default=0.0, ge=0)
    latency_seconds: Annotated[PerClient, _LATENCY] = 0.0
    bandwidth_bytes_per_second: Annotated[PerClient, _BANDWIDTH] | None = None
    dropouts: Annotated[tuple[Dropout, ...], _listed(Dropout)] = ()
    dropout_probability: float = Field(default=0.0, ge=0, le=1)
    dropout_seconds: Seconds = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _check(self) -> "FleetSettings":
        checks = (
            self._length_problems,
            self._script_problems,
            self._source_problems,
            self._dropout_problems,
        )
        for problems in checks:
            for problem in problems():
                raise ValueError(problem)
        return self

    def _length_problems(self) -> Iterator[str]:
        """A list with one number per client has that many."""
        for name in ("paces", "latency_seconds", "bandwidth_bytes_per_second"):
            values = getattr(self, name)
            if isinstance(values, tuple) and len(values) != self.clients:
                yield f"{name} has {len(values)} values for {self.clients} clients; give one each"

    def _script_problems(self) -> Iterator[str]:
        """Scripts name existing clients, and a round's pace once."""
        for name, scripted in (("changes", self.changes), ("dropouts", self.dropouts)):
            for entry in scripted:
                if entry.client >= self.clients:
                    last = self.clients - 1
                    yield f"{name} names client {entry.client}; allowed: 0 to {last}"
        seen = set()
        for change in self.changes:
            key = (change.client, change.from_round)
            if key in seen:
                yield f"changes has two for client {key[0]} from round {key[1]}; keep one"
            seen.add(key)

    def _source_problems(self) -> Iterator[str]:
        """Paces come from one source."""
        if self.speed != "trace":
            if self.trace is not None:
                yield f"trace is {str(self.trace)!r} but speed is {self.speed!r}; set speed='trace'"
            return
        if self.trace is None:
            yield "speed is 'trace' but trace is missing; give the path of a CSV file"
        for name in ("paces", "changes", "resample_probability"):
            if getattr(self, name):
                yield f"{name} cannot be used with speed='trace'; write the paces into the trace"

    def _dropout_problems(self) -> Iterator[str]:
        """Absences end after they begin, and a client does not leave while it is gone."""
        if self.dropout_probability > 0 and self.dropout_seconds == 0:
            yield (
                f"dropout_probability is {self.dropout_probability:g} but dropout_seconds is 0; "
                "give the mean absence in seconds"
            )
        for drop in self.dropouts:
            if drop.returns_at is not None and drop.returns_at <= drop.at:
                yield (
                    f"dropouts: client {drop.client} leaves at {drop.at:g} and returns at "
                    f"{drop.returns_at:g}; allowed: a return after {drop.at:g}"
                )
        for earlier, later in pairwise(sorted(self.dropouts, key=lambda d: (d.client, d.at))):
            if earlier.client == later.client and later.at < (earlier.returns_at or inf):
                yield f"dropouts: client {later.client} leaves at {later.at:g} but is gone already"

    def per_client_latency(self) -> tuple[Seconds, ...]:
        """One-way latency of each client."""
        return spread_out(self.latency_seconds, self.clients)

    def per_client_bandwidth(self) -> tuple[float, ...]:
        """Bytes per second of each client's link; infinite where there is no limit."""
        bandwidth = self.bandwidth_bytes_per_second
        return spread_out(inf if bandwidth is None else bandwidth, self.clients)
