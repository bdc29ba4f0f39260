"""`fedcompass schedule`: who trains how long and what merges when, without training anything."""

import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcompass.cli.options import check_choice, parse_numbers, parse_samples
from fedcompass.cli.text import plain_table
from fedcompass.errors import SettingsError

if TYPE_CHECKING:
    from fedcompass.runs.journal import Journal
    from fedcompass.runs.tally import Tally
    from fedcompass.settings.simulation import SpeedChange
    from fedcompass.simulation.fleet import Fleet
    from fedcompass.strategies import Strategy

__all__ = ["schedule"]

_STRATEGIES = ("fedcompass", "metronome")


def schedule(
    paces: Annotated[
        str, typer.Option(help="Each client's time per step, from client 0 on: 0.1,0.2,…")
    ],
    until: Annotated[float, typer.Option(help="Print everything up to and including this time.")],
    strategy: Annotated[str, typer.Option(help="fedcompass or metronome.")] = "fedcompass",
    min_steps: Annotated[int, typer.Option(help="Q_min: fewest local steps.")] = 20,
    max_steps: Annotated[int, typer.Option(help="Q_max: most local steps.")] = 100,
    latest: Annotated[float, typer.Option(help="λ: latest arrival over expected.")] = 1.2,
    covered: Annotated[
        float | None,
        typer.Option(help="ρ of metronome: clients with this share can do Q_min in a beat; 0.75."),
    ] = None,
    create_group: Annotated[
        str | None,
        typer.Option(
            help="Of fedcompass: clamp (the default) or pass-over, the paper's two readings of "
            "CreateGroup."
        ),
    ] = None,
    samples: Annotated[
        str | None, typer.Option(help="Each client's samples: 500,1200,…; else all the same.")
    ] = None,
    overhead: Annotated[float, typer.Option(help="Time of each task beside its steps.")] = 0.0,
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
    """Print the schedule Compass or Metronome makes for clients of given speeds."""
    from fedcompass.scheduling.scheduler import Scheduler
    from fedcompass.simulation.timetable import row, timetable

    for option, value in (("until", until), ("overhead", overhead)):
        if not 0 <= value < inf:
            raise SettingsError(f"--{option} is {value}; allowed: a finite time of at least 0")
    fleet = _fleet(paces, change or [], jitter, seed)
    chosen = _chosen(
        strategy,
        covered,
        create_group,
        min_steps=min_steps,
        max_steps=max_steps,
        latest=latest,
        min_clients=len(fleet),
    )
    clients = [str(client) for client in range(len(fleet))]
    weights = (1,) * len(fleet) if samples is None else parse_samples(samples, len(fleet))
    with ExitStack() as stack:
        journal, tally = _counted(chosen, record, stack, seed=seed, unit=unit)
        entries = timetable(
            Scheduler(chosen.new_policy()),
            dict(zip(clients, weights, strict=True)),
            lambda client, local_round: fleet.seconds_per_step(int(client), local_round),
            until,
            dict.fromkeys(clients, overhead),
            journal,
        )
        rows = (row(entry) for entry in entries)
        if as_json:
            for entry in rows:
                print(json.dumps(entry))
            return
        _print_table(rows, "beat" if strategy == "metronome" else "group")
    if strategy == "metronome":
        print(f"\n{_waited(tally, until)}\n\n{_beats(chosen, fleet.paces, weights, overhead)}")


def _fleet(paces: str, changes: Sequence[str], jitter: float, seed: int) -> "Fleet":
    from fedcompass.settings.simulation import FleetSettings
    from fedcompass.simulation.fleet import Fleet

    seconds = parse_numbers("--paces", paces)
    changed = tuple(map(_change, changes))
    given = FleetSettings(clients=len(seconds), paces=seconds, jitter=jitter, changes=changed)
    return Fleet(given, seed)


def _chosen(
    name: str, covered: float | None, create_group: str | None, **settings: Any
) -> "Strategy":
    from fedcompass.strategies import strategy

    check_choice("--strategy", name, _STRATEGIES)
    if covered is not None:
        if name != "metronome":
            raise SettingsError(f"--covered is {covered}, but {name} has no beats; leave it out")
        settings["covered"] = covered
    if create_group is not None:
        if name != "fedcompass":
            raise SettingsError(
                f"--create-group is {create_group!r}, but {name} has no groups; leave it out"
            )
        settings["create_group"] = create_group
    return strategy(name, **settings)


def _counted(
    chosen: "Strategy", folder: Path | None, stack: ExitStack, **facts: Any
) -> "tuple[Journal, Tally]":
    """What takes the schedule down: a tally, and a file in the folder if there is one."""
    from fedcompass.report.recording import new_record
    from fedcompass.runs.journal import Tee
    from fedcompass.runs.tally import Tally

    tally = Tally()
    records: list[Journal] = [tally]
    if folder is not None:
        journal = new_record(folder, chosen.scheduling, **facts)
        stack.callback(journal.close)
        records.append(journal)
    return Tee(*records), tally


def _waited(tally: "Tally", until: float) -> str:
    idle, ahead = (
        round(100 * share) for share in (tally.idle_share(until), tally.ahead_share(until))
    )
    return (
        f"Clients waited {idle}% of the time up to {until:g}: {ahead}% by plan, ahead of "
        f"their beat, {idle - ahead}% for others."
    )


def _beats(
    chosen: "Strategy", paces: Sequence[float], samples: Sequence[int], overhead: float
) -> str:
    """What each client does in a beat, from the paces alone."""
    from fedcompass.scheduling.metronome import MetronomeSettings
    from fedcompass.theory import beat_shares

    settings = chosen.scheduling
    assert isinstance(settings, MetronomeSettings)
    period, shares = beat_shares(
        paces,
        settings.min_steps,
        settings.max_steps,
        covered=settings.covered,
        samples=samples,
        overhead=overhead,
    )
    rows = [
        [str(client), str(share.beats), str(share.steps), f"{share.waiting:.0%}"]
        for client, share in enumerate(shares)
    ]
    table = plain_table(["client", "beats", "steps", "waiting"], rows, left=())
    return (
        f"Once every pace is known a beat lasts {period:g}; for each client, the beats that a task "
        f"takes,\nits steps, and the share of time it waits by plan:\n\n{table}"
    )


def _change(text: str) -> "SpeedChange":
    from fedcompass.settings.simulation import SpeedChange

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


def _print_table(rows: Iterable[dict[str, Any]], together: str) -> None:
    """Plain aligned columns, so that the output reads the same in a file and in a terminal."""
    print(
        f"{'time':>10}  {'event':<8}  {'client':>6}  {'steps':>5}  {together:>5}"
        f"  {'version':>7}  staleness"
    )
    for record in rows:
        staleness = ", ".join(f"{c}: {s}" for c, s in record.get("contributions", ()))
        client, steps, group, version = (
            "" if record[key] is None else record[key]
            for key in ("client", "steps", "group", "version")
        )
        line = (
            f"{record['time']:>10.4f}  {record['event']:<8}  {client:>6}  {steps:>5}  {group:>5}"
            f"  {version:>7}  {staleness}"
        )
        print(line.rstrip())
