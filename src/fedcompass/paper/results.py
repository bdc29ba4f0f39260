"""Stored runs of the paper's experiments, read without torch: a folder of JSON lines."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcompass.errors import SettingsError
from fedcompass.paper.cells import Cell
from fedcompass.paper.hyperparameters import settings_of, signature

__all__ = ["Results", "StoredRun", "results_folder", "value_at"]

_HEADER = "fedcompass_store"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """What a table or a figure needs of a finished run.

    time: virtual seconds to the target; None if it was not reached.
    horizon: virtual seconds after which a run that has not reached it ends.
    run_at_least: the accuracy horizon, which every run of its kind comes to.
    top: the best value of the target metric up to there, None if it was never a number.
    curve: (time, value) of evaluations, thinned.
    """

    seed: int
    time: float | None
    horizon: float
    run_at_least: float
    top: float | None
    curve: tuple[tuple[float, float], ...]
    local_steps: int
    device: str


class Results:
    """The runs of a folder, found by a cell and a row."""

    def __init__(self, runs: Mapping[str, Mapping[int, StoredRun]]) -> None:
        self._runs = runs
        self._signatures: dict[tuple[Cell, str], str] = {}

    @classmethod
    def read(cls, folder: Path) -> "Results":
        """Every store of a folder; one that is not there is empty.

        Raises:
            SettingsError: a line is damaged.
        """
        runs: dict[str, dict[int, StoredRun]] = {}
        for path in sorted(folder.glob("*.jsonl")):
            for record in _records(path):
                if record.get("outcome") is not None:
                    found = _stored(record)
                    by_seed = runs.setdefault(signature(record["experiment"]), {})
                    by_seed.setdefault(found.seed, found)
        return cls(runs)

    def runs(self, cell: Cell, row: str, seeds: int | None = None) -> list[StoredRun]:
        """A row's finished runs by seed; with `seeds`, only those below it."""
        place = (cell, row)
        if place not in self._signatures:
            self._signatures[place] = signature(settings_of(cell, row, 0))
        found = self._runs.get(self._signatures[place], {})
        return [found[seed] for seed in sorted(found) if seeds is None or seed < seeds]

    def has(self, cell: Cell, row: str, seed: int) -> bool:
        """Whether a run is there."""
        return any(run.seed == seed for run in self.runs(cell, row))

    def __len__(self) -> int:
        return sum(len(by_seed) for by_seed in self._runs.values())


def results_folder(given: Path | None) -> Path:
    """Where results lie: as given, else results/ here."""
    return given if given is not None else Path("results")


def value_at(curve: Sequence[tuple[float, float]], time: float) -> float:
    """The last value measured by then."""
    value = curve[0][1]
    for at, measured in curve:
        if at > time:
            break
        value = measured
    return value


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a store; another JSON lines file holds none."""
    with path.open(encoding="utf-8") as lines:
        if _HEADER not in next(lines, ""):
            return
        for number, line in enumerate(lines, start=2):
            if not line.endswith("\n"):
                return  # still being written
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                raise SettingsError(
                    f"{path}, line {number}, is not JSON; restore the file from version control"
                ) from None
            yield record


def _stored(record: Mapping[str, Any]) -> StoredRun:
    outcome, experiment = record["outcome"], record["experiment"]
    horizon = float(experiment["horizon"])
    run_at_least = float(experiment.get("run_at_least") or horizon)
    curve = tuple((at, value) for at, _, value in record["curve"] if value is not None)
    return StoredRun(
        seed=int(experiment["seed"]),
        time=outcome.get("time_to_target"),
        horizon=horizon,
        run_at_least=run_at_least,
        # The curve keeps every new best; a run that goes on longer could find more of them.
        top=max((value for at, value in curve if at <= run_at_least), default=None),
        curve=curve,
        local_steps=int(outcome["local_steps"]),
        device=str(record["device"]),
    )
