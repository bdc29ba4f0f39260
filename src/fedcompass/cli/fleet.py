"""`fedcompass fleet`: how fast each simulated client is, and what Compass can make of it."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcompass.cli.options import PictureOption, picture_file
from fedcompass.cli.text import plain_table
from fedcompass.errors import SettingsError
from fedcompass.number_text import number_of

if TYPE_CHECKING:
    from fedcompass.simulation.fleet import Fleet

__all__ = ["fleet"]

_USUAL_CLIENTS = 50  # as in the paper's figure of the two distributions


def fleet(
    clients: Annotated[
        int | None,
        typer.Option(help="How many clients: 50 unless given; of a trace, all in the file."),
    ] = None,
    speed: Annotated[
        str | None,
        typer.Option(help="exponential (unless given), normal or homogeneous."),
    ] = None,
    mean: Annotated[
        float | None,
        typer.Option(
            help="Mean seconds per step: 0.15 unless given. The paper: mnist 0.15, cifar10 0.5, "
            "fed-ixi 0.8, fed-isic2019 1.5."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    spread: Annotated[
        float | None, typer.Option(help="normal: σ as a fraction of the mean; 0.3.")
    ] = None,
    jitter: Annotated[
        float | None, typer.Option(help="σ of the noise per round, as a fraction; 0.05.")
    ] = None,
    floor: Annotated[
        float | None, typer.Option(help="No drawn pace is below this fraction of the mean; 0.02.")
    ] = None,
    speed_change: Annotated[
        float | None, typer.Option(help="Chance per round that a pace is drawn again; 0.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="CSV file with paces: client,seconds_per_step or client,round,seconds_per_step."
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=0, help="Show the paces of so many local rounds, with jitter.")
    ] = 0,
    min_steps: Annotated[int, typer.Option(help="Q_min: fewest local steps.")] = 40,
    max_steps: Annotated[int, typer.Option(help="Q_max: most local steps.")] = 200,
    output: PictureOption = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="JSON lines: one per client, then {fleet: {mu, group_bound, groups, …}}.",
        ),
    ] = False,
) -> None:
    """Show how fast each simulated client is, and what follows."""
    from fedcompass.settings.simulation import FleetSettings
    from fedcompass.simulation.fleet import Fleet

    if seed < 0:
        raise SettingsError(f"seed is {seed}; allowed: a whole number at least 0")
    drawn: dict[str, Any] = {"speed": speed, "mean_seconds_per_step": mean, "spread": spread}
    drawn |= {"floor": floor, "resample_probability": speed_change}
    given = _traced(trace, drawn) if trace is not None else {"clients": _USUAL_CLIENTS, **drawn}
    given |= {"jitter": jitter} | ({} if clients is None else {"clients": clients})
    made = Fleet(FleetSettings(**{k: v for k, v in given.items() if v is not None}), seed)
    outlook = _outlook(made, min_steps, max_steps)
    if output is not None:
        _draw(made, output)
    if as_json:
        _print_json(made, outlook, rounds)
    else:
        print(f"{_what(made)}\n\n{_table(made, outlook, rounds)}\n\n{_in_words(made, outlook)}")


def _traced(trace: Path, drawn: dict[str, Any]) -> dict[str, Any]:
    """The settings of a fleet from a file; refuses options that belong to a drawn fleet."""
    from fedcompass.simulation.fleet_trace import clients_in_trace

    options = {"mean_seconds_per_step": "mean", "resample_probability": "speed-change"}
    for name, value in drawn.items():
        if value is not None and value != "trace":
            option = options.get(name, name)
            raise SettingsError(f"--{option} is {value}, but --trace gives the paces; leave it out")
    return {"speed": "trace", "trace": trace, "clients": clients_in_trace(trace)}


@dataclass(frozen=True)
class _Outlook:
    """What the paper's analysis says about a fleet; see `fedcompass.theory`."""

    min_steps: int
    max_steps: int
    group_bound: int
    groups: list[list[int]]
    steps: list[int]


def _outlook(fleet: "Fleet", min_steps: int, max_steps: int) -> _Outlook:
    from fractions import Fraction

    from fedcompass import theory

    groups = theory.equilibrium_groups(fleet.paces, min_steps, max_steps)
    steps = theory.equilibrium_steps(fleet.paces, min_steps, max_steps)
    ratio = Fraction(max_steps, min_steps)
    bound = theory.group_bound(fleet.speed_ratio, ratio, clients=len(fleet))
    return _Outlook(min_steps, max_steps, bound, groups, steps)


def _draw(fleet: "Fleet", path: Path) -> None:
    from fedcompass.report.figures.setup import draw_fleet

    seed = "" if fleet.settings.speed == "trace" else f", seed {fleet.seed}"
    title = f"{fleet.settings.speed}, {len(fleet)} clients{seed}"
    with picture_file(path):
        draw_fleet({title: fleet}, path)


def _print_json(fleet: "Fleet", outlook: _Outlook, rounds: int) -> None:
    number = {client: n for n, group in enumerate(outlook.groups, start=1) for client in group}
    for record in fleet.rows():
        client = record["client"]
        record |= {"group": number[client], "steps": outlook.steps[client]}
        if rounds:
            record["rounds"] = [fleet.seconds_per_step(client, r) for r in range(rounds)]
        print(json.dumps(record))
    summary = {
        "clients": len(fleet),
        "mu": fleet.speed_ratio,
        "min_steps": outlook.min_steps,
        "max_steps": outlook.max_steps,
        "group_bound": outlook.group_bound,
        "groups": outlook.groups,
    }
    print(json.dumps({"fleet": summary}))


def _what(fleet: "Fleet") -> str:
    settings = fleet.settings
    if settings.trace is not None:
        return f"{len(fleet)} clients from {settings.trace.name}"
    mean = settings.mean_seconds_per_step
    return f"{len(fleet)} clients, {settings.speed}, mean {mean:g} s per step, seed {fleet.seed}"


def _table(fleet: "Fleet", outlook: _Outlook, rounds: int) -> str:
    """The fastest client first, so that those of a group stand together."""
    fastest = min(fleet.paces)
    decimals = max(3, 2 - math.floor(math.log10(fastest)))  # three digits of the smallest pace
    header = ["client", "s/step", "slower", "group", "steps"]
    header += [f"round {number}" for number in range(rounds)]
    cells = []
    for number, group in enumerate(outlook.groups, start=1):
        for client in group:
            pace = fleet.paces[client]
            line: list[object] = [client, f"{pace:.{decimals}f}", f"{pace / fastest:.2f}x"]
            line += [number, outlook.steps[client]]
            line += [f"{fleet.seconds_per_step(client, r):.{decimals}f}" for r in range(rounds)]
            cells.append(line)
    return plain_table(header, cells, left=())


def _in_words(fleet: "Fleet", outlook: _Outlook) -> str:
    low, high = min(fleet.paces), max(fleet.paces)
    ratio = outlook.max_steps / outlook.min_steps
    sizes = [len(group) for group in outlook.groups]
    each = f"of {', '.join(map(str, sizes))} clients" if len(sizes) > 1 else "of all clients"
    bound = "ceil(log_Q mu)" if ratio > 1 else "one per client"
    return (
        f"fastest {low:.3g} s/step, slowest {high:.3g} s/step: mu = {fleet.speed_ratio:.2f}\n"
        f"Q_min {outlook.min_steps}, Q_max {outlook.max_steps} (Q = {ratio:g}): "
        f"at most {number_of(outlook.group_bound, 'group')} at equilibrium, {bound};\n"
        f"here {number_of(len(sizes), 'group')}, {each}. steps: local steps of each client then."
    )
