"""`fedcompass schedule`: who trains how long and what merges when, without training anything."""

import json
from collections.abc import Iterable
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcompass.errors import SettingsError

if TYPE_CHECKING:
    from fedcompass.scheduling.compass import CompassSettings
    from fedcompass.scheduling.scheduler import Scheduler
    from fedcompass.simulation.fleet import SpeedChange

__all__ = ["schedule"]


def schedule(
    paces: Annotated[
        str, typer.Option(help="Each client's time per step, from client 0 on: 0.1,0.2,…")
    ],
    until: Annotated[float, typer.Option(help="Print everything up to and including this time.")],
    min_steps: Annotated[int, typer.Option(help="Q_min: fewest local steps.")] = 20,
    max_steps: Annotated[int, typer.Option(help="Q_max: most local steps.")] = 100,
    latest: Annotated[float, typer.Option(help="λ: latest arrival over expected.")] = 1.2,
    change: Annotated[
        list[str] | None,
        typer.Option(
            help="CLIENT:ROUND:PACE: another pace from that local round on (round 0 is the "
            "warm-up). Repeatable."
        ),
    ] = None,
    jitter: Annotated[float, typer.Option(help="σ of the noise per round, as a fraction.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="JSON lines: time, event (dispatch or merge), client, steps, group, version, "
            "staleness (of a merge: the largest); a merge also has contributions, "
            "[client, staleness] each.",
        ),
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(help="Also keep it in this new folder, for `fedcompass report`."),
    ] = None,
    unit: Annotated[
        str, typer.Option(help="Unit of the record's times; min is shown as minutes:seconds.")
    ] = "",
) -> None:
    """Print the schedule Compass makes for clients of given speeds."""
    from fedcompass.scheduling.compass import CompassSettings
    from fedcompass.simulation.fleet import Fleet, FleetSettings
    from fedcompass.simulation.timetable import row, timetable

    if not 0 <= until < inf:
        raise SettingsError(f"--until is {until}; allowed: a finite time of at least 0")
    seconds = _paces(paces)
    changes = tuple(_change(text) for text in change or ())
    fleet = Fleet(
        FleetSettings(clients=len(seconds), paces=seconds, jitter=jitter, changes=changes), seed
    )
    settings = CompassSettings(
        min_steps=min_steps, max_steps=max_steps, latest=latest, min_clients=len(seconds)
    )
    with ExitStack() as stack:
        entries = timetable(
            _scheduler(settings, record, stack, seed=seed, unit=unit),
            {str(client): 1 for client in range(len(seconds))},
            lambda client, local_round: fleet.seconds_per_step(int(client), local_round),
            until,
        )
        rows = (row(entry) for entry in entries)
        if as_json:
            for entry in rows:
                print(json.dumps(entry))
        else:
            _print_table(rows)


def _scheduler(
    settings: "CompassSettings", folder: Path | None, stack: ExitStack, **facts: Any
) -> "Scheduler":
    """A fresh scheduler; what happens to it is kept in the folder, if there is one."""
    from fedcompass.scheduling.compass import Compass
    from fedcompass.scheduling.scheduler import Scheduler

    if folder is None:
        return Scheduler(Compass(settings))
    from fedcompass.report.recording import RecordedScheduler, new_record

    journal = new_record(folder, settings, **facts)
    stack.callback(journal.close)
    return RecordedScheduler(Compass(settings), journal)


def _paces(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(
            f"--paces is {text!r}; allowed: numbers with commas between them, such as 0.1,0.25"
        ) from None


def _change(text: str) -> "SpeedChange":
    from fedcompass.simulation.fleet import SpeedChange

    try:
        client, local_round, pace = text.split(":")
        return SpeedChange(
            client=int(client), from_round=int(local_round), seconds_per_step=float(pace)
        )
    except SettingsError:
        raise
    except ValueError:
        raise SettingsError(
            f"--change is {text!r}; allowed: CLIENT:ROUND:PACE, such as 2:1:0.3"
        ) from None


def _print_table(rows: Iterable[dict[str, Any]]) -> None:
    """Plain aligned columns, so that the output reads the same in a file and in a terminal."""
    print(
        f"{'time':>10}  {'event':<8}  {'client':>6}  {'steps':>5}  {'group':>5}"
        f"  {'version':>7}  staleness"
    )
    for record in rows:
        staleness = ", ".join(f"{c}: {s}" for c, s in record.get("contributions", ()))
        cells = [_cell(record[key]) for key in ("client", "steps", "group", "version")]
        client, steps, group, version = cells
        line = (
            f"{record['time']:>10.4f}  {record['event']:<8}  {client:>6}  {steps:>5}  {group:>5}"
            f"  {version:>7}  {staleness}"
        )
        print(line.rstrip())


def _cell(value: int | None) -> str:
    return "" if value is None else str(value)
