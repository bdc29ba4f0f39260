"""Flower's SuperNode with one difference: it runs the site's own ClientApp, never the server's.

A stock SuperNode downloads the app of a run and starts it in a new process for every message. A
site that does so lets the server run any code there. Here the SuperNode hands its messages
(process isolation, Flower's own option) to a thread that calls a ClientApp installed at the site.
It is also quicker: nothing is imported or started per message.
"""

import argparse
import os
import secrets
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import TYPE_CHECKING

from fedcompass.deployment.flower_engine.ended_runs import EndedRuns, RunIsOver
from fedcompass.deployment.flower_engine.environment import flower_environment
from fedcompass.deployment.flower_engine.own_client_app import load_client_app
from fedcompass.deployment.flower_engine.runtime import acquire, identify, runtime_client
from fedcompass.deployment.private_files import write_secret
from fedcompass.deployment.supervision import (
    Program,
    die_with_parent,
    free_port,
)
from fedcompass.deployment.wire.messages import one_line, without_folders
from fedcompass.errors import FedcompassError
from fedcompass.vocabulary import Seconds

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.supercore.runtime import RuntimeHttpClient

__all__ = ["main", "supernode_program"]

_POLL = 0.2  # seconds between looks for a message: each is a request to the SuperNode
_MOST_BYTES = 1 << 34  # the server is trusted with sizes
_PATIENCE: Seconds = 3600.0


