"""A site's process: its connection to the server, and its worker; loads no torch.

`python -m fedcompass.deployment.site.site_process FOLDER`
"""

import argparse
import asyncio
import logging
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedcompass.deployment.private_files import check_private
from fedcompass.deployment.site.refused_certificate import in_words
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.site.worker_link import WorkerFacts, WorkerLink
from fedcompass.deployment.supervision import Program, die_with_parent
from fedcompass.deployment.wire.site_link import SiteLink
from fedcompass.errors import FedcompassError, ProjectError
from fedcompass.freed_memory import keep_freed_memory
from fedcompass.runs.files import FolderLock, in_use
from fedcompass.vocabulary import Seconds

__all__ = ["is_running", "main", "run_site", "site_program", "worker_is_up", "worker_program"]

_UP = "worker.up"  # there while the worker is
_DAY: Seconds = 86_400.0


def site_program(site: SiteFolder) -> Program:
    """The process to start where it is not this one."""
    return Program(
        f"site {site.settings.name}",
        "fedcompass.deployment.site.site_process",
        site.state / "site.log",
        [str(site.folder)],
    )


def worker_program(site: SiteFolder) -> Program:
    """The process that trains: it reads the folder itself, for a command line is for all to see."""
    return Program(
        f"worker of {site.settings.name}",
        "fedcompass.deployment.site.site_worker",
        site.state / "worker.log",
        [str(site.folder)],
    )


def is_running(site: SiteFolder) -> bool:
    """Whether some process runs this site."""
    with suppress(OSError):  # never started, or another user's
        return in_use(site.state)
    return False


def worker_is_up(site: SiteFolder) -> bool:
    """Whether the site runs and its worker has loaded model and data."""
    return (site.state / _UP).exists() and is_running(site)


def run_site(site: SiteFolder, notice: Callable[[str], None]) -> str:
    """Be a site until SIGTERM or Ctrl-C, or until it leaves: the reason, in one line.

    Raises:
        ProjectError: its certificate or key is missing, the server would refuse the certificate,
            others can read the key, or it is running already.
    """
    site.identity.read()
    site.check_certificates()
    check_private(site.identity.key)
    try:
        site.state.mkdir(mode=0o700, exist_ok=True)
        lock = FolderLock(site.state)
    except BlockingIOError:
        raise ProjectError(
            f"site {site.settings.name} is running already from {site.folder}; stop it"
        ) from None
    except OSError as error:
        raise ProjectError(f"{site.state} cannot be used: {error.strerror}") from None
    keep_freed_memory()
    try:
        return asyncio.run(_take_part(site, notice))
    finally:
        (site.state / _UP).unlink(missing_ok=True)
        lock.release()


async def _take_part(site: SiteFolder, notice: Callable[[str], None]) -> str:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            loop.add_signal_handler(number, stop.set)
    shutil.rmtree(site.state / "trained", ignore_errors=True)  # of an earlier version
    worker = WorkerLink(worker_program(site), notice)
    attending = asyncio.create_task(_attend(site, worker, notice))
    others = (worker.run(), _warn_of_expiry(site, notice), stop.wait())
    works: list[asyncio.Task[Any]] = [attending, *map(asyncio.create_task, others)]
    try:
        done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        for work in done:
            work.result()  # raises what ended it
        return attending.result() if attending in done else ""
    finally:
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)


async def _warn_of_expiry(site: SiteFolder, notice: Callable[[str], None]) -> None:
    while True:
        for line in site.expiry_warnings(datetime.now(UTC)):
            notice(line)
        await asyncio.sleep(_DAY)


async def _attend(site: SiteFolder, worker: WorkerLink, notice: Callable[[str], None]) -> str:
    """Keep the connection, with what the worker has; made anew when that has changed.

    Returns when the site leaves: the reason.
    """
    while True:
        facts = await worker.up()
        link = SiteLink(
            site.state / "wire",
            site.settings.server,
            site.identity,
            samples=facts.samples,
            layout=facts.layout,
            train=worker.train,
            proxy=site.settings.proxy,
            notice=lambda told: notice(in_words(told, site.settings.server)),
            leaving=facts.leaving,
        )
        attending = asyncio.create_task(link.run())
        try:
            await _until_changed(site, worker, facts, attending)
            if attending.done():
                return attending.result()
        finally:
            attending.cancel()
            with suppress(asyncio.CancelledError):
                await attending


async def _until_changed(
    site: SiteFolder, worker: WorkerLink, facts: WorkerFacts, attending: "asyncio.Task[str]"
) -> None:
    """Wait until the site leaves, or a worker that was started again has other data or model."""
    up = site.state / _UP
    while not attending.done() and worker.facts in (None, facts):
        up.touch() if worker.facts is not None else up.unlink(missing_ok=True)
        await asyncio.wait([attending], timeout=0.2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a site; a mistake of the user's ends in one line and exit code 1."""
    die_with_parent()
    parser = argparse.ArgumentParser(prog="fedcompass-site")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    log = logging.getLogger("fedcompass.site")
    try:
        reason = run_site(SiteFolder(given.folder), log.info)
        log.info("the site has left%s", f": {reason}" if reason else "")
    except FedcompassError as error:
        sys.exit(f"ERROR: {error}")


if __name__ == "__main__":
    main()
