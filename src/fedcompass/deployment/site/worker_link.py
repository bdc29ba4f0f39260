"""The site's process keeps its worker running, and hears at once when it dies; loads no torch."""

import asyncio
import json
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcompass.deployment.supervision import Child, Program
from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.errors import SettingsError, WorkerLost
from fedcompass.vocabulary import Seconds

__all__ = ["WorkerFacts", "WorkerLink"]

_LOOK: Seconds = 0.1  # how often its process is looked at; a closed socket says so at once
_PATIENCE: Seconds = 60.0  # a worker that is being restarted has torch and its data to load
_STOPPING: Seconds = 10.0  # for the step in hand, when a task is given up


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What a worker has: its samples, and the digest of its model's layout.

    leaving: why it can train nothing more (its privacy budget is spent); empty: it can.
    """

    samples: int
    layout: str
    leaving: str = ""


class WorkerLink:
    """The one worker of a site.

    Args:
        program: what to start.
        notice: is told in one line when the worker comes and goes.
        stopping: a task that is given up has so long to end before the worker is killed.
    """

    def __init__(
        self,
        program: Program,
        notice: Callable[[str], None] = lambda _: None,
        *,
        stopping: Seconds = _STOPPING,
    ) -> None:
        self._child, self._notice, self._stopping = Child(program), notice, stopping
        self.facts: WorkerFacts | None = None  # None: it is not up
        self._up = asyncio.Event()
        self._was_up = False
        self._unable = ""  # why no worker can be started here, if one has said so
        self._writer: asyncio.StreamWriter | None = None
        self._one_task = asyncio.Lock()
        self._answer: asyncio.Future[dict[str, Any]] | None = None

    @property
    def pid(self) -> int | None:
        """Its process id, None while it is not running."""
        return self._child.pid

    async def run(self) -> None:
        """Keep a worker running until cancelled.

        Raises:
            SettingsError: the first one says that it cannot work on this machine.
        """
        try:
            while True:
                await self._one_life()
                self._child.stop(0.0)  # what it started goes with it
                self._lost()
                if self._unable and not self._was_up:  # later a device may be gone for a while
                    raise SettingsError(self._unable)
                self._notice(f"the worker has ended: {self._child.cause}; starting it again")
                await asyncio.sleep(self._child.pause())
        finally:
            self._child.stop(0.0)
            self._lost()

    async def up(self) -> WorkerFacts:
        """Wait until the worker is up; what it has."""
        while self.facts is None:
            await self._up.wait()
        return self.facts

    async def train(self, task: pb.Task, model: Path, payload: Path) -> pb.Answer:
        """Have a task carried out; one that is given up ends after its present step, or is killed.

        Args:
            task: what to do.
            model: the file with the model to start from.
            payload: the file that the answer's payload is written into.

        Raises:
            WorkerLost: the worker died over it, or is not up for a long while.
        """
        async with self._one_task:
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self.up()
            except TimeoutError:
                raise WorkerLost(
                    f"WorkerLost: the site's worker is not up after {_PATIENCE:g} s; its admin "
                    "finds the reason in worker.log"
                ) from None
            return pb.Answer(**await self._ask(task, model, payload))

    async def _ask(self, task: pb.Task, model: Path, payload: Path) -> dict[str, Any]:
        answer = self._answer = asyncio.get_running_loop().create_future()
        self._say(
            task=task.id,
            run=task.run,
            number=task.number,
            steps=task.steps,
            steps_before=task.steps_before,
            version=task.version,
            form=task.form,
            model=str(model),
            payload=str(payload),
        )
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._say(stop=task.id)
            await asyncio.wait([answer], timeout=self._stopping)
            if not answer.done():  # it hangs
                self._child.kill(signal.SIGKILL)
                await asyncio.wait([answer])
            answer.exception()  # it is known: nobody asks for it
            payload.unlink(missing_ok=True)
            raise
        finally:
            self._answer = None

    async def _one_life(self) -> None:
        """Start a worker and listen to it until it dies."""
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self._child.start(["--channel", str(number)], pass_fds=(number,))
        reader, self._writer = await asyncio.open_connection(sock=ours)
        listening = asyncio.create_task(self._listen(reader))
        try:
            while self._child.running and not listening.done():
                self._child.keep_log_small()
                await asyncio.wait([listening], timeout=_LOOK)
            await asyncio.wait([listening], timeout=_LOOK)  # its last words
        finally:
            listening.cancel()
            self._writer.close()
            self._writer = None

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while line := await reader.readline():
                record = json.loads(line)
                if "unable" in record:
                    self._unable = record["unable"]
                elif "task" not in record:
                    self.facts, self._was_up = WorkerFacts(**record), True
                    self._up.set()
                elif self._answer is not None and not self._answer.done():
                    self._answer.set_result(record)

    def _say(self, **record: Any) -> None:
        if self._writer is not None:
            self._writer.write(json.dumps(record).encode() + b"\n")

    def _lost(self) -> None:
        """The worker is gone: whoever waits for its answer is told."""
        self.facts = None
        self._up.clear()
        if self._answer is not None and not self._answer.done():
            code = self._child.exit_code or 0
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            self._answer.set_exception(
                WorkerLost(f"WorkerLost: the site's worker {how} in the midst of it")
            )