def supernode_program(
    name: str,
    superlink: str,
    state: Path,
    worker: Path,
    *,
    authority: Path | None,
    key: Path | None,
    client_app: str = "fedcompass.deployment.flower_engine.client_app:app",
    folder: Path | None = None,
    idle_seconds: Seconds | None = None,
) -> Program:
    """The SuperNode of a site to start.

    Args:
        name: the site's name.
        superlink: host:port of the server.
        state: the site's private folder.
        worker: the worker's socket.
        authority: the federation's CA certificate; None on a loopback without TLS.
        key: the site's private key; None likewise.
        client_app: the site's ClientApp, as `module:name`.
        folder: where its module is looked for first.
        idle_seconds: how often to ask for work; None is Flower's own 3 seconds.
    """
    arguments = ["--superlink", superlink, "--worker", str(worker), "--site", name]
    arguments += ["--state", str(state), "--client-app", client_app]
    if authority is not None and key is not None:
        arguments += ["--authority", str(authority), "--key", str(key)]
    if folder is not None:
        arguments += ["--folder", str(folder)]
    if idle_seconds is not None:
        arguments += ["--idle", str(idle_seconds)]
    return Program(
        f"SuperNode of {name}",
        "fedcompass.deployment.flower_engine.supernode",
        state / "supernode.log",
        arguments,
        flower_environment(state / "flower"),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the SuperNode until it is told to stop."""
    die_with_parent()
    given = _parser().parse_args(arguments)
    try:
        app = load_client_app(given.client_app, given.folder)
    except FedcompassError as error:
        sys.exit(f"ERROR: {error}")
    port = free_port()
    secret = given.state / "executor.secret"
    secret.unlink(missing_ok=True)
    write_secret(secret, secrets.token_bytes(32))
    ended = EndedRuns()
    threading.Thread(
        target=_carry_out,
        args=(f"127.0.0.1:{port}", secret.read_bytes(), app, ended),
        daemon=True,
    ).start()
    node = f"worker={_quoted(given.worker)} site={_quoted(given.site)}"
    command = ["flower-supernode", "--superlink", given.superlink, "--node-config", node]
    command += ["--isolation", "process", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--superexec-auth-secret-file", str(secret)]
    if given.key is None:
        command += ["--insecure"]
    else:
        command += ["--root-certificates", str(given.authority)]
        command += ["--auth-supernode-private-key", str(given.key)]
    from flwr.supernode.cli.flower_supernode import flower_supernode

    ended.watch()
    if given.idle is not None:
        _limit_idle_sleep(given.idle)
    sys.argv = command
    flower_supernode()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fedcompass-supernode")
    for name in ("--superlink", "--site", "--client-app"):
        parser.add_argument(name, required=True)
    for name in ("--worker", "--state"):
        parser.add_argument(name, type=Path, required=True)
    for name in ("--authority", "--key", "--folder"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--idle", type=float)
    return parser


def _quoted(value: object) -> str:
    """A value as Flower's node config reads it."""
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _limit_idle_sleep(longest: Seconds) -> None:
    """Make the SuperNode's loop, whose idle sleep is a fixed 3 seconds, sleep no longer."""
    loop = import_module("flwr.supernode.start_client_internal")
    loop.time = SimpleNamespace(sleep=lambda seconds: sleep(min(seconds, longest)))  # type: ignore[attr-defined]


def _carry_out(address: str, secret: bytes, app: "ClientApp", ended: EndedRuns) -> None:
    """Take messages from the SuperNode and answer them, one at a time, for good.

    Whatever goes wrong here ends the process: the supervisor starts a fresh one, and the
    server hears of the lost task.
    """
    try:
        from flwr.supercore.constant import TaskType

        executor = runtime_client(address, secret=secret)
        while True:
            token = acquire(executor, TaskType.CLIENT_APP)
            if token is None:
                sleep(_POLL)
            else:
                _answer(runtime_client(address, token=token), app, ended)
    except BaseException:
        traceback.print_exc()
        os.kill(os.getpid(), signal.SIGKILL)  # Flower's own exit would wait for this thread


def _answer(client: "RuntimeHttpClient", app: "ClientApp", ended: EndedRuns) -> None:
    """Answer one message; an exception in the ClientApp is an answer too.

    A message whose run ended while it was on its way is passed over.
    """
    from flwr.app import Message
    from flwr.app.error import Error
    from flwr.common.constant import ErrorCode, SubStatus
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supernode.runtime.run_clientapp import push_message, push_task_output

    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    try:
        message, context = _message(client, ended)
        status, details = SubStatus.COMPLETED, ""
        try:
            reply = app(message=message, context=context)
        except Exception as error:
            told = without_folders(f"{type(error).__name__}: {error}", [Path.cwd()])
            status, details = SubStatus.FAILED, one_line(told)
            code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
            reply = Message(Error(code=code, reason=details), reply_to=message)
        push_message(client, reply, context)
        push_task_output(client, context, status, details)
    except RunIsOver:
        pass  # Flower has cleared the task away
    finally:
        heartbeat.stop()
        client.close()


def _message(client: "RuntimeHttpClient", ended: EndedRuns) -> "tuple[Message, Context]":
    """The message to answer. The app that came with its run is not even looked at.

    Raises:
        RunIsOver: there is nothing to answer any more.
    """
    from flwr.common.serde import context_from_proto
    from flwr.proto.node_pb2 import Node
    from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullTaskInputRequest
    from flwr.supercore.inflatable.inflatable_protobuf_utils import (
        make_confirm_message_received_fn_protobuf,
        make_pull_object_fn_protobuf,
    )

    from fedcompass.deployment.flower_engine.flower_objects import fetch_message

    task = client.PullTaskInput(PullTaskInputRequest())
    identify(task)
    context = context_from_proto(task.context)
    node, run = Node(node_id=context.node_id), context.run_id
    trees = client.PullMessages(PullAppMessagesRequest()).message_object_trees
    if not trees:
        raise RunIsOver("its message is gone")
    (tree,) = trees
    pull = ended.unless_over(
        tree.object_id, make_pull_object_fn_protobuf(client.PullObject, node, run)
    )
    message = fetch_message(tree, pull, most_bytes=_MOST_BYTES, patience=_PATIENCE)
    confirm = make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, node, run)
    confirm(tree.object_id)
    return message, context


if __name__ == "__main__":
    main()
