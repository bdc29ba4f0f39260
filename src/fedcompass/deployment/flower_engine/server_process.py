"""The process of the ServerApp: takes its task from the SuperLink, runs it, says how it ended.

It runs the ServerApp of this package, never code that came with a run.
"""

import argparse
import json
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

from fedcompass.deployment.flower_engine.environment import flower_environment
from fedcompass.deployment.flower_engine.runtime import (
    acquire,
    expect_loopback_certificate,
    identify,
    runtime_client,
)
from fedcompass.deployment.supervision import Program, die_with_parent
from fedcompass.errors import FedcompassError, ProcessFailed, TransportBroken
from fedcompass.vocabulary import Seconds

if TYPE_CHECKING:
    from fedcompass.deployment.flower_engine.server_app import Assignment

__all__ = ["ServerExit", "main", "read_exit", "server_program"]

_POLL = 0.05
_PATIENCE: Seconds = 60.0


@dataclass(frozen=True, slots=True)
class ServerExit:
    """How a ServerApp ended.

    error: what went wrong, in one line; None if the run is over.
    again: whether a new one may have more luck.
    """

    error: str | None
    again: bool


def server_program(
    address: str,
    authority: Path | None,
    secret: Path,
    run: int,
    assignment: "Assignment",
    state: Path,
) -> Program:
    """The ServerApp's process for one Flower run."""
    arguments = ["--address", address, "--secret", str(secret), "--run", str(run)]
    arguments += ["--outcome", str(state / "outcome.json")]
    if authority is not None:
        arguments += ["--authority", str(authority)]
    return Program(
        "ServerApp",
        "fedcompass.deployment.flower_engine.server_process",
        state / "server.log",
        arguments,
        flower_environment(state / "flower") | assignment.environment(),
    )


def read_exit(state: Path) -> ServerExit:
    """How the last ServerApp ended; one that could not say died, and may be started again."""
    try:
        record = json.loads((state / "outcome.json").read_text(encoding="utf-8"))
        return ServerExit(record["error"], record["again"])
    except (OSError, ValueError, KeyError):
        return ServerExit("the ServerApp died", again=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the ServerApp of one Flower run."""
    die_with_parent()
    given = _parser().parse_args(arguments)
    given.outcome.unlink(missing_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _serve(given)
        ended = ServerExit(None, again=False)
    except (KeyboardInterrupt, TransportBroken) as error:
        ended = ServerExit(str(error) or "the ServerApp was stopped", again=True)
    except FedcompassError as error:
        ended = ServerExit(str(error), again=False)
    except Exception as error:
        traceback.print_exc()
        ended = ServerExit(f"{type(error).__name__}: {error}", again=True)
    record = {"error": ended.error, "again": ended.again}
    given.outcome.write_text(json.dumps(record), encoding="utf-8")
    sys.exit(0 if ended.error is None else 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fedcompass-server")
    parser.add_argument("--address", required=True)
    parser.add_argument("--run", type=int, required=True)
    for name in ("--secret", "--outcome"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--authority", type=Path)
    return parser


def _serve(given: argparse.Namespace) -> None:
    from flwr.common.constant import SubStatus
    from flwr.common.serde import context_from_proto, run_from_proto
    from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.superlink.grid import HttpGrid

    from fedcompass.deployment.flower_engine.server_app import app

    token = _token(given)
    authority = None if given.authority is None else given.authority.read_bytes()
    grid = HttpGrid(given.address, authority is None, authority, token=token)
    client = grid._runtime_client
    expect_loopback_certificate(client)
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    status, details = SubStatus.FAILED, ""
    try:
        task = client.PullTaskInput(PullTaskInputRequest())
        identify(task)
        grid.set_run(run_from_proto(task.run))
        app(grid=grid, context=context_from_proto(task.context))
        status = SubStatus.COMPLETED
    except Exception as error:
        details = str(error)
        raise
    finally:
        with suppress(Exception):  # whatever it is, the outcome is told by our own file
            grid._retry_invoker.max_tries = 1
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
            heartbeat.stop()
            grid.close()


def _token(given: argparse.Namespace) -> str:
    """The token of this run's task."""
    from flwr.supercore.constant import TaskType

    until = monotonic() + _PATIENCE
    executor = runtime_client(given.address, given.authority, secret=given.secret.read_bytes())
    while monotonic() < until:
        token = acquire(executor, TaskType.SERVER_APP, given.run)
        if token is not None:
            return token
        sleep(_POLL)
    raise ProcessFailed(f"the SuperLink at {given.address} has no task for run {given.run}")


if __name__ == "__main__":
    main()
