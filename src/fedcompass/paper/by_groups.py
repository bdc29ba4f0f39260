"""Whether FedCompass reached the target, by how its fleet splits into arrival groups."""

from collections.abc import Iterator
from itertools import product

from fedcompass.paper.cells import Cell
from fedcompass.paper.hyperparameters import settings_of
from fedcompass.paper.stored_runs import EntryRuns
from fedcompass.settings.simulation import FleetSettings
from fedcompass.simulation.fleet import Fleet
from fedcompass.sweeps.formats import TextTable
from fedcompass.theory import equilibrium_groups

__all__ = ["by_groups_grids"]

_ALONE, _TOGETHER = "fastest alone", "with others"
_KINDS = ("1", "2", "3", "4 or more", _ALONE, _TOGETHER)


def by_groups_grids(runs: EntryRuns) -> Iterator[TextTable]:
    """Runs that reached the target, by groups at equilibrium and by who is with the fastest client.

    One table for each dataset with such runs; none if the entry does not vary Q_min / Q_max.
    """
    entry = runs.entry
    rows = [row for row in entry.rows if row.startswith("1/Q=")]
    if entry.quantity != "time":
        return
    for dataset in dict.fromkeys(cell.settings.dataset for cell in runs.cells):
        own = [cell for cell in runs.cells if cell.settings.dataset == dataset]
        counts: dict[tuple[str, str], list[bool]] = {}
        for cell, row in product(own, rows):
            for run in runs.at(cell, row):
                reached = run.time is not None
                for kind in _kinds(_groups(cell, row, run.seed)):
                    counts.setdefault((kind, cell.speed), []).append(reached)
        if counts:
            yield _grid(dataset, list(dict.fromkeys(cell.speed for cell in own)), counts)


def _grid(dataset: str, speeds: list[str], counts: dict[tuple[str, str], list[bool]]) -> TextTable:
    title = (
        f"{dataset}: runs with 1/Q=… that reached the target, by the number of arrival groups of "
        "their fleet at equilibrium, and by whether its fastest client is in one of its own"
    )
    rows = []
    for kind in _KINDS:
        found = [counts.get((kind, speed), []) for speed in speeds]
        rows.append([kind, *(f"{sum(some)}/{len(some)}" if some else "" for some in found)])
    return TextTable(title, ["groups", *speeds], rows)


def _groups(cell: Cell, row: str, seed: int) -> list[list[int]]:
    """Of clients, the fastest first."""
    settings = settings_of(cell, row, seed)
    paces = Fleet(FleetSettings(**settings["fleet"]), seed).paces
    strategy = settings["strategy"]
    return equilibrium_groups(paces, strategy["min_steps"], strategy["max_steps"])


def _kinds(groups: list[list[int]]) -> tuple[str, str]:
    return _KINDS[min(len(groups), 4) - 1], _ALONE if len(groups[0]) == 1 else _TOGETHER
