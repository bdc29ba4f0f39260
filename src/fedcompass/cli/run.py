"""`fedcompass run`: one experiment, watched while it runs, and what came out of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from fedcompass.cli import options as opt
from fedcompass.cli import track_options as track
from fedcompass.cli.interrupts import going_on_later
from fedcompass.cli.medical_data import about_data
from fedcompass.cli.progress import RunProgress
from fedcompass.cli.report import reported
from fedcompass.cli.setting_options import all_given, given
from fedcompass.cli.text import wrapped
from fedcompass.errors import FedcompassError, RunFolderError
from fedcompass.number_text import number_of
from fedcompass.own_code import short
from fedcompass.setting_tables import merged, nested

if TYPE_CHECKING:
    from fedcompass.experiment import Experiment
    from fedcompass.report.tracking import OpenTracker
    from fedcompass.runs.folder import RunFolder
    from fedcompass.simulation.engine import Simulation
    from fedcompass.simulation.result import Result

__all__ = ["data_and_model", "describe", "run"]


def run(
    context: typer.Context,
    file: opt.ExperimentFile = None,
    assignments: opt.SetKeys = None,
    name: Annotated[str | None, typer.Option(help="Name of the run's folder under runs/.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Folder of a stopped run to go on with.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace a folder of that name.")] = False,
    executor: Annotated[
        str, typer.Option(help="serial or processes (the same bits), or stacked (within rounding).")
    ] = "processes",
    workers: opt.Workers = None,
    device: opt.Device = "auto",
    max_stack: opt.MaxStack = None,
    no_train: Annotated[bool, typer.Option(help="Schedule only; train nothing.")] = False,
    tensorboard: track.TensorBoard = None,
    mlflow: track.Mlflow = None,
    wandb: track.Wandb = None,
) -> None:
    """Simulate one strategy; without arguments, FedCompass on a bundled part of MNIST.

    Exits with 1 if the run broke off: nobody was left to train.
    """
    options = given(context)
    if resume is not None and (file is not None or assignments or options):
        raise RunFolderError("--resume goes on with a run as it is; leave the settings out")
    settings = all_given(file, assignments, options)
    path = resume or (opt.named(name) if name else opt.next_free(_usual_name(settings)))
    print(f"run: {path}", flush=True)  # before what takes long to load
    experiment = _experiment(resume, settings)
    print(describe(experiment), flush=True)
    from fedcompass.simulation.ending import broke_off
    from fedcompass.simulation.experiment_folder import resume_run

    device = opt.device_to_use(device, "none" if no_train else None)
    openers = track.tracker_openers(tensorboard, mlflow, wandb)
    folder = resume_run(resume) if resume is not None else None
    if folder is None and not no_train:
        about_data(experiment)
    progress = RunProgress(experiment)
    with progress.live:
        folder = folder or _new_folder(path, experiment, not no_train, overwrite)
        options = {
            "executor": _chosen(executor, device, no_train),
            "workers": workers,
            "device": "cpu" if no_train else device,
            "max_stack": max_stack,
        }
        result = _watched(folder, experiment, progress, openers, options)
    print(_report(result))
    if broke_off(result.summary):
        raise typer.Exit(1)


def _experiment(resume: Path | None, settings: dict[str, Any]) -> "Experiment":
    if resume is not None:
        from fedcompass.runs.folder import RunFolder
        from fedcompass.simulation.experiment_folder import experiment_of

        return experiment_of(RunFolder(resume))
    from fedcompass.experiment import Experiment

    return Experiment(**settings)


_USUAL = ("fedcompass", "mnist-mini", 0)  # an experiment's strategy, data and seed


def _usual_name(settings: dict[str, Any]) -> str:
    """A folder's name by the settings that were given, which nobody has checked yet."""
    usual = nested("strategy.name", _USUAL[0]) | nested("data.name", _USUAL[1])
    whole = merged(usual, {"seed": _USUAL[2]}, settings)
    strategy, data = (
        table.get("name") if isinstance(table, dict) else table
        for table in (whole["strategy"], whole["data"])
    )
    name = f"{short(str(strategy))}-{short(str(data))}-seed{whole['seed']}"
    return name.replace("/", "-")


def _new_folder(path: Path, experiment: "Experiment", trains: bool, overwrite: bool) -> "RunFolder":
    from fedcompass.simulation.experiment_folder import create_run
    from fedcompass.simulation.problems import build_problem

    if trains:
        build_problem(experiment)  # what is missing is said before a folder is touched
    return create_run(path, experiment, overwrite=overwrite)


def _chosen(executor: str, device: str, no_train: bool) -> str:
    """Who trains: on another device than the CPU, all pending tasks at once."""
    if no_train:
        return "none"
    return "stacked" if device != "cpu" and executor == "processes" else executor


