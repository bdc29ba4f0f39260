"""`fedcompass deploy`: a real federation over a network, or all of it on this machine."""

import signal
import sys
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcompass.cli.deploy_sites import add_site, renew, request, revoke_site
from fedcompass.cli.deploy_words import (
    finding_line,
    run_told,
    runs_compared,
    seeds_told,
    summary_line,
)
from fedcompass.cli.interrupts import going_on_later, stop_cleanly_at
from fedcompass.cli.options import next_free
from fedcompass.cli.text import plain_table
from fedcompass.errors import ProcessFailed, RunFolderError, SettingsError
from fedcompass.runs.files import in_use

if TYPE_CHECKING:
    from fedcompass.deployment.operator.demo import DemoPlan, DemoRun
    from fedcompass.deployment.server.server_process import ServerExit

__all__ = ["check", "demo", "deploy", "init", "readmit", "server", "site", "status"]

deploy = typer.Typer(
    help="Train with real sites over a network; `demo` shows it all on this machine.",
    no_args_is_help=True,
)

deploy.command("add-site")(add_site)
deploy.command("revoke-site")(revoke_site)
deploy.command()(request)
deploy.command()(renew)

_TICK = 0.2
_DAY = 86_400.0
_Run = Annotated[str, typer.Option(help="Name of the run's folder in it.")]
_Folder = Annotated[Path, typer.Argument(help="The federation's or the site's folder.")]


