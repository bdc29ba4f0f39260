"""`fedcompass compare`: a small sweep of strategies and seeds, in the paper's kind of table."""

import json
from contextlib import closing
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcompass.cli import options as opt
from fedcompass.cli import track_options as track
from fedcompass.cli.interrupts import going_on_later
from fedcompass.cli.medical_data import about_data
from fedcompass.cli.report import reported
from fedcompass.cli.run import data_and_model
from fedcompass.cli.setting_options import assigned, file_and_options, given
from fedcompass.cli.sweep import RESULTS, SWEEP_FILE, tell_changed_code
from fedcompass.cli.text import plain_table, wrapped
from fedcompass.errors import RunFolderError, SettingsError
from fedcompass.own_code import absolute, is_own, short, with_names
from fedcompass.setting_tables import flat, merged

if TYPE_CHECKING:
    from fedcompass.cli.sweep_progress import SweepProgress
    from fedcompass.experiment import Experiment
    from fedcompass.report.tracking import OpenTracker
    from fedcompass.sweeps.comparison import Comparison
    from fedcompass.sweeps.store import Store
    from fedcompass.sweeps.sweep_file import Sweep

__all__ = ["compare"]

_REFERENCE = "fedcompass"
_NOT_EVERYWHERE = (
    "Metronome is not the fastest everywhere: with five clients or equal speeds FedAvg in short "
    "rounds (--steps 4) is as fast or faster, with data that are alike a tuned FedCompass is "
    "(docs/metronome.md)."
)
_PROFILES = {
    "paper": "the FedCompass paper's where none are given",
    "as-run": "the FedCompass paper's as its authors' code ran it where none are given",
    "authors": "the FedCompass paper's with its authors' further habits where none are given",
    "own": "each strategy's own paper's",
}


def compare(
    context: typer.Context,
    file: opt.ExperimentFile = None,
    strategies: Annotated[
        str,
        typer.Option(
            help="Names with commas between; others are compared to fedcompass or the first."
        ),
    ] = "fedavg,fedasync,fedbuff,fedat,fedcompass,metronome",
    seeds: Annotated[int, typer.Option(help="Seeds 0 to N-1, as they come.", min=1)] = 3,
    assignments: opt.SetKeys = None,
    name: Annotated[str | None, typer.Option(help="Name of the folder under runs/.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Folder of a stopped comparison to go on with.")
    ] = None,
    workers: opt.Workers = None,
    device: opt.Device = "auto",
    tensorboard: track.TensorBoard = None,
    mlflow: track.Mlflow = None,
    wandb: track.Wandb = None,
) -> None:
    """Run several strategies on the same fleets and seeds and compare their time to target.

    Exits with 1 if a run failed, or broke off: nobody was left to train. The others are shown all
    the same.
    """
    if resume is not None:
        _refuse_settings(context)
    root = resume or _new_root(name)
    print(f"compare: {root}", flush=True)  # before what takes long to load
    from fedcompass.cli.sweep_progress import SweepProgress
    from fedcompass.sweeps.comparison import Comparison
    from fedcompass.sweeps.results import Results
    from fedcompass.sweeps.store import Store

    openers = track.tracker_openers(tensorboard, mlflow, wandb)
    if resume is not None:
        sweep = _kept_sweep(resume)
    else:
        sweep = _sweep(root.name, file, assignments, given(context), strategies, seeds)
    store = Store(root / RESULTS)
    first = sweep.experiments()[0]
    print(_what(sweep, first), flush=True)
    device = opt.device_to_use(device)
    about_data(first)
    tell_changed_code(sweep, store)
    progress = SweepProgress(sweep, store, lambda experiment: root / _folder_name(experiment))
    with progress.live:
        _run_missing(sweep, store, progress, openers, workers=workers, device=device)
    comparison = Comparison(Results.of_plan(sweep.plan(), store), _reference(sweep))
    _show(comparison, first, root)
    if any(p.failed or (p.row is not None and p.row.broke_off) for p in comparison.points()):
        raise typer.Exit(1)


def _new_root(name: str | None) -> Path:
    root = opt.named(name) if name else opt.next_free("compare")
    if root.exists():
        goes_on = f", or go on with it: --resume {root}" if (root / SWEEP_FILE).exists() else ""
        raise RunFolderError(f"{root} exists already; choose another name{goes_on}")
    return root


_GO_WITH_RESUME = ("resume", "workers", "device", "tensorboard", "mlflow", "wandb")


def _refuse_settings(context: typer.Context) -> None:
    for parameter in context.command.get_params(context):
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in _GO_WITH_RESUME:
            raise RunFolderError(
                "--resume goes on with a comparison as it is; leave the settings out "
                f"({parameter.opts[0]})"
            )


def _kept_sweep(root: Path) -> "Sweep":
    from fedcompass.sweeps.sweep_file import Sweep

    if not (root / SWEEP_FILE).is_file():
        raise RunFolderError(f"{root} is not a comparison's folder: it has no {SWEEP_FILE}")
    return Sweep.from_toml(root / SWEEP_FILE)


def _sweep(
    name: str,
    file: Path | None,
    assignments: list[str] | None,
    options: dict[str, Any],
    strategies: str,
    seeds: int,
) -> "Sweep":
    """Gives each strategy the settings it has; a setting that no strategy has is dropped.

    Raises:
        SettingsError: one line about the first thing that is wrong, such as a --set that none has.
    """
    from fedcompass.strategies import known_keys
    from fedcompass.sweeps.sweep_file import Sweep

    names = [absolute(part.strip()) for part in strategies.split(",")]
    if len(set(names)) < len(names):
        raise SettingsError(f"--strategies is {strategies!r}; allowed: each name once")
    if any(text.partition("=")[0] in ("seed", "strategy.name") for text in assignments or ()):
        raise SettingsError("compare sets seed and strategy.name itself: --seeds, --strategies")
    base = file_and_options(file, options)
    base.pop("seed", None)
    if isinstance(base.get("strategy"), dict):
        known = {key for each in names for key in known_keys(each)}
        base["strategy"] = {k: v for k, v in base["strategy"].items() if k in known}
    base = with_names(merged(base, assigned(assignments)), absolute)
    sweep = Sweep(name=name, base=base, grid={"strategy.name": names}, seeds=seeds)
    sweep.plan()  # every experiment is checked before anything is written
    return sweep


