"""Several strategies on the same fleets: the paper's kind of table, over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from fedcompass.vocabulary import Seconds

__all__ = ["Outcome", "StrategyRow", "comparison_rows", "troubles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run contributes to a comparison."""

    strategy: str
    seed: int
    time_to_target: Seconds | None  # None: not within the horizon
    horizon: Seconds
    top: float
    idle_share: float
    mean_staleness: float
    broke_off: bool = False  # nobody was left to train
    refused_not_finite: int = 0  # updates with NaN or infinity

    @property
    def time_or_horizon(self) -> Seconds:
        """The time to target, a miss counted at the horizon: failing never looks fast."""
        return self.horizon if self.time_to_target is None else self.time_to_target


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyRow:
    """One strategy over all seeds.

    time: mean over the seeds that reached the target, None if fewer than half did.
    relative: `time` over the reference's `time`, None where either is missing.
    rank_time: mean with misses counted at the horizon; what the rows are ranked by.
    wins: seeds in which no other strategy was faster, misses counted at the horizon; a seed that
        nobody reached has no winner, and a tie counts for each.
    """

    strategy: str
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


def comparison_rows(outcomes: Sequence[Outcome], reference: str) -> list[StrategyRow]:
    """One row per strategy, in the order in which the strategies first appear."""
    by_strategy: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_strategy.setdefault(outcome.strategy, []).append(outcome)
    reference_time = _time(by_strategy.get(reference, []))
    fastest = _fastest_by_seed(outcomes)
    return [_row(runs, reference_time, fastest) for runs in by_strategy.values()]


def troubles(outcomes: Sequence[Outcome]) -> list[str]:
    """What went wrong in which runs, a line for each kind; none if nothing did."""
    off = [outcome for outcome in outcomes if outcome.broke_off]
    refused = [outcome for outcome in outcomes if outcome.refused_not_finite]
    lines = []
    if off:
        lines.append(f"broke off, nobody was left to train: {_named(off)}")
    if refused:
        count = sum(outcome.refused_not_finite for outcome in refused)
        lines.append(f"refused for NaN or infinity: {count} updates of {_named(refused)}")
    return lines


def _named(outcomes: Sequence[Outcome]) -> str:
    """The runs by strategy, with their seeds."""
    seeds: dict[str, list[int]] = {}
    for outcome in outcomes:
        seeds.setdefault(outcome.strategy, []).append(outcome.seed)
    return "; ".join(
        f"{name} seed{'s' if len(found) > 1 else ''} {' '.join(map(str, sorted(found)))}"
        for name, found in seeds.items()
    )


def _fastest_by_seed(outcomes: Sequence[Outcome]) -> dict[int, Seconds]:
    fastest: dict[int, Seconds] = {}
    for outcome in outcomes:
        if outcome.time_to_target is not None:
            known = fastest.get(outcome.seed, outcome.time_to_target)
            fastest[outcome.seed] = min(known, outcome.time_to_target)
    return fastest


def _row(
    runs: list[Outcome], reference_time: Seconds | None, fastest: dict[int, Seconds]
) -> StrategyRow:
    times = [run.time_to_target for run in runs if run.time_to_target is not None]
    time = _time(runs)
    tops = [run.top for run in runs]
    return StrategyRow(
        strategy=runs[0].strategy,
        seeds=len(runs),
        reached=len(times),
        time=time,
        time_spread=_spread(times) if time is not None else None,
        relative=time / reference_time if time is not None and reference_time else None,
        rank_time=mean(run.time_or_horizon for run in runs),
        top=mean(tops),
        top_spread=_spread(tops),
        idle_share=mean(run.idle_share for run in runs),
        mean_staleness=mean(run.mean_staleness for run in runs),
        wins=sum(
            run.time_to_target is not None and run.time_to_target <= fastest[run.seed]
            for run in runs
        ),
        broke_off=sum(run.broke_off for run in runs),
        refused_not_finite=sum(run.refused_not_finite for run in runs),
    )


def _time(runs: list[Outcome]) -> Seconds | None:
    """The paper's rule: the mean over the seeds that reached it, if at least half did."""
    times = [run.time_to_target for run in runs if run.time_to_target is not None]
    return mean(times) if times and 2 * len(times) >= len(runs) else None


def _spread(values: Sequence[float]) -> float | None:
    """Standard deviation over seeds; None with fewer than two."""
    return stdev(values) if len(values) > 1 else None