@deploy.command()
def demo(
    sites: Annotated[int, typer.Option(help="How many sites.")] = 5,
    slowest: Annotated[float, typer.Option(help="How much slower the slowest is.")] = 8.0,
    strategy: Annotated[str, typer.Option(help="See `fedcompass strategies`.")] = "fedcompass",
    compare: Annotated[
        str | None, typer.Option(help="Run this strategy, too, on the same sites: fedavg.")
    ] = None,
    target: Annotated[float, typer.Option(help="The accuracy at which a run ends.")] = 0.8,
    seconds_per_step: Annotated[float, typer.Option(help="Of the fastest site.")] = 0.03,
    max_seconds: Annotated[float, typer.Option(help="The longest a run may take.")] = 600.0,
    max_updates: Annotated[int | None, typer.Option(help="The most global updates.")] = None,
    seed: Annotated[int, typer.Option(help="Of the split of the data and the first model.")] = 0,
    secure: Annotated[
        bool, typer.Option("--secure", help="Let the server see only sums of updates.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="Run it all with so many seeds, and show all.")] = 1,
    name: Annotated[str, typer.Option(help="Name of the demo's folder under runs/.")] = "demo",
) -> None:
    """Start a server and sites of unequal speed on this machine, and train mnist-mini on them."""
    from fedcompass.deployment.operator.demo import DemoPlan

    plan = DemoPlan(
        sites=sites,
        slowest=slowest,
        strategies=(strategy,) if compare is None else (strategy, compare),
        target=target,
        seconds_per_step=seconds_per_step,
        max_seconds=max_seconds,
        max_updates=max_updates,
        seed=seed,
        secure=secure,
    )
    if seeds < 1:
        raise SettingsError(f"seeds is {seeds}; allowed: 1 or more")
    folder = next_free(name)
    by_seed = {}
    for number in range(seed, seed + seeds):
        own = folder if seeds == 1 else folder / f"seed-{number}"
        by_seed[number] = _run_demo(replace(plan, seed=number), own)
    if seeds > 1:
        print("\n" + seeds_told(by_seed))


def _run_demo(plan: "DemoPlan", folder: Path) -> "list[DemoRun]":
    """Run a demo, and tell what each of its runs showed."""
    from fedcompass.cli.deploy_progress import DeployProgress
    from fedcompass.deployment.operator.demo import Demo

    progress = DeployProgress()
    with (
        going_on_later(lambda: print("stopped; no process is left", file=sys.stderr)),
        progress.live,
        Demo(plan, folder, progress.live.say, progress.show) as all_,
    ):
        runs = all_.run()
    print("\n\n".join(run_told(run) for run in runs))
    if len(runs) > 1:
        print("\n" + runs_compared(runs))
    return runs


@deploy.command()
def init(
    folder: _Folder,
    address: Annotated[
        str | None, typer.Option(help="host:port by which the sites reach the server.")
    ] = None,
    site: Annotated[list[str] | None, typer.Option(help="A site's name. Repeatable.")] = None,
) -> None:
    """Write a federation's folder, with its own CA and a folder for each site to be handed over."""
    from fedcompass.deployment.operator.project_files import init_project

    if (folder / "deployment.toml").exists():
        raise SettingsError(
            f"{folder} is a federation already; `fedcompass deploy add-site {folder} NAME` adds a "
            "site to it"
        )
    if address is None:
        raise SettingsError("--address is missing; allowed: host:port, as sites reach it")
    names = site or ["site-1", "site-2"]
    init_project(folder, address, names)
    handed = ", ".join(str(folder / "sites" / name) for name in names)
    print(f"hand over {handed}; then read {folder}/README.md")


@deploy.command()
def server(
    folder: _Folder,
    run: _Run = "run",
    resume: Annotated[bool, typer.Option(help="Go on with the run that is there.")] = False,
    resume_if_begun: Annotated[
        bool, typer.Option("--resume-if-begun", help="Likewise, or begin one.")
    ] = False,
) -> None:
    """Run the server until the run is over; if it dies it is restarted and the run resumed."""
    from fedcompass.cli.deploy_progress import DeployProgress
    from fedcompass.deployment.operator.run_view import RunView
    from fedcompass.deployment.operator.running_server import RunningServer
    from fedcompass.deployment.server.project import ServerProject

    project = ServerProject(folder)
    path = project.run_folder(run)
    begun = resume or (resume_if_begun and (path / "deployment.toml").exists())
    running = RunningServer(project, path, resume=begun)
    listed, needed = len(project.site_names()), project.federation.min_clients
    if listed < needed:
        more = f"{listed} of {needed} sites are on the roster (min_clients): it begins with more"
        print(f"{more}, see `fedcompass deploy add-site`", file=sys.stderr)
    view = RunView(path)
    view.refresh()  # what was before a resume has been told already
    progress = DeployProgress(project.network.address)
    stop_cleanly_at(signal.SIGTERM)  # systemd's stop: as Ctrl-C, children included
    try:
        with progress.live:
            running.start()
            outcome = _watched(running, view, progress, project.expiry_warnings)
    except KeyboardInterrupt:
        running.stop()
        if not view.finished:  # else it was over by then
            goes_on = f"fedcompass deploy server {folder}{_chosen(run)} --resume"
            print(f"stopped. To go on: {goes_on}", file=sys.stderr)
            raise typer.Exit(130) from None
        outcome = None
    finally:
        running.stop()
    if outcome is not None and outcome.error is not None:
        raise ProcessFailed(outcome.error)
    print(summary_line(path))


@deploy.command()
def site(folder: _Folder) -> None:
    """Run a site until it is stopped, or its privacy budget is spent."""
    from fedcompass.deployment.site.site_folder import SiteFolder
    from fedcompass.deployment.site.site_process import run_site

    here = SiteFolder(folder)
    settings = here.settings
    print(f"site {settings.name} of {settings.server}; logs in {here.state}", flush=True)
    reason = run_site(here, partial(print, file=sys.stderr, flush=True))
    why = f": {reason}" if reason else ""
    print(f"site {settings.name} has left{why}", file=sys.stderr)


@deploy.command()
def check(folder: _Folder) -> None:
    """Say what is wrong with a set-up before a run finds out; on the server or at a site."""
    from fedcompass.deployment.operator.checks import check_server, check_site

    found = []
    for finding in (check_site if (folder / "site.toml").exists() else check_server)(folder):
        print(finding_line(finding), flush=True)
        found.append(finding)
    if any(finding.ok is False for finding in found):
        raise typer.Exit(1)


@deploy.command()
def readmit(
    folder: _Folder,
    site: Annotated[str, typer.Argument(help="The site's name.")],
    run: _Run = "run",
) -> None:
    """Let a site out of quarantine in a run that is going on."""
    from fedcompass.deployment.operator.readmit import request_readmission
    from fedcompass.deployment.server.project import ServerProject

    begun = _begun(folder, run)
    ServerProject(folder).check_listed(site)
    answer = request_readmission(begun, site)
    if answer["what"] != "readmitted":
        raise RunFolderError(f"{site} is not readmitted: {answer['why']}")
    print(f"{site} is readmitted by {answer['by']}: it gets tasks again")


@deploy.command()
def status(
    folder: _Folder,
    run: _Run = "run",
) -> None:
    """Show where a run is: version, metrics, and each site's part."""
    from fedcompass.cli.deploy_progress import failed_sums, measured
    from fedcompass.deployment.operator.run_view import RunView
    from fedcompass.deployment.server.audit_words import in_words

    view = RunView(_begun(folder, run))
    view.refresh()
    state = "finished" if view.finished else "not finished"
    if not view.finished and not in_use(folder):
        state += " (no server is running)"
    print(f"{state}, {view.seconds:.0f} s, version {view.tally.version}{measured(view)}")
    if view.failed_sum is not None:
        print(f"{failed_sums(view)}; the last: {(in_words(view.failed_sum) or '').strip()}")
    print(plain_table(*view.table(), left=(0, 1)))
    for line in view.warnings.values():
        print((in_words(line) or "").strip())


def _begun(folder: Path, run: str) -> Path:
    """The folder of a run that has begun."""
    from fedcompass.deployment.server.project import check_is_project

    path = folder / run
    if not folder.is_dir():
        raise RunFolderError(f"there is no folder {folder}; give the federation's folder")
    check_is_project(folder)
    if not (path / "deployment.toml").exists():
        raise RunFolderError(
            f"{path} has no run; `fedcompass deploy server {folder}{_chosen(run)}` begins one"
        )
    return path


def _chosen(run: str) -> str:
    return "" if run == "run" else f" --run {run}"


def _watched(running: Any, view: Any, progress: Any, expiring: Any) -> "ServerExit":
    restarted, warn_at = 0, monotonic()
    while True:
        if monotonic() >= warn_at:
            warn_at += _DAY
            for line in expiring(datetime.now(UTC)):
                progress.live.say(line)
        outcome: ServerExit | None = running.poll()
        if running.restarted > restarted:
            restarted = running.restarted
            progress.live.say("the server died; it was started again and the run resumed")
        progress.show(view)
        if outcome is not None:
            return outcome
        sleep(_TICK)
