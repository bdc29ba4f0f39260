"""How updates are checked, weighted, scaled and applied; `aggregation/` does it."""

from typing import Literal, TypeAlias

from pydantic import Field, model_validator

from fedcompass.settings import Settings

__all__ = [
    "AggregationSettings",
    "GuardSettings",
    "Payload",
    "ServerSettings",
    "StalenessSettings",
]

Payload: TypeAlias = Literal["delta", "model"]
"""What clients send as the trainable part: the change w_start - w_end, or the end model."""


class StalenessSettings(Settings):
    """Which staleness function st(u), and its parameters in the paper's letters.

    `growing` is the polynomial with its exponent's sign turned round: a stale update weighs more
    than a fresh one. No paper proposes it; the public code of the FedCompass paper's authors had it
    when the paper was written (docs/as-run.md).
    """

    kind: Literal["polynomial", "hinge", "constant", "growing"] = "polynomial"
    """growing: a stale update weighs more, as in the public code of the paper's authors."""

    alpha: float = Field(default=0.9, gt=0, le=1, description="factor of a fresh update")
    a: float = Field(default=0.5, ge=0, description="how fast the factor falls (growing: rises)")
    b: float = Field(default=4.0, ge=0, description="hinge only: staleness that costs nothing")


class ServerSettings(Settings):
    """Which server optimizer, and its parameters."""

    optimizer: Literal["plain", "momentum", "adam", "yogi", "adagrad"] = "plain"
    learning_rate: float = Field(default=1.0, gt=0, description="η_g, for every optimizer")
    beta: float = Field(default=0.9, ge=0, lt=1, description="momentum only")
    beta1: float | None = Field(
        default=None, ge=0, lt=1, description="first moment; unset: 0.9, and 0 for adagrad"
    )
    beta2: float = Field(default=0.99, ge=0, lt=1, description="second moment; adam and yogi")
    tau: float = Field(default=1e-3, gt=0, description="adaptivity of adam, yogi and adagrad")


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

    @model_validator(mode="after")
    def _normalize_only_changes(self) -> "AggregationSettings":
        if self.normalized and self.payload == "model":
            raise ValueError("normalized is true with payload 'model'; allowed: payload 'delta'")
        return self


class GuardSettings(Settings):
    """What the guard checks beyond layout and finiteness."""

    max_norm: float | None = Field(
        default=None, gt=0, description="largest Euclidean norm of a change; unset: no bound"
    )
