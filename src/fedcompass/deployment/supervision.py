"""Child processes of a federation: started with a log file, restarted, and never left behind.

Every program started here is a module of this package whose first act is `die_with_parent`, so
that nothing survives, not even a `kill -9` of the parent.
"""

import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from time import monotonic

from fedcompass.deployment.backoff import Backoff
from fedcompass.errors import ProcessFailed
from fedcompass.vocabulary import Seconds

__all__ = ["Child", "Program", "die_with_parent", "free_port", "last_line"]

_PARENT = "FEDCOMPASS_PARENT"
_GIVEN_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")  # the lowest and the highest
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_SECRETS = 0o077  # what others may not do with our files
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_TROUBLE = re.compile(r"\bERROR\b|Error\b|Exception\b")
_LAST_LINES = 15  # where to look for trouble: what is further up was survived
_MOST_BYTES = 1 << 16  # of a log's end
_LARGE_LOG = 10_000_000  # bytes


@dataclass(frozen=True, slots=True)
class Program:
    """What to start: a module of this package, its log file and its arguments."""

    name: str
    module: str
    log: Path
    arguments: Sequence[str] = ()


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies; at once if it already has."""
    expected = os.environ.pop(_PARENT, None)
    if expected is None:
        return  # started by hand
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(expected):
        os._exit(1)


def free_port() -> int:
    """A TCP port of this machine that nobody has now.

    It is none that the system gives to connections, or to those who ask for any: it stays free
    until somebody asks for just this one.
    """
    given = _GIVEN_PORTS.read_text(encoding="ascii").split()
    while True:
        port = SystemRandom().randrange(10_000, max(20_000, int(given[0])))
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def last_line(log: Path, start: int = 0) -> str:
    """What a log ends with, to be shown in an error: its last line about trouble, or its last.

    Args:
        log: the file.
        start: the byte to read it from.
    """
    with suppress(OSError), log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(start, size - _MOST_BYTES))
        text = _COLOURS.sub("", file.read().decode("utf-8", "replace"))
        lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
        lines = lines[-_LAST_LINES:]
        trouble = [line for line in lines if _TROUBLE.search(line)]
        return (trouble or lines or [""])[-1]
    return ""


class Child:
    """One process and its successors: restarted when it dies, with growing pauses.

    Args:
        program: what to start.
        restarts: so often in a row; None: for as long as somebody asks for it.
        longest_pause: between two starts.
        recovered_after: one that lives longer than this does not count as dying in a row.
        clock: tells the seconds.
    """

    def __init__(
        self,
        program: Program,
        *,
        restarts: int | None = None,
        longest_pause: Seconds = 30.0,
        recovered_after: Seconds = 20.0,
        clock: Callable[[], Seconds] = monotonic,
    ) -> None:
        self.program = program
        self._restarts, self._recovered_after = restarts, recovered_after
        self._backoff = Backoff(first=0.2, longest=longest_pause)
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._started: Seconds = 0.0
        self._deaths = 0  # in a row
        self._again_at: Seconds | None = None  # when a dead one is started again
        self._log_from = 0  # where in the log this start's lines begin

    @property
    def pid(self) -> int | None:
        """Its process id, None while it is not running."""
        return self._process.pid if self.running else None  # type: ignore[union-attr]

    @property
    def running(self) -> bool:
        """Whether it runs now."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How it ended: below 0 the signal that killed it; None while it runs."""
        return None if self._process is None else self._process.poll()

    def start(self, further: Sequence[str] = (), pass_fds: Sequence[int] = ()) -> None:
        """Start it; its output goes to the log.

        Args:
            further: arguments of this start alone.
            pass_fds: open files that it shares with this process.
        """
        program = self.program
        program.log.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(program.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._log_from = os.fstat(handle).st_size
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", program.module, *program.arguments, *further],
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=handle,
                env={**os.environ, _PARENT: str(os.getpid())},
                umask=_SECRETS,
                pass_fds=pass_fds,
                start_new_session=True,  # Ctrl-C in a terminal is ours to handle, in order
            )
        finally:
            os.close(handle)
        self._started, self._again_at = self._clock(), None

    def keep_log_small(self) -> None:
        """Move what a large log holds to the file beside it, LOG.1, in place of what was there.

        To be called often: a process that writes to it goes on, at its new beginning.
        """
        log = self.program.log
        with suppress(OSError):
            if log.stat().st_size < _LARGE_LOG:
                return
            with suppress(OSError):  # where there is no room for a copy, there is none for the log
                shutil.copy(log, log.with_name(f"{log.name}.1"))
            os.truncate(log, 0)
            self._log_from = 0

    def restart_if_dead(self) -> bool:
        """Start it again if it died and its pause is over; True if this call did.

        Raises:
            ProcessFailed: it died too often in a row.
        """
        self.keep_log_small()
        if self.running:
            return False
        if self._again_at is None:
            self.stop()  # what it started itself
            self._again_at = self._clock() + self.pause()
        if self._clock() < self._again_at:
            return False
        self.start()
        return True

    def pause(self) -> Seconds:
        """How long to wait before one that has died is started again; to be asked once for each.

        Raises:
            ProcessFailed: it died too often in a row.
        """
        lived = self._clock() - self._started
        self._deaths = 1 if lived > self._recovered_after else self._deaths + 1
        if self._restarts is not None and self._deaths > self._restarts:
            raise ProcessFailed(
                f"{self.program.name} died {self._deaths} times in a row (exit code "
                f"{self.exit_code}); {self.program.log} ends with: {self._last_words or 'nothing'}"
            )
        return self._backoff.after(self._deaths)

    @property
    def cause(self) -> str:
        """What it died of, as far as its log or the signal says."""
        words, code = self._last_words, self.exit_code
        if code is not None and code < 0 and not _TROUBLE.search(words):
            return f"it was killed by signal {-code}; its log ends with: {words or 'nothing'}"
        return words

    @property
    def _last_words(self) -> str:
        return last_line(self.program.log, self._log_from)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal."""
        if self.running:
            os.kill(self._process.pid, number)  # type: ignore[union-attr]

    def stop(self, patience: Seconds = 5.0) -> None:
        """Ask it to end, then make it."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience)
        # Its own children share its session; none of them may outlive it.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
