"""What the FedCompass paper's authors ran: habits of their public code that the paper lacks.

Read in APPFL/APPFL at commit ab64cf1c (2023-09-18), days before the paper; docs/as-run.md names the
files. Nobody outside can know the command lines that were used, so a number that the paper prints
(λ = 1.2, a spread of 0.3) is taken from the paper where that code has another default. No torch.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from math import log, sqrt
from random import Random
from typing import Any, NamedTuple

from fedcompass.setting_tables import merged

__all__ = [
    "AS_RUN",
    "FIRST_HABITS",
    "HABITS",
    "LATER_RELEASE",
    "Setup",
    "fixed_fleet",
    "habits",
    "profile_named",
]

_FLEET_SEED = 42  # of every run: their ten seeds share one fleet for each number of clients
_EXPONENTIAL_MEAN = 0.5  # what is drawn is scaled to the mean pace afterwards
_BIN = {"cifar10": 0.2}  # of the drawn numbers; other data: 0.1
_SPREAD = 0.3
_LEAST_SECONDS, _NAP_SECONDS = 1.5, 1.0
_JOIN: dict[str, Any] = {"join_up_to": 1.2}
_AIM: dict[str, Any] = {"aim": "latest"}
_SMOOTH: dict[str, Any] = {"pace": {"newest_weight": 0.9}}

LATER_RELEASE: dict[str, dict[str, Any]] = {
    "local": {"rate_decay": 0.995},
    "strategy": {**_JOIN, **_AIM, **_SMOOTH},
}
"""What was left of Compass's habits in later releases of that code: the profile `authors`."""


def profile_named(name: Any) -> Any:
    """The profile of a name: `as-written` is another name of `paper`."""
    return "paper" if name == "as-written" else name


class Setup(NamedTuple):
    """What a habit depends on.

    max_steps: Q_max, or Q of a strategy that has no Q_max.
    """

    dataset: str
    strategy: str
    clients: int
    speed: str
    mean_seconds_per_step: float
    max_steps: int

    @property
    def is_compass(self) -> bool:
        """Whether Compass schedules it."""
        return self.strategy.startswith("fedcompass")


def _sign(setup: Setup) -> dict[str, Any]:
    """The staleness factor is α (u+1)^a: stale updates weigh more."""
    stale = setup.is_compass or setup.strategy in ("fedasync", "fedbuff")
    return {"strategy": {"staleness": {"kind": "growing"}}} if stale else {}


def _fleet(setup: Setup) -> dict[str, Any]:
    """One fleet for each number of clients, whatever the seed; exponential paces in bins."""
    if setup.speed not in ("exponential", "normal"):
        return {}
    paces = fixed_fleet(setup.speed, setup.clients, _BIN.get(setup.dataset, 0.1))
    mean = setup.mean_seconds_per_step
    return {"fleet": {"paces": [round(mean * pace, 9) for pace in paces]}}


def _rate(setup: Setup) -> dict[str, Any]:
    """A client's learning rate falls by 0.985 for every Q_max steps it was given."""
    if not setup.is_compass:
        return {}
    return {"local": {"rate_decay": 0.985, "rate_decay_steps": setup.max_steps}}


def _of_compass(**settings: Any) -> "Habit":
    def habit(setup: Setup) -> dict[str, Any]:
        return {"strategy": settings} if setup.is_compass else {}

    return habit


def _naps(setup: Setup) -> dict[str, Any]:
    """An answer comes after a whole number of seconds; no task is shorter than 1 to 2 s.

    The bundled part of MNIST, with a fifth of the steps, has a fifth of both.
    """
    scale = 0.2 if setup.dataset == "mnist-mini" else 1.0
    least, nap = round(scale * _LEAST_SECONDS, 6), round(scale * _NAP_SECONDS, 6)
    return {"fleet": {"least_task_seconds": least, "nap_seconds": nap}}


def _momentum(setup: Setup) -> dict[str, Any]:
    """Synchronous runs on CIFAR-10 train with momentum 0.9, asynchronous ones without."""
    synchronous = setup.dataset == "cifar10" and setup.strategy in ("fedavg", "fedavgm")
    return {"local": {"momentum": 0.9}} if synchronous else {}


def _replace(setup: Setup) -> dict[str, Any]:
    """BatchNorm's statistics are replaced by the plain mean of the merged clients'.

    Of their own strategies: FedAT is not in that code.
    """
    theirs = setup.is_compass or setup.strategy in ("fedavg", "fedavgm", "fedasync", "fedbuff")
    return {"strategy": {"model_buffers": "replace"}} if theirs else {}


def _rounds(_setup: Setup) -> dict[str, Any]:
    """Every local round is a new shuffled pass over the client's samples."""
    return {"local": {"sampling": "rounds"}}


Habit = Callable[[Setup], dict[str, Any]]

HABITS: dict[str, Habit] = {
    "sign": _sign,
    "fleet": _fleet,
    "rate": _rate,
    "warm-up": _of_compass(warm_up="max"),
    "join": _of_compass(**_JOIN),
    "aim": _of_compass(**_AIM),
    "smooth": _of_compass(**_SMOOTH),
    "naps": _naps,
    "momentum": _momentum,
    "pass-over": _of_compass(create_group="pass-over"),
    "replace": _replace,
    "rounds": _rounds,
}
"""Each habit's settings, to be laid over the paper's, by a short name."""

AS_RUN = tuple(HABITS)
"""The habits of the profile `as-run`: all of them."""

FIRST_HABITS = AS_RUN[: AS_RUN.index("pass-over")]
"""Without the three that became settings last: what the stored runs on MNIST were made with."""


def habits(setup: Setup, names: Iterable[str] = AS_RUN) -> dict[str, Any]:
    """The settings of some habits together."""
    return merged(*(HABITS[name](setup) for name in names))


@lru_cache
def fixed_fleet(speed: str, clients: int, bin_width: float = 0.1) -> tuple[float, ...]:
    """The paces of that code's fleet, in units of the mean.

    One number more than clients is drawn: the first one is the server's.
    """
    random = _numpy_stream(_FLEET_SEED)
    drawn = _normals(random) if speed == "normal" else _exponentials(random)
    paces = [next(drawn) for _ in range(clients + 1)]
    if speed == "exponential":
        bins = [round((pace + bin_width) / bin_width) for pace in paces]
        paces = [number * bin_width / _EXPONENTIAL_MEAN for number in bins]
    while min(paces) <= 0:
        paces = [next(drawn) for _ in range(clients + 1)]
    return tuple(round(pace, 9) for pace in paces[1:])


def _numpy_stream(seed: int) -> Random:
    """Uniform numbers as `numpy.random.RandomState(seed)` draws them: the same Mersenne Twister.

    Python seeds its own otherwise. NumPy itself would cost each reader of a table its import.
    """
    state = [seed]
    for number in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + number) & 0xFFFFFFFF)
    random = Random()
    random.setstate((3, (*state, 624), None))
    return random


def _exponentials(random: Random) -> Iterator[float]:
    while True:
        yield -_EXPONENTIAL_MEAN * log(1.0 - random.random())


def _normals(random: Random) -> Iterator[float]:
    """By the polar method, in pairs, as NumPy's `RandomState` makes them."""
    while True:
        first, second = 2 * random.random() - 1, 2 * random.random() - 1
        if 0 < (square := first**2 + second**2) < 1:
            factor = sqrt(-2 * log(square) / square)
            yield 1 + _SPREAD * factor * second
            yield 1 + _SPREAD * factor * first