def _what(sweep: "Sweep", experiment: "Experiment") -> str:
    fleet = experiment.fleet
    seeds = sorted({planned.experiment.seed for planned in sweep.plan()})
    about = (
        f"{data_and_model(experiment)}, {experiment.partition.kind} partition, "
        f"{fleet.clients} clients of {'given paces' if fleet.paces else f'{fleet.speed} speed'}, "
        f"{'seed 0' if len(seeds) == 1 else f'seeds 0 to {seeds[-1]}'}: "
        f"{', '.join(sweep.axes['strategy.name'])}."
    )
    meaning = (
        f"Each run simulates {experiment.horizon:g} s of virtual time and really trains; the same "
        "seed means the same data split, speeds and initial model for every strategy. Settings: "
        f"{_PROFILES[experiment.profile]}{_fewer_steps(experiment)}{_shared(sweep)}."
    )
    return f"{wrapped(about)}\n{wrapped(meaning)}"


def _shared(sweep: "Sweep") -> str:
    """What was set of strategies; each one that has such a setting gets it."""
    shared = flat(sweep.base.get("strategy") or {})
    settings = ", ".join(
        f"{key} = {json.dumps(value, default=str)}" for key, value in shared.items()
    )
    return f"; for every strategy that has it: {settings}" if settings else ""


def _fewer_steps(experiment: "Experiment") -> str:
    """What `paper_settings` does with steps that the paper has for larger data."""
    data = experiment.data.name
    if experiment.profile != "paper" or not (is_own(data) or data == "mnist-mini"):
        return ""
    return f" ({'own data' if is_own(data) else data}: a fifth of its steps)"


def _folder_name(experiment: "Experiment") -> str:
    return f"{short(experiment.strategy['name'])}-seed{experiment.seed}"


def _run_missing(
    sweep: "Sweep",
    store: "Store",
    progress: "SweepProgress",
    openers: "list[OpenTracker]",
    *,
    workers: int | None,
    device: str,
) -> None:
    """Run what the store lacks; each run keeps its folder, and is logged when it is done."""
    from fedcompass.report.tracking import track as hand_over
    from fedcompass.runs.files import write_whole
    from fedcompass.runs.folder import RunFolder
    from fedcompass.sweeps.running import run_all

    root, experiments = store.path.parent, sweep.experiments()
    folders = {e.key(): root / _folder_name(e) for e in experiments}

    def tell() -> None:
        goes_on = f". To go on: fedcompass compare --resume {root}" if root.exists() else ""
        progress.live.say(f"\nstopped; {progress.state()}{goes_on}")

    with going_on_later(tell):
        records = run_all(
            experiments, store, workers=workers, device=device, folder=root, keep_as=_folder_name
        )  # says what is missing before a folder is made
        if not root.exists():
            RunFolder(root).make()
            write_whole(root / SWEEP_FILE, sweep.to_toml())
        with closing(records):
            for record in records:
                if record.is_done:
                    hand_over(folders[record.key], track.run_name(folders[record.key]), openers)
                progress.update(record)


def _reference(sweep: "Sweep") -> str:
    """The strategy that times are relative to: ours, or the first where ours is not there."""
    names = sweep.axes["strategy.name"]
    return _REFERENCE if _REFERENCE in names else names[0]


def _show(comparison: "Comparison", experiment: "Experiment", root: Path) -> None:
    from fedcompass.cli.table_shapes import notes

    print(_table(comparison))
    print(_meaning(comparison, experiment))
    if experiment.target is None:
        print("There is no target; --target VALUE shows the times to it.")
    if "metronome" in comparison.results.axes["strategy.name"]:
        print(wrapped(_NOT_EVERYWHERE))
    print(f"Every run's journal, curve and model: {root}")
    print(f"To look at them: {reported(root)}")
    for line in notes(comparison):
        print(line)


def _table(comparison: "Comparison") -> str:
    """The sweep's list of points, with strategies for rows."""
    from fedcompass.cli.table_shapes import listing

    shape = listing(comparison)
    header, rows = ["strategy", *shape.header[1:-1]], [row[:-1] for row in shape.rows]
    lines = plain_table(header, rows, left=(0,)).splitlines()
    return "\n" + "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _meaning(comparison: "Comparison", experiment: "Experiment") -> str:
    from fedcompass.cli.table_shapes import at_target

    times = [
        (point.row.rank_time, label)
        for point in comparison.points()
        for label in point.labels.values()
        if point.row is not None
    ]
    order = ", ".join(f"{label} {time:.1f} s" for time, label in sorted(times, key=itemgetter(0)))
    meaning = (
        f"time to target: virtual time of the first evaluation {at_target(comparison.points())} "
        "it, mean ± standard deviation over the seeds that reached it, - where fewer than half "
        f"did; ratio: that mean over {comparison.reference}'s. idle: share of client time spent "
        "waiting. stale: mean staleness. wins: seeds in which it was first. Ranked with "
        f"misses counted at the horizon ({experiment.horizon:g} s): {order}."
    )
    return f"\n{wrapped(meaning)}"
