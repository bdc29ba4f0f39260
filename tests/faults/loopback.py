"""A federation of real processes on this machine: certificates, torch, and faults."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any, Self

from tests.child_processes import importing_tests
from tests.deployment.exactly_once import check_exactly_once
from tests.faults.federation_files import FederationFiles
from tests.faults.lying_site import LyingSite
from tests.faults.tally import Row, tally

from fedcompass.deployment.operator.running_server import RunningServer
from fedcompass.deployment.operator.running_site import RunningSite
from fedcompass.deployment.server.project import ServerProject
from fedcompass.deployment.server.server_process import ServerExit
from fedcompass.deployment.site.site_folder import SiteFolder

PATIENCE = 600.0  # for anything that is to happen, on a machine that has other things to do
TICK = 0.1


class Hang(AssertionError):
    """What was waited for did not happen."""


class Loopback(FederationFiles):
    """A server and sites in a folder of their own; its end leaves no process behind.

    Args:
        paces: seconds per step of each site, by name.
        settings: everything else `FederationFiles` takes.
    """

    def __init__(self, paces: Mapping[str, float], **settings: Any) -> None:
        super().__init__(paces, **settings)
        self.sites: dict[str, RunningSite | LyingSite] = {}
        self.server: RunningServer | None = None
        self.outcome: ServerExit | None = None
        self.injected = 0
        self.restarts = 10  # of the server, in a row
        self.server_environment: dict[str, str] = {}
        self.site_environment = importing_tests()  # for sites that lie

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for site in self.sites.values():
            site.stop()
        if self.server is not None:
            self.server.stop()
        if kind is None:
            shutil.rmtree(self.home)
        else:
            print(f"the federation's files are in {self.home}")

    def start(self) -> Self:
        """Start the server and every site."""
        for name in self.site_settings:
            self.start_site(name)
        self.start_server()
        return self

    def start_server(self, *, resume: bool = False) -> None:
        self.outcome = None
        with _environment(self.server_environment):
            self.server = RunningServer(
                ServerProject(self.project), self.run, resume=resume, restarts=self.restarts
            )
            self.server.start()

    def stop_server(self) -> None:
        assert self.server is not None
        self.server.stop()

    def start_site(self, name: str) -> None:
        with _environment(self.site_environment):
            self.sites[name] = self.made_site(name, SiteFolder(self.site_folder(name)))
            self.sites[name].start()

    def made_site(self, name: str, folder: SiteFolder) -> RunningSite | LyingSite:
        """A site that is not started yet."""
        lie = self.liars.get(name)
        return self.honest_site(folder) if lie is None else LyingSite(folder, lie)

    def honest_site(self, folder: SiteFolder) -> RunningSite:
        return RunningSite(folder)

    def tend(self) -> None:
        """Do what `fedcompass deploy server` and `site` do all the time."""
        if self.server is not None and self.outcome is None:
            with _environment(self.server_environment):
                self.outcome = self.server.poll()
        with _environment(self.site_environment):
            for site in self.sites.values():
                site.restart_dead()

    def until(self, what: str, holds: Callable[[], object], *, tick: float = TICK) -> None:
        """Tend until a condition holds.

        Raises:
            Hang: it never did.
        """
        end = monotonic() + PATIENCE
        while not holds():
            if monotonic() > end:
                raise Hang(f"not after {PATIENCE:g} s: {what}\n{self.story()}")
            self.tend()
            sleep(tick)

    def until_more(self, what: str, who: str | None = None, *, lines: int = 1) -> None:
        """Tend until the audit log has so many more lines of a kind than now."""
        wanted = len(self.audit(what, who)) + lines
        told = f"{lines} more lines with {what!r} about {who or 'anyone'}"
        self.until(told, lambda: len(self.audit(what, who)) >= wanted)

    def until_passed(self, seconds: float) -> None:
        """Tend for a while: some faults last."""
        end = monotonic() + seconds
        self.until(f"{seconds:g} s pass", lambda: monotonic() >= end)

    def crash(self) -> None:
        """`kill -9` the whole server, as a power cut does; an operator starts it again."""
        assert self.server is not None
        for pid in self.server.children.values():
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        self.injected += 1
        self.stop_server()  # takes the dead off the process table
        self.start_server(resume=True)

    def kill(self, child: str, site: str | None = None) -> None:
        """`kill -9` one process: the server, or a site's own or its worker."""
        owner = self.server if site is None else self.sites[site]
        assert owner is not None
        pid = owner.children[child]
        assert pid is not None, f"{child} is not running"
        os.kill(pid, signal.SIGKILL)
        self.injected += 1

    def abandon(self, site: str) -> None:
        """`kill -9` a whole site; nobody starts it again."""
        for pid in self.sites[site].children.values():
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        self.sites.pop(site).stop()  # takes the dead off the process table
        self.injected += 1

    def finish(self, row: Row, more: int = 1) -> None:
        """End the run after so many more updates; check that each counts exactly once."""
        self.stop_server()
        self.settings = self.settings.model_copy(update={"max_updates": self.version + more})
        self.write_settings()
        self.start_server(resume=True)
        self.until("the run is over", lambda: self.outcome is not None)
        assert self.outcome is not None
        assert self.outcome.error is None, self.outcome.error
        row.count(tally(self.run))
        check_exactly_once(self.run, self.settings, self.twin())


@contextmanager
def _environment(added: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name)
            if name in before:
                os.environ[name] = before[name]
