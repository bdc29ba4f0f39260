"""How training samples are split among clients; the paper's values are the defaults."""

from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from fedcompass.settings import Settings

__all__ = ["ClassRange", "PartitionKind", "PartitionSettings", "paper_class_range"]

PartitionKind = Literal["class", "dual-dirichlet", "iid", "center", "own"]

_BELONGS: dict[str, PartitionKind] = {
    "n_min": "class",
    "n_max": "class",
    "mean": "class",
    "std": "class",
    "alpha1": "dual-dirichlet",
    "alpha2": "dual-dirichlet",
}


class PartitionSettings(Settings):
    """Which partition, and its parameters; one left out takes the paper's value.

    kind: `class` (each client a few classes), `dual-dirichlet` (uneven sizes and class shares),
        `iid` (shuffled, equal sizes), `center` (each natural center one client) or `own` (your
        own data that come as one dataset per client).
    n_min, n_max: classes per client, both ends included; see `paper_class_range`.
    mean, std: of the normal law for a client's share of a class; 10 and 3.
    alpha1: concentration of the clients' sizes; the number of clients.
    alpha2: concentration of the classes within a client; 0.5.
    """

    kind: PartitionKind = "class"
    n_min: int | None = Field(default=None, ge=1)
    n_max: int | None = Field(default=None, ge=1)
    mean: float | None = Field(default=None, gt=0)  # μ
    std: float | None = Field(default=None, ge=0)  # σ
    alpha1: float | None = Field(default=None, gt=0)  # α_1
    alpha2: float | None = Field(default=None, gt=0)  # α_2

    @model_validator(mode="after")
    def _fits_together(self) -> "PartitionSettings":
        for name, kind in _BELONGS.items():
            if getattr(self, name) is not None and kind != self.kind:
                raise ValueError(
                    f"{name} belongs to the {kind!r} partition, and kind is {self.kind!r}; "
                    f"leave {name} out or set kind to {kind!r}"
                )
        if self.n_min is not None and self.n_max is not None and self.n_min > self.n_max:
            raise ValueError(f"n_min is {self.n_min}; allowed: at most n_max, {self.n_max}")
        return self


class ClassRange(NamedTuple):
    """The fewest and the most classes a client may hold, both included."""

    n_min: int
    n_max: int


def paper_class_range(clients: int, classes: int) -> ClassRange:
    """The paper's classes per client: 5..6 of 10 for m = 5, 3..5 of 10 for m = 10 and 20.

    The paper says nothing about other numbers. Ours: between 5 and 10 clients both ends follow a
    straight line, rounded; below 5 and above 10 they stay; with other than 10 classes they keep
    their share of the classes; and n_max is never below what lets all clients together hold every
    class.
    """
    along = min(max((clients - 5) / 5, 0.0), 1.0)
    scale = classes / 10
    n_min = _rounded((5 - 2 * along) * scale)
    n_max = max(_rounded((6 - along) * scale), n_min, -(-classes // clients))
    return ClassRange(n_min, min(n_max, classes))


def _rounded(value: float) -> int:
    """To the nearest whole number from 1 up; halves go up."""
    return max(1, int(value + 0.5))
