"""What a run will cost before it is run: the local steps its fleet has time for."""

from typing import NamedTuple

from fedcompass.paper.entry import TableRun
from fedcompass.paper.horizons import SYNCHRONOUS
from fedcompass.paper.hyperparameters import strategy_of
from fedcompass.settings.simulation import FleetSettings
from fedcompass.simulation.fleet import Fleet

__all__ = ["StepRange", "expected_steps", "tasks_in_a_row"]


class StepRange(NamedTuple):
    """If the target is reached as soon as the run may stop, and if it never is."""

    least: float
    most: float


def expected_steps(run: TableRun) -> StepRange:
    """About how many local steps a run takes in all.

    In a synchronous round everybody does Q steps while the slowest one needs its time for them;
    otherwise nobody waits long, and each client is busy to the end.
    """
    fleet = _fleet(run)
    if strategy_of(run.row) in SYNCHRONOUS:
        per_second = len(fleet) / max(fleet.paces)
    else:
        per_second = sum(1 / pace for pace in fleet.paces)
    most = float(run.settings["horizon"])
    stops = run.settings.get("stop_at_target")
    least = float(run.settings.get("run_at_least") or 0.0) if stops else most
    return StepRange(least * per_second, most * per_second)


def tasks_in_a_row(run: TableRun) -> float:
    """About how many tasks follow on one another: no stack makes a run shorter than that."""
    fleet, strategy = _fleet(run), run.settings["strategy"]
    waits = strategy_of(run.row) in SYNCHRONOUS
    pace = max(fleet.paces) if waits else min(fleet.paces)
    steps = float(strategy.get("steps") or strategy["max_steps"])
    return float(run.settings["horizon"]) / (pace * steps)


def _fleet(run: TableRun) -> Fleet:
    return Fleet(FleetSettings(**run.settings["fleet"]), run.seed)
