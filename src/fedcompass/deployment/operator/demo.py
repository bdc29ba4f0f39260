"""`fedcompass deploy demo`: a whole federation on this machine, with sites of unequal speed.

A server, and a process and a worker for each site, with certificates as in a real one. Sites sleep
in every step as their pace says: the machine's own speed hardly counts.
"""

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import tomli_w

from fedcompass import strategies
from fedcompass.deployment.operator.project_files import init_project
from fedcompass.deployment.operator.run_view import RunView
from fedcompass.deployment.operator.running_server import RunningServer
from fedcompass.deployment.operator.running_site import RunningSite
from fedcompass.deployment.server.project import ServerProject
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.supervision import free_port
from fedcompass.errors import ProcessFailed, RunFolderError, SettingsError
from fedcompass.vocabulary import FEWEST_IN_A_SUM, Seconds

__all__ = ["Demo", "DemoPlan", "DemoRun", "paces"]

_APP = "from fedcompass.deployment.demo_app import model, test_set, trainer\n"
_LATEST = 1.6  # λ: what a task costs beside its steps varies on a machine that many share
_TICK: Seconds = 0.1
_PATIENCE: Seconds = 180.0  # for sites to come up on a busy machine


@dataclass(frozen=True, kw_only=True)
class DemoPlan:
    """What to show.

    sites: how many.
    slowest: how many times slower the slowest is than the fastest.
    strategies: run one after the other, on the same sites.
    target: the accuracy at which a run ends.
    seconds_per_step: of the fastest site.
    min_steps: of fedcompass.
    max_steps: of fedcompass; the steps of those that give all sites the same.
    max_seconds: a run that has not reached its target by then is stopped.
    max_updates: likewise; None is no limit.
    seed: of the split of the data and the initial model.
    secure: the server sees only sums of the sites' updates.
    """

    sites: int = 5
    slowest: float = 8.0
    strategies: tuple[str, ...] = ("fedcompass",)
    target: float = 0.8
    seconds_per_step: Seconds = 0.03
    min_steps: int = 20
    max_steps: int = 100
    max_seconds: Seconds = 600.0
    max_updates: int | None = None
    seed: int = 0
    secure: bool = False

    def __post_init__(self) -> None:
        fewest = FEWEST_IN_A_SUM if self.secure else 1
        if not fewest <= self.sites <= 20:
            raise SettingsError(f"sites is {self.sites}; allowed: {fewest} to 20 on one machine")
        if self.slowest < 1:
            raise SettingsError(f"slowest is {self.slowest}; allowed: 1 or more")
        if not 0 < self.target <= 1:
            raise SettingsError(
                f"target is {self.target:g}; allowed: above 0, at most 1 (80% is 0.8)"
            )
        if not 0 <= self.seconds_per_step < inf:
            raise SettingsError(f"seconds_per_step is {self.seconds_per_step}; allowed: 0 or more")
        for name in self.strategies:  # all of them before the first one runs for minutes
            strategies.secured(name) if self.secure else strategies.strategy(name)


@dataclass(frozen=True)
class DemoRun:
    """What one strategy's run gave: its summary.json, and where it is."""

    strategy: str
    summary: dict[str, Any] = field(repr=False)
    folder: Path

    @property
    def time_to_target(self) -> Seconds | None:
        """Seconds to the target, None if it was not reached."""
        found: Seconds | None = self.summary["time_to_target"]
        return found


def paces(plan: DemoPlan) -> list[Seconds]:
    """Seconds per step of each site, evenly spread by ratio from the fastest to the slowest."""
    last = max(plan.sites - 1, 1)
    return [plan.seconds_per_step * plan.slowest ** (i / last) for i in range(plan.sites)]


