"""The server's process: serves one run, and says how it ended.

`python -m fedcompass.deployment.server.server_process --project FOLDER --run RUN`;
it goes on with a run that is there.
"""

import argparse
import errno
import gc
import json
import logging
import os
import resource
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, sleep

from fedcompass.deployment.server.project import ServerProject
from fedcompass.deployment.supervision import Program, die_with_parent
from fedcompass.errors import FedcompassError, TransportBroken
from fedcompass.freed_memory import ask_for_large_pages, keep_freed_memory
from fedcompass.vocabulary import Seconds

__all__ = ["ServerExit", "main", "read_exit", "server_program"]

_log = logging.getLogger("fedcompass.server")

_FILES = 65_536  # that may be open; some systems allow so many that lists of them are a burden
_OWN_FILES = 16  # that one step of a run may open at the same time, and more
_FILES_WITHIN: Seconds = 60.0


@dataclass(frozen=True, slots=True)
class ServerExit:
    """How a server ended.

    error: what went wrong, in one line; None if the run is over.
    again: whether a new one may have more luck.
    """

    error: str | None
    again: bool


def server_program(project: ServerProject, run: Path) -> Program:
    """The process to start, at first and again."""
    return Program(
        "the server",
        "fedcompass.deployment.server.server_process",
        project.state / "server.log",
        ["--project", str(project.folder), "--run", str(run)],
    )


def read_exit(project: ServerProject) -> ServerExit:
    """How the last server ended; one that could not say died, and may be started again."""
    try:
        record = json.loads(_outcome(project).read_text(encoding="utf-8"))
        return ServerExit(record["error"], record["again"])
    except (OSError, ValueError, KeyError):
        return ServerExit("the server died", again=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the run is over, or SIGTERM."""
    die_with_parent()
    keep_freed_memory()
    ask_for_large_pages()
    _allow_open_files()
    parser = argparse.ArgumentParser(prog="fedcompass-server")
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--run", type=Path, required=True)
    given = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    project = ServerProject(given.project)
    _outcome(project).unlink(missing_ok=True)
    ended = _ended(project, given.run)
    _outcome(project).write_text(json.dumps(asdict(ended)), encoding="utf-8")
    if ended.error is not None:
        sys.exit(f"ERROR: {ended.error}")


def _outcome(project: ServerProject) -> Path:
    return project.state / "outcome.json"


def _ended(project: ServerProject, run: Path) -> ServerExit:
    try:
        _serve(project, run)
    except (KeyboardInterrupt, TransportBroken) as error:
        return ServerExit(str(error) or "the server was stopped", again=True)
    except FedcompassError as error:
        # A new process has no files open: the next one may go on at once.
        return ServerExit(str(error), again=os.strerror(errno.EMFILE) in str(error))
    except Exception as error:
        traceback.print_exc()
        return ServerExit(f"{type(error).__name__}: {error}", again=True)
    return ServerExit(None, again=False)


def _allow_open_files() -> None:
    """As many as the system lets this process have: every connection is one."""
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if most < 0 else min(_FILES, most)
    if 0 <= files < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _await_files() -> None:
    """Go on once the next step can open its files; who holds them may let go of some.

    Raises:
        TransportBroken: nobody does.
    """
    end, told = monotonic() + _FILES_WITHIN, False
    while not _files_left():
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        what = f"too many files are open ({files} may be; LimitNOFILE in a systemd unit)"
        if monotonic() > end:
            raise TransportBroken(f"{what} for {_FILES_WITHIN:g} s; starting anew")
        if not told:
            _log.warning("%s: the run waits until some are closed", what)
        told = True
        sleep(0.1)


def _files_left() -> bool:
    opened: list[int] = []
    try:
        while len(opened) < _OWN_FILES:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return False
    finally:
        for handle in opened:
            os.close(handle)
    return True


def _serve(project: ServerProject, run: Path) -> None:
    from fedcompass.aggregation import Layout
    from fedcompass.deployment.app.app_file import load_app
    from fedcompass.deployment.server.disk_room import kept_free
    from fedcompass.deployment.server.grpc_transport import GrpcTransport
    from fedcompass.deployment.server.serve import serve
    from fedcompass.deployment.wire.short_texts import KEPT

    app, network = load_app(project.app), project.network
    transport = GrpcTransport(
        project.state / "wire",
        project.roster,
        Layout.of(app.model()),
        project.identity,
        network.listen_address,
        form=KEPT if project.federation.secure.enabled else network.updates,
        notice=_log.warning,
        kept_free=lambda: kept_free(run),
    )

    def pause(seconds: Seconds) -> None:
        transport.wait(seconds)
        _await_files()

    gc.freeze()  # torch and the app stay: the collector need not look at them again and again
    resume = (run / "deployment.toml").exists()
    try:
        serve(
            project.federation,
            app,
            transport,
            run,
            resume=resume,
            pause=pause,
            spent=project.state / "epsilons.json",
        )
        transport.wait(0.0)  # all of it is on disk: the last receipts may go out
    finally:
        transport.close()


if __name__ == "__main__":
    main()
