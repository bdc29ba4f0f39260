"""`fedcompass compare`: several strategies on the same fleets, in the paper's kind of table."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcompass.cli import options as opt
from fedcompass.cli import track_options as track
from fedcompass.cli.medical_data import about_data
from fedcompass.cli.metric_text import metric_text
from fedcompass.cli.options import experiment_from, next_free
from fedcompass.cli.plain_table import plain_table
from fedcompass.cli.report import reported
from fedcompass.errors import RunFolderError, SettingsError

if TYPE_CHECKING:
    from fedcompass.experiment import Experiment
    from fedcompass.sweeps.over_seeds import Outcome, StrategyRow
    from fedcompass.tracking import OpenTracker

__all__ = ["compare"]

_REFERENCE = "fedcompass"
_PROFILES = {
    "paper": "the\nFedCompass paper's where none are given (mnist-mini: a fifth of its steps)",
    "as-run": "the\nFedCompass paper's as its authors' code ran it where none are given",
    "authors": "the\nFedCompass paper's with its authors' further habits where none are given",
    "own": "each strategy's own\npaper's",
}


def compare(
    file: opt.ExperimentFile = None,
    strategies: Annotated[
        str,
        typer.Option(help="Names with commas between; fedcompass is what others are compared to."),
    ] = "fedavg,fedasync,fedbuff,fedat,fedcompass",
    seeds: Annotated[int, typer.Option(help="Seeds 0 to N-1, as they come.", min=1)] = 3,
    data: opt.Data = None,
    data_root: opt.DataRoot = None,
    model: opt.Model = None,
    clients: opt.Clients = None,
    partition: opt.PartitionKind = None,
    speed: opt.Speed = None,
    speed_change: opt.Resample = None,
    steps: opt.Steps = None,
    min_steps: opt.MinSteps = None,
    max_steps: opt.MaxSteps = None,
    latest: opt.Latest = None,
    buffer_size: opt.BufferSize = None,
    tier_ratio: opt.TierRatio = None,
    learning_rate: opt.LearningRate = None,
    batch_size: opt.BatchSize = None,
    horizon: opt.Horizon = None,
    target: opt.Target = None,
    stop_at_target: opt.StopAtTarget = None,
    profile: opt.Profile = None,
    assignments: opt.SetKeys = None,
    name: Annotated[str | None, typer.Option(help="Name of the folder under runs/.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; default: one per core.")] = None,
    device: opt.Device = "cpu",
    tensorboard: track.TensorBoard = None,
    mlflow: track.Mlflow = None,
) -> None:
    """Run several strategies on the same fleets and seeds and compare their time to target.

    Exits with 1 if a run broke off: nobody was left to train. The others are shown all the same.
    """
    given = {key: value for key, value in locals().items() if key in opt.KEYS}
    from fedcompass.sweeps.over_seeds import comparison_rows, troubles

    openers = track.tracker_openers(tensorboard, mlflow)
    grid = _grid(file, assignments, given, strategies, seeds)
    root = opt.named(name) if name else next_free(Path("runs"), "compare")
    if root.exists():
        raise RunFolderError(f"{root} exists already; choose another name")
    print(_what(grid[0], strategies, seeds), flush=True)
    about_data(grid[0])
    outcomes = _run_all(grid, root, workers, device, openers)
    rows = comparison_rows(outcomes, _REFERENCE)
    print(_table(rows, grid[0]))
    print(_meaning(rows, grid[0]))
    print(f"Every run's journal, curve and model: {root}")
    print(f"To look at them: {reported(root)}")
    for line in troubles(outcomes):
        print(line)
    if any(outcome.broke_off for outcome in outcomes):
        raise typer.Exit(1)


def _grid(
    file: Path | None,
    assignments: list[str] | None,
    given: dict[str, Any],
    strategies: str,
    seeds: int,
) -> "list[Experiment]":
    """One experiment per strategy and seed; a strategy gets those strategy options it has."""
    from fedcompass.strategies import known_keys

    names = [name.strip() for name in strategies.split(",")]
    if len(set(names)) < len(names):
        raise SettingsError(f"--strategies is {strategies!r}; allowed: each name once")
    if any(text.partition("=")[0] in ("seed", "strategy.name") for text in assignments or ()):
        raise SettingsError("compare sets seed and strategy.name itself: --seeds, --strategies")
    grid = []
    for seed in range(seeds):
        for name in names:
            known = known_keys(name)
            foreign = [
                key
                for key in given
                if opt.KEYS[key].startswith("strategy.") and opt.KEYS[key][9:] not in known
            ]
            own = {key: value for key, value in given.items() if key not in foreign}
            extra = [f"strategy.name={name!r}", f"seed={seed}"]
            own_only = known if file else None
            grid.append(experiment_from(file, [*extra, *(assignments or ())], own, own_only))
    return grid


def _what(experiment: "Experiment", strategies: str, seeds: int) -> str:
    fleet = experiment.fleet
    return (
        f"{experiment.data.name} ({experiment.model}), {experiment.partition.kind} partition, "
        f"{fleet.clients} clients of {fleet.speed} speed, "
        f"{'seed 0' if seeds == 1 else f'seeds 0 to {seeds - 1}'}: "
        f"{strategies.replace(',', ', ')}.\n"
        f"Each run simulates {experiment.horizon:g} s of virtual time and really trains; the same "
        "seed means\nthe same data split, speeds and initial model for every strategy. Settings: "
        f"{_PROFILES[experiment.profile]}."
    )


def _run_all(
    grid: "Sequence[Experiment]",
    root: Path,
    workers: int | None,
    device: str,
    openers: "Sequence[OpenTracker]",
) -> "list[Outcome]":
    from fedcompass.simulation.many import simulate_many
    from fedcompass.tracking import track as hand_over

    folders = [root / f"{e.strategy['name']}-seed{e.seed}" for e in grid]
    outcomes: dict[int, Outcome] = {}
    try:
        for number, outcome in simulate_many(grid, folders=folders, workers=workers, device=device):
            outcomes[number] = outcome
            hand_over(folders[number], track.run_name(folders[number]), openers)
            metric = grid[number].evaluation.target_metric
            line = _progress(outcome, metric, len(outcomes), len(grid))
            print(line, file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print(f"\nstopped; finished runs are in {root}", file=sys.stderr)
        raise typer.Exit(130) from None
    return [outcomes[number] for number in range(len(grid))]


def _progress(outcome: "Outcome", metric: str, done: int, total: int) -> str:
    reached = outcome.time_to_target
    when = f"target after {reached:.1f} s" if reached is not None else "target not reached"
    off = ", broke off: nobody is left to train" if outcome.broke_off else ""
    return (
        f"  [{done}/{total}] seed {outcome.seed} {outcome.strategy}: {when}, "
        f"top {metric_text(metric, outcome.top)}{off}"
    )


def _table(rows: "Sequence[StrategyRow]", experiment: "Experiment") -> str:
    metric = experiment.evaluation.target_metric
    target = experiment.target
    goal = metric_text(metric, target, 0) if target is not None else "target"
    header = ["strategy", f"time to {goal}", "reached", f"vs {_REFERENCE}", f"top {metric}"]
    header += ["waiting", "staleness", "wins"]
    lines = plain_table(header, [_cells(row, metric) for row in rows], left=(0,)).splitlines()
    return "\n" + "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _cells(row: "StrategyRow", metric: str) -> list[str]:
    time = "-" if row.time is None else f"{row.time:.1f} s"
    if row.time is not None and row.time_spread is not None:
        time += f" ± {row.time_spread:.1f}"
    top = metric_text(metric, row.top)
    if row.top_spread is not None:
        top += f" ± {metric_text(metric, row.top_spread)}"
    return [
        row.strategy,
        time,
        f"{row.reached}/{row.seeds}" + (f", {row.broke_off} broke off" if row.broke_off else ""),
        "-" if row.relative is None else f"{row.relative:.2f}x",
        top,
        f"{row.idle_share:.0%}",
        f"{row.mean_staleness:.2f}",
        str(row.wins),
    ]


def _meaning(rows: "Sequence[StrategyRow]", experiment: "Experiment") -> str:
    ranked = sorted(rows, key=lambda row: row.rank_time)
    order = ", ".join(f"{row.strategy} {row.rank_time:.1f} s" for row in ranked)
    return (
        "\ntime to target: virtual time of the first evaluation at or above it, mean ± standard\n"
        "deviation over the seeds that reached it, - where fewer than half did; vs fedcompass:\n"
        "that mean over fedcompass's. waiting: share of client time spent idle. wins: seeds in\n"
        "which it was first. Ranked with misses counted at the horizon "
        f"({experiment.horizon:g} s):\n  {order}."
    )
