"""What steps of DP-SGD cost: ε by Opacus's accountant of privacy loss random variables (PRV).

Gopi, Lee & Wutschitz 2021, *Numerical composition of differential privacy*. Opacus is loaded when
something is asked for the first time: it takes seconds.
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from math import ceil, log, sqrt
from typing import Any, NamedTuple

from fedcompass.errors import MissingExtra, SettingsError
from fedcompass.vocabulary import Steps

__all__ = ["Spent", "epsilon_of", "noise_for"]

_EPSILON_ERROR = 0.01  # what Opacus's ε may be too high by; its own default
_DELTA_ERROR = 1e-3  # likewise, as a share of δ


class Spent(NamedTuple):
    """Steps of one kind: each took every sample with probability `sample_rate`."""

    noise: float
    sample_rate: float
    steps: Steps


def epsilon_of(history: Iterable[Spent], delta: float) -> float:
    """The ε of all these steps together, at most 0.01 too high and never too low.

    As Opacus's `PRVAccountant.get_epsilon`, but what does not depend on the number of steps is
    computed once for every power of two of them: a run asks after every task.

    Raises:
        SettingsError: it cannot be computed for such a δ or noise.
    """
    kinds: dict[tuple[float, float], Steps] = {}
    for noise, rate, steps in history:
        kinds[noise, rate] = kinds.get((noise, rate), 0) + steps
    kinds = {kind: steps for kind, steps in kinds.items() if steps > 0}
    if not kinds:
        return 0.0
    try:
        return _composed(tuple(sorted(kinds.items())), delta)
    except (ArithmeticError, RuntimeError, ValueError, MemoryError) as error:
        raise SettingsError(
            f"ε cannot be computed for delta {delta:g} and (noise, sample rate) "
            f"{', '.join(map(str, kinds))}: {error}; choose a larger delta or another noise"
        ) from None


@lru_cache(maxsize=4096)
def _composed(kinds: tuple[tuple[tuple[float, float], Steps], ...], delta: float) -> float:
    with _library():
        from opacus.accountants.analysis.prv import compose_heterogeneous

        room = tuple((kind, 1 << (steps - 1).bit_length()) for kind, steps in kinds)
        composed = compose_heterogeneous(
            list(_discretized(room, delta)), [steps for _, steps in kinds]
        )
        _, _, upper = composed.compute_epsilon(delta, _DELTA_ERROR * delta, _EPSILON_ERROR)
    return max(0.0, float(upper))


@lru_cache(maxsize=64)
def _discretized(
    room: tuple[tuple[tuple[float, float], Steps], ...], delta: float
) -> tuple[Any, ...]:
    """The loss of one step of each kind, on a grid that is fine and wide enough for so many.

    What Opacus's accountant does before it composes.
    """
    from opacus.accountants.analysis import prv
    from scipy.fft import next_fast_len

    losses = [prv.PoissonSubsampledGaussianPRV(rate, noise) for (noise, rate), _ in room]
    steps, delta_error = [steps for _, steps in room], _DELTA_ERROR * delta
    width = prv.compute_safe_domain_size(losses, steps, _EPSILON_ERROR, delta_error)
    mesh = _EPSILON_ERROR / sqrt(sum(steps) * log(12 / delta_error) / 2)
    # A little wider, so that its size has small factors: the Fourier transform is faster then.
    width = mesh * (next_fast_len(ceil(width / mesh) + 1) - 1.5)
    domain = prv.Domain.create_aligned(-width, width, mesh)
    return tuple(
        prv.discretize(prv.TruncatedPrivacyRandomVariable(loss, domain.t_min, domain.t_max), domain)
        for loss in losses
    )


@lru_cache(maxsize=256)
def noise_for(epsilon: float, delta: float, sample_rate: float, steps: Steps) -> float:
    """The least noise with which so many steps cost at most ε.

    Raises:
        SettingsError: there is none.
    """
    with _library():
        from opacus.accountants.utils import get_noise_multiplier

        try:
            found = get_noise_multiplier(
                target_epsilon=epsilon,
                target_delta=delta,
                sample_rate=sample_rate,
                steps=steps,
                accountant="prv",
                epsilon_tolerance=min(0.01, epsilon / 50),
            )
        except ValueError:
            raise SettingsError(
                f"no noise lets {steps} steps cost at most epsilon {epsilon:g}; allowed: a larger "
                "epsilon, or fewer planned_steps"
            ) from None
    return float(found)


@contextmanager
def _library() -> Iterator[None]:
    """Use Opacus without its warnings.

    It says so where a bound could be tighter, and divides by 0 where steps take all samples.
    """
    try:
        import opacus.accountants  # noqa: F401
    except ImportError:
        raise MissingExtra("opacus", "privacy", "a privacy budget") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