def _watched(
    folder: "RunFolder",
    experiment: "Experiment",
    progress: RunProgress,
    openers: "list[OpenTracker]",
    options: dict[str, Any],
) -> "Result":
    from fedcompass.report.tracking import FollowedRun
    from fedcompass.simulation.run import simulate

    def on_progress(simulation: "Simulation") -> None:
        progress.update(simulation)
        followed.update()

    def say_how_to_go_on() -> None:
        if folder.remove_if_not_begun():
            progress.live.say("\nstopped before the first task; nothing is kept")
        else:
            progress.live.say(f"\nstopped. To go on: fedcompass run --resume {folder.path}")

    try:
        with (
            going_on_later(say_how_to_go_on),
            FollowedRun(folder.path, track.run_name(folder.path), openers) as followed,
        ):
            return simulate(experiment, folder=folder, on_progress=on_progress, **options)
    except FedcompassError:
        folder.remove_if_not_begun()
        raise


_Line: TypeAlias = tuple[str, str]
"""What a number is, and the number with some words."""


def _report(result: "Result") -> str:
    from fedcompass.simulation.ending import trouble
    from fedcompass.simulation.result_view import model_sent, outcome_lines

    summary = result.summary
    lines = [
        *_privacy_lines(result.experiment, summary),
        *outcome_lines(result),
        ("updates per client", " ".join(map(str, summary["updates_per_client"][:20]))),
        ("steps per client", " ".join(map(str, summary["steps_per_client"][:20]))),
        ("model sent", model_sent(summary)),
        *_spent_lines(summary),
        *_masked_lines(summary),
    ]
    if refused := summary["refused"]:
        lines.append(("refused updates", f"{refused} (reasons in the journal)"))
    if pending := summary["pending_updates"]:
        lines.append(("not merged yet", f"{number_of(pending, 'update')} at the end"))
    lines.append(("record", str(result.folder)))
    if result.folder is not None:
        lines.append(("to look at it", reported(result.folder)))
    lines.append(("WARNING", trouble(summary)))
    return "\n".join(f"  {what:<18} {text}" for what, text in lines if text is not None)


def _privacy_lines(experiment: "Experiment", summary: dict[str, Any]) -> list[_Line]:
    """What clients may spend, and how their steps are private, if they are."""
    if "noise_per_client" not in summary:
        return []
    privacy, noise = experiment.privacy, sorted(set(summary["noise_per_client"]))
    told = f"{noise[0]:.3g}" + (f" to {noise[-1]:.3g}" if len(noise) > 1 else "")
    epsilon, delta, clip = map(_per_client, (privacy.epsilon, privacy.delta, privacy.clip))
    return [("privacy", f"epsilon at most {epsilon}, delta {delta}; clip {clip}, noise {told}")]


def _spent_lines(summary: dict[str, Any]) -> list[_Line]:
    """What each client has spent, and who left for it."""
    spent, left = summary.get("epsilon_per_client", []), summary.get("budget_spent", [])
    lines = [
        ("epsilon per client", " ".join(f"{value:.2f}" for value in spent[:20])),
        ("budget spent, left", " ".join(map(str, left[:20]))),
    ]
    return [(what, text) for what, text in lines if text]


def _masked_lines(summary: dict[str, Any]) -> list[_Line]:
    """What secure aggregation cost, if there was any."""
    merges = summary.get("masked_merges", 0)
    if not merges:
        return []
    sent, received = (summary[f"masked_bytes_{way}"] / merges / 1e6 for way in ("up", "down"))
    return [("masked sums", f"{merges}; {sent:.2f} MB up and {received:.2f} MB down in each")]


def _per_client(value: Any) -> str:
    return " ".join(f"{number:g}" for number in value) if isinstance(value, tuple) else f"{value:g}"


def describe(experiment: "Experiment") -> str:
    """What is run on what."""
    from fedcompass.simulation.fleet import Fleet

    fleet = experiment.fleet
    ratio = Fleet(fleet, experiment.seed).speed_ratio
    speeds = "given paces" if fleet.paces else f"{fleet.speed} speeds"
    return wrapped(
        f"{short(experiment.strategy['name'])} on {data_and_model(experiment)}: "
        f"{fleet.clients} clients, {speeds} (slowest {ratio:.1f}x the fastest), "
        f"{experiment.partition.kind} partition, seed {experiment.seed}"
    )


def data_and_model(experiment: "Experiment") -> str:
    """What is trained on what; the model is left out where the data bring it."""
    model = f" ({short(experiment.model)})" if experiment.model else ""
    return f"{short(experiment.data.name)}{model}"
