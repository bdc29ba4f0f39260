"""How updates are checked, weighted, scaled and applied; `aggregation/` does it."""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic import Field, model_validator

from fedcompass.settings import Settings

__all__ = [
    "TIMES_MEDIAN",
    "AggregationSettings",
    "GuardSettings",
    "Payload",
    "ServerSettings",
    "StalenessSettings",
    "TierSettings",
]

Payload: TypeAlias = Literal["delta", "model"]
"""What clients send as the trainable part: the change w_start - w_end, or the end model."""


TIMES_MEDIAN = 100.0
"""`times_median` where clients are sites."""


class StalenessSettings(Settings):
    """Which staleness function st(u), and its parameters in the paper's letters.

    `growing` is the polynomial with its exponent's sign turned round: a stale update weighs more
    than a fresh one. No paper proposes it; the public code of the FedCompass paper's authors had it
    when the paper was written (docs/as-run.md).
    """

    kind: Literal["polynomial", "hinge", "constant", "growing"] = "polynomial"
    """What st(u) is, in a `weighting` that has it; growing: a stale update weighs more, as in the
    public code of the paper's authors."""

    alpha: float = Field(default=0.9, gt=0, le=1, description="factor of a fresh update")
    a: float = Field(default=0.5, ge=0, description="how fast the factor falls (growing: rises)")
    b: float = Field(default=4.0, ge=0, description="hinge only: staleness that costs nothing")


class ServerSettings(Settings):
    """Which server optimizer, and its parameters."""

    optimizer: Literal["plain", "momentum", "adam", "yogi", "adagrad"] = Field(
        default="plain", description="what the server does with a merged step; plain: add it"
    )
    learning_rate: float = Field(default=1.0, gt=0, description="η_g, for every optimizer")
    beta: float = Field(default=0.9, ge=0, lt=1, description="momentum only")
    beta1: float | None = Field(
        default=None, ge=0, lt=1, description="first moment; unset: 0.9, and 0 for adagrad"
    )
    beta2: float = Field(default=0.99, ge=0, lt=1, description="second moment; adam and yogi")
    tau: float = Field(default=1e-3, gt=0, description="adaptivity of adam, yogi and adagrad")
    delay_limit: int | None = Field(
        default=None,
        ge=0,
        description="τ_c: where the stalest update of a merge is older, η_g is divided by its "
        "staleness (FADAS); unset: never",
    )


class _Wanted(NamedTuple):
    """Who wants which values of other settings."""

    by: str
    needs: Mapping[str, Sequence[Any]]


class AggregationSettings(Settings):
    """How updates are weighted, scaled and applied; the defaults are FedCompass's."""

    staleness: StalenessSettings = StalenessSettings()
    server: ServerSettings = ServerSettings()
    weighting: Literal["staleness-share", "staleness", "share"] = Field(
        default="staleness-share", description="an update's weight: st(u) p_i, st(u) or p_i"
    )
    scale: Literal["none", "mean-share", "mean-count"] = Field(
        default="none",
        description="divide a merged sum by nothing, by the shares of those who answered "
        "(synchronous rounds) or by the number of updates (FedBuff's K)",
    )
    payload: Payload = Field(default="delta", description="clients send changes or end models")
    normalized: bool = Field(default=False, description="normalized averaging (FedCompass+N)")
    model_buffers: Literal["corrected", "moving", "replace"] = Field(
        default="corrected",
        description="what a merge makes of BatchNorm's statistics: their exponential mean, without "
        "the initial values in it (corrected) or with them (moving), or the plain mean of the "
        "merged clients' (replace)",
    )

    calibrated: bool = Field(
        default=False,
        description="an update counts as Δ_i - h_i + h: less what its client sent last, plus the "
        "mean of what all sent last (CA2FL)",
    )
    since_last: bool = Field(
        default=False,
        description="an update is the change against the model its client sent last, so that the "
        "global model stays the mean of these (AREA)",
    )
    staleness_window: int | None = Field(
        default=None,
        ge=1,
        description="p_i is multiplied by the mean of u + 1 over the client's last so many "
        "updates (FedStaleWeight); unset: it is not",
    )

    @model_validator(mode="after")
    def _make_sense_together(self) -> "AggregationSettings":
        for wanted in self._wanted():
            for key, allowed in wanted.needs.items():
                value = attrgetter(key)(self)
                if value not in allowed:
                    told = " or ".join(map(_told, allowed))
                    raise ValueError(
                        f"{wanted.by} with {key} {_told(value)}; allowed: {key} {told}"
                    )
        return self

    def _wanted(self) -> "Iterator[_Wanted]":
        """What the pieces that are switched on want of the other settings."""
        if self.normalized:
            yield _Wanted("normalized is true", {"payload": ["delta"]})
        if self.calibrated:
            yield _Wanted("calibrated is true", {"payload": ["delta"]})
        if self.staleness_window is not None:
            uses_share = {"weighting": ["share", "staleness-share"]}
            yield _Wanted(f"staleness_window is {self.staleness_window}", uses_share)
        if self.since_last:
            # Only then is the global model the mean of what all sent last.
            plain_sum: dict[str, list[Any]] = {
                "payload": ["delta"],
                "weighting": ["share"],
                "scale": ["none"],
                "normalized": [False],
                "calibrated": [False],
                "staleness_window": [None],
                "server.optimizer": ["plain"],
                "server.learning_rate": [1.0],
                "server.delay_limit": [None],
            }
            yield _Wanted("since_last is true", plain_sum)


class TierSettings(AggregationSettings):
    """FedAT's rule."""

    tier_weights: Literal["mirrored", "samples"] = Field(
        default="mirrored",
        description="a tier's model weighs by the rounds of the tier at the mirrored rank (FedAT's "
        "paper: slow tiers count more), or by its clients' samples",
    )


def _told(value: Any) -> str:
    """A value as it stands in a settings file."""
    return (
        "unset" if value is None else repr(value).lower() if value in (True, False) else repr(value)
    )


class GuardSettings(Settings):
    """What the guard checks beyond layout and finiteness."""

    max_norm: float | None = Field(
        default=None, gt=0, description="largest Euclidean norm of a change; unset: no bound"
    )
    times_median: float | None = Field(
        default=None,
        gt=1,
        description="largest norm of a change per step, in medians of what is usual in this run "
        "over the clients; unset: no bound, and 100 in a federation",
    )
    max_buffer: float | None = Field(
        default=None,
        gt=0,
        description="largest value in a model buffer, such as BatchNorm's mean and variance; "
        "unset: no bound, and 1e12 in a federation",
    )
    max_passes: int | None = Field(
        default=None,
        ge=1,
        description="how often a step passes through one layer: a model buffer that counts may "
        "grow by so much for each; unset: no bound, and 1 in a federation",
    )
