"""A worker as a process of its own: killed, hung, restarted, and never left behind."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

import pytest
from tests.deployment.site_apps import SLOW_APP, start_file

from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.site.site_process import worker_program
from fedcompass.deployment.site.worker_link import WorkerLink
from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.errors import SettingsError, WorkerLost

SOON = 120.0  # seconds; only a failing test waits so long
AT_ONCE = 10.0  # seconds; a busy machine is slow, but nobody waited for a patience to end


def site_in(folder: Path, app: str = SLOW_APP) -> SiteFolder:
    (folder / "app.py").write_text(app)
    (folder / "site.toml").write_text(
        'name = "here"\nserver = "127.0.0.1:9"\ndata = "."\nthreads = 1\n'
        '[settings]\nsecret = "hunter2"\n'
    )
    return SiteFolder(folder)


def play(scene: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(SOON):
            await scene

    asyncio.run(bounded())


@asynccontextmanager
async def running(
    site: SiteFolder, notices: list[str] | None = None, stopping: float = 10.0
) -> AsyncIterator[WorkerLink]:
    told = [] if notices is None else notices
    link = WorkerLink(worker_program(site), told.append, stopping=stopping)
    work = asyncio.create_task(link.run())
    try:
        yield link
    finally:
        work.cancel()
        await asyncio.wait([work])
        assert link.pid is None


def task(number: int = 1, steps: int = 3) -> pb.Task:
    return pb.Task(id=f"task-{number}", run="r", number=number, steps=steps, form="model")


async def until(happened: Callable[[], object]) -> None:
    while not happened():
        await asyncio.sleep(0.01)


def test_a_worker_killed_mid_task_is_reported_at_once_and_restarted(tmp_path: Path) -> None:
    async def scene() -> None:
        notices: list[str] = []
        model = start_file(tmp_path)
        async with running(site, notices) as link:
            assert (await link.up()).samples == 8
            first = link.pid
            assert first is not None
            assert b"hunter2" not in Path(f"/proc/{first}/cmdline").read_bytes()
            work = asyncio.create_task(link.train(task(steps=100_000), model, tmp_path / "first"))
            await until((tmp_path / "steps").exists)
            os.kill(first, signal.SIGKILL)
            killed = monotonic()
            with pytest.raises(WorkerLost, match="was killed by signal 9 in the midst of it"):
                await work
            assert monotonic() - killed < AT_ONCE
            done = await link.train(
                task(2), model, tmp_path / "second"
            )  # waits for the next worker
            assert done.steps_done == 3
            assert link.pid not in (None, first)
            assert len(notices) == 1
            assert "it was killed by signal 9" in notices[0]

    site = site_in(tmp_path)
    play(scene())
    log = site.state / "worker.log"
    assert "hunter2" not in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


HANGS = SLOW_APP.replace("time.sleep(0.02)", "open(self.counted, 'a'); time.sleep(100_000)")


def test_a_task_that_is_given_up_ends_early_and_the_worker_lives_on(tmp_path: Path) -> None:
    async def scene() -> None:
        model = start_file(tmp_path)
        async with running(site_in(tmp_path)) as link:
            work = asyncio.create_task(link.train(task(steps=100_000), model, tmp_path / "first"))
            await until((tmp_path / "steps").exists)
            first = link.pid
            work.cancel()
            done = await link.train(task(2), model, tmp_path / "second")
            assert work.cancelled()
            assert done.steps_done == 3
            assert link.pid == first
            assert not (tmp_path / "first").exists()

    play(scene())


def test_a_worker_that_hangs_is_killed_when_its_task_is_given_up(tmp_path: Path) -> None:
    async def scene() -> None:
        model = start_file(tmp_path)
        async with running(site_in(tmp_path, HANGS), stopping=0.2) as link:
            await link.up()
            first = link.pid
            work = asyncio.create_task(link.train(task(), model, tmp_path / "first"))
            await until((tmp_path / "steps").exists)
            work.cancel()
            await asyncio.wait([work])
            await until(lambda: link.facts is not None and link.pid != first)

    play(scene())


def test_a_mistake_in_training_names_the_apps_file_and_line_but_no_folder(tmp_path: Path) -> None:
    home = tmp_path / "north ward"
    home.mkdir()
    app = SLOW_APP.replace("time.sleep(0.02)", "self.counted.with_name('a.csv').read_text()")
    site = site_in(home, app)

    async def scene() -> None:
        async with running(site) as link:
            done = await link.train(task(), start_file(tmp_path), home / "first")
        found = r"app\.py:\d+ in train_step: FileNotFoundError: .*'a\.csv'"
        assert re.search(found, done.error)
        assert "ward" not in done.error

    play(scene())
    assert str(home) in (site.state / "worker.log").read_text()  # at the site, whole


def test_a_mistake_in_the_app_is_told_in_one_line_with_its_place(tmp_path: Path) -> None:
    site = site_in(tmp_path, "import torch\n\nx = torch.nothing\n")

    async def scene() -> None:
        with pytest.raises(SettingsError) as raised:  # no restart mends it
            await WorkerLink(worker_program(site)).run()
        told = str(raised.value)
        assert told.startswith(f"{site.app}:3 in <module>: AttributeError: module 'torch' has no")
        assert "\n" not in told

    play(scene())


def test_a_site_whose_data_are_not_there_says_so_and_ends(tmp_path: Path) -> None:
    site = site_in(tmp_path)
    toml = site.folder / "site.toml"
    toml.write_text(toml.read_text().replace('data = "."', 'data = "elsewhere"'))

    async def scene() -> None:
        with pytest.raises(SettingsError, match="elsewhere', which is not a folder; correct site"):
            await WorkerLink(worker_program(SiteFolder(site.folder))).run()

    play(scene())


PARENT = """
import asyncio, sys
from pathlib import Path
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.site.site_process import worker_program
from fedcompass.deployment.site.worker_link import WorkerLink
async def main():
    link = WorkerLink(worker_program(SiteFolder(Path(sys.argv[1]))))
    work = asyncio.create_task(link.run())
    await link.up()
    print(link.pid, flush=True)
    await work
asyncio.run(main())
"""


def lives(pid: int) -> bool:
    """Whether a process runs; one that is dead but not yet reaped by its parent does not."""
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    return False


def test_nothing_is_left_behind_when_the_sites_process_is_killed(tmp_path: Path) -> None:
    site_in(tmp_path)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, tmp_path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    with parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert lives(worker)
        parent.kill()
        end = monotonic() + SOON
        while lives(worker):
            assert monotonic() < end
            sleep(0.01)


def test_a_sites_process_loads_no_torch() -> None:
    code = "import json, sys, fedcompass.deployment.site.site_process as _; " + (
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert not loaded & {"torch", "numpy", "flwr"}
    assert not {n for n in loaded if n.startswith(("fedcompass.training", "fedcompass.aggreg"))}