class Demo:
    """A federation in a folder of its own; use it in a `with`: its end leaves no process behind.

    Args:
        plan: what to show.
        folder: where runs are kept; secrets and logs are in a private folder that is removed.
        tell: called with each line about what is being done.
        watch: called with each run's view, many times a second.
    """

    def __init__(
        self,
        plan: DemoPlan,
        folder: Path,
        tell: Callable[[str], None],
        watch: Callable[[RunView], None],
    ) -> None:
        self.plan, self.folder = plan, folder
        self._tell, self._watch = tell, watch
        self._home = Path(tempfile.mkdtemp(prefix="fedcompass-"))  # short: sockets' paths are
        self._names = [f"site-{i + 1}" for i in range(plan.sites)]
        self._sites: list[RunningSite] = []
        self._server: RunningServer | None = None

    def __enter__(self) -> "Demo":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self) -> list[DemoRun]:
        """Run each strategy.

        Raises:
            FedcompassError: something did not come up, or a run failed; logs are kept then.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)  # before anything is started
        except OSError as error:
            raise RunFolderError(
                f"{self.folder} cannot be made: {error.strerror}; work in another folder"
            ) from None
        project = self._home / "federation"
        address = f"127.0.0.1:{free_port()}"
        init_project(project, address, self._names)
        self._own_app(project, address)
        done = []
        for strategy in self.plan.strategies:
            self._begin(project, strategy)
            done.append(self._finish(strategy))
        return done

    @property
    def children(self) -> list[int]:
        """The ids of all processes that run now."""
        groups = [site.children for site in self._sites]
        groups += [self._server.children] if self._server is not None else []
        return [pid for group in groups for pid in group.values() if pid is not None]

    def stop(self) -> None:
        """End every process and remove the private folder, secrets included."""
        for site in self._sites:
            site.ask_to_stop()
        for site in self._sites:
            site.stop()
        if self._server is not None:
            self._server.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def _own_app(self, project: Path, address: str) -> None:
        """Put the demo's app and the sites' paces in place of the example."""
        (project / "app.py").write_text(_APP, encoding="utf-8")
        for number, (name, pace) in enumerate(zip(self._names, paces(self.plan), strict=True)):
            folder = project / "sites" / name
            shutil.copy(project / "app.py", folder / "app.py")
            record: dict[str, Any] = {
                "name": name,
                "server": address,
                "threads": 1,
                "settings": {
                    "number": number,
                    "sites": self.plan.sites,
                    "seconds_per_step": pace,
                    "seed": self.plan.seed,
                },
            }
            (folder / "site.toml").write_text(tomli_w.dumps(record), encoding="utf-8")

    def _begin(self, project: Path, strategy: str) -> None:
        """Start a run; the first starts the sites, too."""
        plan, run = self.plan, self.folder / strategy
        settings: dict[str, Any] = {
            "server": ServerProject(project).network.model_dump(),
            "federation": _federation(plan, strategy),
        }
        (project / "deployment.toml").write_text(tomli_w.dumps(settings), encoding="utf-8")
        read = ServerProject(project)
        if self._server is not None:
            self._tell(f"{strategy}: the same {plan.sites} sites, a new model")
            self._server.go_on_with(read, run)
            return
        words = ", ".join(f"{pace:.3g}" for pace in paces(plan))
        self._tell(f"{plan.sites} sites, {words} s a step; starting them …")
        for name in self._names:
            site = RunningSite(SiteFolder(project / "sites" / name))
            self._sites.append(site)
            site.start()
        self._until_ready()
        self._tell(f"{strategy}: all sites are ready")
        self._server = RunningServer(read, run)
        self._server.start()

    def _until_ready(self) -> None:
        """Wait until every worker has loaded model and data."""
        until = monotonic() + _PATIENCE
        while slow := [site for site in self._sites if not site.ready]:
            if monotonic() > until:
                raise ProcessFailed(
                    f"{slow[0].site.settings.name} was not ready after {_PATIENCE:g} s; "
                    f"see {slow[0].site.state}"
                )
            self._restart_dead()
            sleep(_TICK)

    def _restart_dead(self) -> None:
        for site in self._sites:
            site.restart_dead()

    def _finish(self, strategy: str) -> DemoRun:
        """Watch a run to its end."""
        assert self._server is not None
        run = self.folder / strategy
        view = RunView(run)
        while True:
            outcome = self._server.poll()
            self._restart_dead()
            self._watch(view)
            if outcome is not None:
                break
            sleep(_TICK)
        if outcome.error is not None:
            raise ProcessFailed(f"{strategy}: {outcome.error}")
        summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
        return DemoRun(strategy, summary, run)


def _federation(plan: DemoPlan, strategy: str) -> dict[str, Any]:
    """A run's settings; every strategy gets the most steps it may give, or the range."""
    wanted = {
        "min_steps": plan.min_steps,
        "max_steps": plan.max_steps,
        "steps": plan.max_steps,
        "latest": _LATEST,
    }
    known = strategies.known_keys(strategy)
    settings: dict[str, Any] = {
        "strategy": {"name": strategy, **{k: v for k, v in wanted.items() if k in known}},
        "seed": plan.seed,
        "min_clients": plan.sites,
        "target": plan.target,
        "max_seconds": plan.max_seconds,
        "watch_interval": 0.2,
    }
    if plan.secure:
        settings["secure"] = {"enabled": True}
    return settings if plan.max_updates is None else {**settings, "max_updates": plan.max_updates}
