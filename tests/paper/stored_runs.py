"""Stores with made-up results, as `fedcompass paper run` would write them."""

import json
from pathlib import Path
from typing import Any

from fedcompass.paper.cells import Cell
from fedcompass.paper.hyperparameters import settings_of


def line(
    cell: Cell, row: str, seed: int, time: float | None, top: float, **more: Any
) -> dict[str, Any]:
    """One record: accuracy climbs to `top`, over the target at `time`, and the run ends there."""
    settings = settings_of(cell, row, seed)
    least = settings["run_at_least"] or settings["horizon"]
    ends = settings["horizon"] if time is None else max(time, least)
    middle = [least, 5, top] if time is None else [time, 5, min(top, cell.settings.target)]
    return {
        "key": f"{cell} {row} {seed}",
        "experiment": settings,
        "outcome": {
            "time_to_target": time,
            "top": top,
            "time_of_top": ends,
            "final": top,
            "virtual_seconds": ends,
            "global_updates": 10,
            "local_steps": 1000,
            "updates": 20,
            "idle_share": 0.1,
            "mean_staleness": 0.5,
        },
        "curve": [[0.0, 0, 0.1], middle, [ends, 10, top]],
        "code": "0.1.0",
        "device": "cpu",
        **more,
    }


def write_store(path: Path, records: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = json.dumps({"fedcompass_store": 1})
    path.write_text("\n".join([header, *map(json.dumps, records)]) + "\n", encoding="utf-8")
