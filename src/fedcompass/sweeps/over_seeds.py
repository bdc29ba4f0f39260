"""What the runs of several seeds come to: the paper's rule for a time, spreads and wins."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from statistics import mean, stdev

from fedcompass.number_text import number_of
from fedcompass.sweeps.record import Record
from fedcompass.vocabulary import Seconds

__all__ = ["OverSeeds", "mean_time", "over_seeds", "troubles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverSeeds:
    """The numbers of one label, such as a strategy, over its seeds.

    time: mean over the seeds that reached the target, None if fewer than half did.
    relative: `time` over the reference's `time`, None where either is missing.
    rank_time: mean with misses counted at the horizon, so that failing never looks fast; what
        labels are ranked by.
    wins: seeds in which nobody else was faster, misses counted at the horizon; a seed that nobody
        reached has no winner, and a tie counts for each.
    """

    seeds: int
    reached: int
    time: Seconds | None
    time_spread: Seconds | None
    relative: float | None
    rank_time: Seconds
    top: float
    top_spread: float | None
    idle_share: float
    mean_staleness: float
    wins: int
    broke_off: int  # runs in which nobody was left to train
    refused_not_finite: int  # updates with NaN or infinity, in all runs


def mean_time(times: Sequence[Seconds | None]) -> Seconds | None:
    """The paper's rule: the mean over the runs that reached the target, if at least half did.

    None stands for a run that did not.
    """
    reached = [time for time in times if time is not None]
    return mean(reached) if reached and 2 * len(reached) >= len(times) else None


def over_seeds(runs: Mapping[str, Sequence[Record]], reference: str) -> dict[str, OverSeeds]:
    """The numbers of each label that has runs; all of them are finished.

    Raises:
        ValueError: a run failed.
    """
    base = mean_time(_times(runs.get(reference, ())))
    fastest: dict[int, Seconds] = {}
    for record in (record for found in runs.values() for record in found):
        if (time := record.numbers.time_to_target) is not None:
            fastest[record.seed] = min(fastest.get(record.seed, time), time)
    return {label: _numbers(found, base, fastest) for label, found in runs.items() if found}


def troubles(runs: Iterable[tuple[str, Record]]) -> list[str]:
    """What went wrong in which runs, a line for each kind; none if nothing did."""
    runs = list(runs)
    off = [(label, record) for label, record in runs if record.numbers.broke_off]
    refused = [(label, record) for label, record in runs if record.numbers.refused_not_finite]
    lines = []
    if off:
        lines.append(f"broke off, nobody was left to train: {_named(off)}")
    if refused:
        count = sum(record.numbers.refused_not_finite for _, record in refused)
        lines.append(
            f"refused for NaN or infinity: {number_of(count, 'update')} of {_named(refused)}"
        )
    return lines


def _named(runs: Iterable[tuple[str, Record]]) -> str:
    """The runs by label, with their seeds."""
    seeds: dict[str, list[int]] = {}
    for label, record in runs:
        seeds.setdefault(label, []).append(record.seed)
    return "; ".join(
        f"{label} seed{'s' if len(found) > 1 else ''} {' '.join(map(str, sorted(found)))}"
        for label, found in seeds.items()
    )


def _times(runs: Sequence[Record]) -> list[Seconds | None]:
    return [record.numbers.time_to_target for record in runs]


def _numbers(
    runs: Sequence[Record], base: Seconds | None, fastest: Mapping[int, Seconds]
) -> OverSeeds:
    outcomes, times = [record.numbers for record in runs], _times(runs)
    reached, time = [time for time in times if time is not None], mean_time(times)
    tops = [nan if outcome.top is None else outcome.top for outcome in outcomes]
    return OverSeeds(
        seeds=len(runs),
        reached=len(reached),
        time=time,
        time_spread=_spread(reached) if time is not None else None,
        relative=time / base if time is not None and base else None,
        rank_time=mean(
            record.horizon if time is None else time
            for record, time in zip(runs, times, strict=True)
        ),
        top=mean(tops),
        top_spread=_spread(tops),
        idle_share=mean(outcome.idle_share for outcome in outcomes),
        mean_staleness=mean(outcome.mean_staleness for outcome in outcomes),
        wins=sum(
            time is not None and time <= fastest[record.seed]
            for record, time in zip(runs, times, strict=True)
        ),
        broke_off=sum(outcome.broke_off for outcome in outcomes),
        refused_not_finite=sum(outcome.refused_not_finite for outcome in outcomes),
    )


def _spread(values: Sequence[float]) -> float | None:
    """Standard deviation over seeds; None with fewer than two."""
    return stdev(values) if len(values) > 1 else None
