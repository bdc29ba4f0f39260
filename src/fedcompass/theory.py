"""What the paper proves: the bound on the number of groups, Theorem 1 and Corollary 1.

And what Metronome's clients do in a beat (`beat_shares`), which is exact while paces hold.

Sources of the former: section "Convergence Analysis" and appendix "Upper Bound on the Number of
Groups". It is about the idealized equilibrium, where paces are constant and steps need not be
whole; the algorithm itself exceeds the group bound part of the time on widely spread fleets.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from pydantic import Field

from fedcompass.errors import SettingsError
from fedcompass.scheduling.beats import KnownPaces
from fedcompass.scheduling.pace import Pace
from fedcompass.settings import Settings
from fedcompass.vocabulary import Seconds, Steps

__all__ = [
    "Assumptions",
    "BeatShare",
    "Gammas",
    "GradientBound",
    "beat_shares",
    "corollary_1_holds",
    "corollary_1_rate",
    "equilibrium_groups",
    "equilibrium_steps",
    "gammas",
    "group_bound",
    "learning_rate_limit",
    "mu_prime",
    "theorem_1_bound",
]

Ratio: TypeAlias = int | float | Fraction
"""A ratio of paces or of steps; whole numbers and fractions are compared exactly."""

_TOLERANCE = 1e-12  # relative; a ratio of two floats such as 0.3 / 0.1 is off by about 1e-16
_SAME_STEPS = 1e-6  # the schedulers' tolerance: 49.9999999 steps are 50


class Assumptions(Settings):
    """What the convergence analysis takes as known (the paper's Assumptions 1 to 4).

    smoothness: L, the Lipschitz constant of the clients' gradients.
    initial_gap: F* = F(w⁽⁰⁾) - F(w*), how far the first model's loss is above the least.
    local_variance: σ_l², of a client's stochastic gradient.
    global_variance: σ_g², of a client's gradient around the global one.
    squared_gradient: M, a bound on ‖∇F_i(w)‖².
    max_staleness: τ_max, in global updates.
    """

    smoothness: float = Field(gt=0)
    initial_gap: float = Field(ge=0)
    local_variance: float = Field(ge=0)
    global_variance: float = Field(ge=0)
    squared_gradient: float = Field(ge=0)
    max_staleness: float = Field(ge=0)

    @property
    def variance(self) -> float:
        """The paper's σ² = σ_l² + σ_g² + M."""
        return self.local_variance + self.global_variance + self.squared_gradient


class Gammas(NamedTuple):
    """Theorem 1's γ₁ and γ₂: how far apart the clients' round times can be, seen from both ends."""

    gamma_1: float
    gamma_2: float


class GradientBound(NamedTuple):
    """A bound on the mean squared norm of the global gradient, by what each term comes from."""

    initialization: float
    """From the distance of the first model to the optimum; vanishes as 1/T."""
    gradient_noise: float
    """From sampling batches; shrinks with the learning rate only."""
    heterogeneity: float
    """From unequal clients and unequal data: staleness, and σ² = σ_l² + σ_g² + M."""

    @property
    def total(self) -> float:
        """The bound itself."""
        return self.initialization + self.gradient_noise + self.heterogeneity


def group_bound(mu: Ratio, steps_ratio: Ratio, *, clients: int | None = None) -> int:
    """The most arrival groups there can be at equilibrium: ⌈log_Q μ⌉, exact at powers of Q.

    At least 1: the formula gives 0 for equally fast clients (μ = 1), who share one group. With
    Q = 1 the logarithm is undefined and only the number of clients bounds the number of groups.

    Args:
        mu: the slowest client's seconds per step over the fastest one's, at least 1.
        steps_ratio: Q = Q_max / Q_min, at least 1.
        clients: if given, the bound is never more than this; needed when `steps_ratio` is 1.

    >>> group_bound(125, 5)
    3
    """
    _check_ratios(mu, steps_ratio)
    if clients is not None:
        _require("clients", clients, clients >= 1, "at least 1")
    if steps_ratio == 1:
        if clients is None:
            raise SettingsError("clients is missing; with steps_ratio 1 it is the group bound")
        return clients
    bound = max(1, _log_floor_and_ceiling(mu, steps_ratio)[1])
    return bound if clients is None else min(bound, clients)


def mu_prime(mu: Ratio, steps_ratio: Ratio) -> float:
    """The largest ratio of two clients' round times at equilibrium: μ' = Q^⌊log_Q μ⌋.

    With Q = 1 everyone does equally many steps, so the ratio of round times is μ itself (which is
    also the limit of the formula as Q falls to 1).

    At μ = Q exactly Theorem 1's formula gives Q, whereas its Corollary and the appendix take 1
    (all clients share one group); this function follows Theorem 1.
    """
    _check_ratios(mu, steps_ratio)
    if steps_ratio == 1:
        return float(mu)
    return float(steps_ratio ** _log_floor_and_ceiling(mu, steps_ratio)[0])


def _log_floor_and_ceiling(mu: Ratio, base: Ratio) -> tuple[int, int]:
    """⌊log_base μ⌋ and ⌈log_base μ⌉, equal where μ is a power of the base.

    `math.log(125, 5)` is 3.0000000000000004. So the logarithm only finds the nearest power, and
    comparing μ with that power decides: exactly, or within `_TOLERANCE` where a float is involved.
    """
    nearest = round(math.log(mu) / math.log(base))
    power = base**nearest
    rounded = isinstance(mu, float) or isinstance(base, float)
    if power == mu or (rounded and _nearly_equal(power, mu, nearest)):
        return nearest, nearest
    return (nearest, nearest + 1) if power < mu else (nearest - 1, nearest)


def _nearly_equal(power: Ratio, mu: Ratio, exponent: int) -> bool:
    # The base's own rounding error grows with the exponent.
    return math.isclose(power, mu, rel_tol=_TOLERANCE * max(1, exponent))


def gammas(clients: int, mu_prime: float) -> Gammas:
    """Theorem 1's γ₁ = 1 + (m - 1)/μ' and γ₂ = 1 + μ'(m - 1)."""
    _require("clients", clients, clients >= 1, "at least 1")
    _require("mu_prime", mu_prime, mu_prime >= 1, "at least 1")
    return Gammas(1 + (clients - 1) / mu_prime, 1 + mu_prime * (clients - 1))


def learning_rate_limit(smoothness: float, max_steps: Steps) -> float:
    """The largest local learning rate Theorem 1 allows: 1 / (2 L Q_max)."""
    _require("smoothness", smoothness, smoothness > 0, "above 0")
    _require("max_steps", max_steps, max_steps >= 1, "at least 1")
    return 1 / (2 * smoothness * max_steps)


def theorem_1_bound(
    *,
    assumptions: Assumptions,
    clients: int,
    min_steps: Steps,
    max_steps: Steps,
    mu: Ratio,
    updates: int,
    learning_rate: float,
) -> GradientBound:
    """Bound the mean of E‖∇F(w⁽ᵗ⁾)‖² over the first T global updates (Theorem 1).

    Args:
        assumptions: what is known of the losses and of the staleness.
        clients: m.
        min_steps: Q_min.
        max_steps: Q_max.
        mu: μ, the slowest client's seconds per step over the fastest one's.
        updates: T.
        learning_rate: η_ℓ of the clients, at most `learning_rate_limit`.

    Raises:
        SettingsError: a value is impossible or the learning rate above its limit.
    """
    _check_steps(min_steps, max_steps)
    spread = gammas(clients, mu_prime(mu, Fraction(max_steps, min_steps)))
    return _gradient_bound(
        assumptions, spread, clients, min_steps, max_steps, updates, learning_rate
    )


def corollary_1_holds(min_steps: Steps, max_steps: Steps, mu: Ratio) -> bool:
    """Whether Q_min ≤ Q_max / μ: everyone fits into one group, so that μ' is taken as 1."""
    _check_steps(min_steps, max_steps)
    ratio = Fraction(max_steps, min_steps)
    _check_ratios(mu, ratio)
    return mu <= ratio or (isinstance(mu, float) and _nearly_equal(ratio, mu, 1))


def corollary_1_rate(
    *,
    assumptions: Assumptions,
    clients: int,
    min_steps: Steps,
    max_steps: Steps,
    mu: Ratio,
    updates: int,
    learning_rate_scale: float,
) -> GradientBound:
    """Theorem 1's bound with η_ℓ = c / (Q_max √T) and γ₁ = γ₂ = m: it falls as 1/√T (Corollary 1).

    Arguments as for `theorem_1_bound`, with `learning_rate_scale` c in place of the learning rate.

    Raises:
        SettingsError: `corollary_1_holds` is false, a value is impossible, or c above √T / (2L).
    """
    if not corollary_1_holds(min_steps, max_steps, mu):
        raise SettingsError(
            f"min_steps is {min_steps}; Corollary 1 allows at most max_steps / mu = "
            f"{max_steps / float(mu):g}; lower it or use theorem_1_bound"
        )
    _require("updates", updates, updates >= 1, "at least 1")
    learning_rate = learning_rate_scale / (max_steps * math.sqrt(updates))
    spread = gammas(clients, mu_prime=1)
    return _gradient_bound(
        assumptions, spread, clients, min_steps, max_steps, updates, learning_rate
    )


def _gradient_bound(
    given: Assumptions,
    spread: Gammas,
    clients: int,
    min_steps: Steps,
    max_steps: Steps,
    updates: int,
    learning_rate: float,
) -> GradientBound:
    """The right side of Theorem 1, in the order of its terms."""
    limit = learning_rate_limit(given.smoothness, max_steps)
    within = 0 < learning_rate <= limit * (1 + _TOLERANCE)
    _require(
        "learning_rate", learning_rate, within, f"above 0 and at most 1/(2 L Q_max) = {limit:g}"
    )
    _require("updates", updates, updates >= 1, "at least 1")
    gamma_1, gamma_2 = spread
    noise = learning_rate * clients**2 * given.local_variance * given.smoothness * max_steps**2
    drift = clients * learning_rate**2 * given.variance * given.smoothness**2 * max_steps**3
    return GradientBound(
        2 * gamma_2 * given.initial_gap / (learning_rate * min_steps * updates),
        2 * gamma_2 * noise / (gamma_1**2 * min_steps),
        6 * gamma_2 * drift / (gamma_1 * min_steps) * (given.max_staleness**2 + 1),
    )


def equilibrium_groups(
    seconds_per_step: Sequence[Seconds], min_steps: Steps, max_steps: Steps
) -> list[list[int]]:
    """Which clients share an arrival group at equilibrium, fastest group and client first.

    The appendix's construction: the fastest client left opens a group, and everyone joins whose
    pace is within a factor Q_max / Q_min of its.

    >>> equilibrium_groups([0.5, 0.1, 2.0], min_steps=20, max_steps=100)
    [[1, 0], [2]]
    """
    _check_steps(min_steps, max_steps)
    _check_paces(seconds_per_step)
    groups: list[list[int]] = []
    slowest_that_fits = 0.0
    for client in sorted(range(len(seconds_per_step)), key=seconds_per_step.__getitem__):
        pace = seconds_per_step[client]
        if pace > slowest_that_fits:
            groups.append([])
            slowest_that_fits = pace * max_steps / min_steps * (1 + _TOLERANCE)
        groups[-1].append(client)
    return groups


def equilibrium_steps(
    seconds_per_step: Sequence[Seconds], min_steps: Steps, max_steps: Steps
) -> list[Steps]:
    """Steps of each client at equilibrium: Q_max for a group's fastest, the others in proportion.

    >>> equilibrium_steps([0.1, 0.2, 0.25, 0.4, 0.5], min_steps=20, max_steps=100)
    [100, 50, 40, 25, 20]
    """
    steps = [0] * len(seconds_per_step)
    for group in equilibrium_groups(seconds_per_step, min_steps, max_steps):
        round_time = max_steps * seconds_per_step[group[0]]
        for client in group:
            steps[client] = math.floor(round_time / seconds_per_step[client] + _SAME_STEPS)
    return steps


class BeatShare(NamedTuple):
    """A client under Metronome, once all paces are known and hold.

    beats: how many of them a task takes.
    steps: of a task.
    waiting: the share of its time that it waits, on purpose.
    """

    beats: int
    steps: Steps
    waiting: float


def beat_shares(
    seconds_per_step: Sequence[Seconds],
    min_steps: Steps,
    max_steps: Steps,
    *,
    samples: Sequence[float] | None = None,
    covered: float = 0.75,
    overhead: Seconds | Sequence[Seconds] = 0.0,
) -> tuple[Seconds, list[BeatShare]]:
    """How long Metronome's beat is for given clients, and what each of them does in it.

    Everybody answers at beats, so among those whose tasks take one beat nothing is ever stale: an
    update is as many versions old as beats its task took, less one. Waiting is the price, and the
    share of it is a function of the fleet alone.

    >>> period, clients = beat_shares([0.01, 0.1, 0.4, 2.0], 20, 200)
    >>> period
    8.0
    >>> [(c.beats, c.steps, round(c.waiting, 2)) for c in clients]
    [(1, 200, 0.75), (1, 80, 0.0), (1, 20, 0.0), (5, 20, 0.0)]
    """
    _check_steps(min_steps, max_steps)
    _check_paces(seconds_per_step)
    _require("seconds_per_step", seconds_per_step, len(seconds_per_step) >= 1, "at least one pace")
    _require("covered", covered, 0 < covered <= 1, "above 0 and at most 1")
    each = [overhead] * len(seconds_per_step) if isinstance(overhead, float | int) else overhead
    _require(
        "overhead", overhead, len(each) == len(seconds_per_step), "one number, or one a client"
    )
    for seconds in each:
        _require("overhead", seconds, 0 <= seconds < math.inf, "at least 0 and finite")
    weights = [1.0] * len(seconds_per_step) if samples is None else list(samples)
    _require("samples", samples, len(weights) == len(seconds_per_step), "one number a client")
    paces = [
        Pace(seconds_per_step=seconds, overhead=beside)
        for seconds, beside in zip(seconds_per_step, each, strict=True)
    ]
    known = KnownPaces(min_steps, max_steps)
    for client, (pace, weight) in enumerate(zip(paces, weights, strict=True)):
        _require("samples", weight, 0 < weight < math.inf, "above 0 and finite")
        known.note(str(client), pace, weight)
    period = known.period(covered * known.weight)
    _require("seconds_per_step", seconds_per_step, math.isfinite(period), "so that a task can end")
    return period, [_beat_share(pace, period, min_steps, max_steps) for pace in paces]


def _beat_share(pace: Pace, period: Seconds, min_steps: Steps, max_steps: Steps) -> BeatShare:
    beats = max(1, math.ceil(pace.seconds_for(min_steps) / period - _SAME_STEPS))
    while pace.steps_within(beats * period) < min_steps:
        beats += 1  # rounding
    steps = min(pace.steps_within(beats * period), max_steps)
    waiting = max(0.0, 1 - pace.seconds_for(steps) / (beats * period))
    return BeatShare(beats, steps, waiting)


def _check_ratios(mu: Ratio, steps_ratio: Ratio) -> None:
    _require("mu", mu, 1 <= mu < math.inf, "at least 1 and finite")
    _require("steps_ratio", steps_ratio, 1 <= steps_ratio < math.inf, "at least 1 and finite")


def _check_paces(seconds_per_step: Sequence[Seconds]) -> None:
    for pace in seconds_per_step:
        _require("seconds_per_step", pace, 0 < pace < math.inf, "above 0 and finite")


def _check_steps(min_steps: Steps, max_steps: Steps) -> None:
    _require("min_steps", min_steps, 1 <= min_steps <= max_steps, f"1 to max_steps = {max_steps}")


def _require(name: str, value: object, holds: bool, allowed: str) -> None:
    if not holds:
        raise SettingsError(f"{name} is {value}; allowed: {allowed}")
