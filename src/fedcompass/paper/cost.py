"""What a run will cost before it is run: the local steps its fleet has time for."""

from fedcompass.paper.catalogue import PlannedRun
from fedcompass.paper.horizons import SYNCHRONOUS
from fedcompass.paper.hyperparameters import strategy_of
from fedcompass.simulation.fleet import Fleet, FleetSettings

__all__ = ["expected_steps"]


def expected_steps(run: PlannedRun) -> float:
    """About how many local steps a run takes in all.

    In a synchronous round everybody does Q steps while the slowest one needs its time for them;
    otherwise nobody waits long, and each client is busy to the horizon.
    """
    fleet = Fleet(FleetSettings(**run.settings["fleet"]), run.seed)
    horizon = float(run.settings["horizon"])
    if strategy_of(run.row) in SYNCHRONOUS:
        return len(fleet) * horizon / max(fleet.paces)
    return sum(horizon / pace for pace in fleet.paces)
