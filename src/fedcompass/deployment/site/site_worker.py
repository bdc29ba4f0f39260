"""A site's worker: keeps torch, data and model warm, and trains when it is told over a Unix socket.

`python -m fedcompass.deployment.site.site_worker --app app.py --socket S --name site-1`

The main thread trains; each connection has a thread of its own that only waits and copies bytes.
So a query is answered in the midst of a task, and a task whose forwarder is gone is still finished
and remembered.
"""

import argparse
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

import fedcompass
from fedcompass.deployment.app.app_file import AppFile, load_app
from fedcompass.deployment.app.trainer import Site
from fedcompass.deployment.site.local_round import SiteRounds
from fedcompass.deployment.site.task_queue import SubmittedTask, TaskQueue
from fedcompass.deployment.site.worker_frames import Frame, greet, receive, send
from fedcompass.deployment.site.worker_plan import SETTINGS_VARIABLE
from fedcompass.deployment.site.worker_socket import listen_at
from fedcompass.deployment.supervision import die_with_parent
from fedcompass.deployment.wire.arrays import decode_arrays, encode_state, most_bytes
from fedcompass.deployment.wire.messages import PROTOCOL, Facts, without_folders
from fedcompass.errors import AppError, FedcompassError, SettingsError, TaskFailed, WireError
from fedcompass.vocabulary import Seconds

__all__ = ["SiteWorker", "main"]

_READING: Seconds = 60.0  # a request on a local socket takes no longer to read
_SENDING: Seconds = 5.0  # for answers to be sent when the worker stops
_MOST_CONNECTIONS = 16

_log = logging.getLogger("fedcompass.worker")


class SiteWorker:
    """Answers queries and tasks until it is stopped; its model and data are loaded once."""

    def __init__(self, app: AppFile, site: Site) -> None:
        self._app, self._site = app, site
        try:
            self._rounds = SiteRounds(app.model(), app.trainer(site), site)
            _warm_up_torch(site.device)
        except AppError:
            raise
        except Exception as error:  # data or model that do not fit the device, for example
            raise AppError(app.explain(error)) from error
        self._folders = [app.path.parent, *(() if site.data is None else (site.data,))]
        self._most_bytes = most_bytes(self._rounds.layout)
        self._tasks = TaskQueue()
        self._room = threading.Semaphore(_MOST_CONNECTIONS)
        self._talks: set[threading.Thread] = set()

    def serve(self, listener: socket.socket) -> None:
        """Train what is handed in until `stop`; must run in the thread that made the worker.

        Raises:
            torch.AcceleratorError: the device failed for good; a new process is needed.
        """
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        try:
            while (job := self._tasks.take()) is not None:
                self._tasks.answer(job, lambda job=job: self._carry_out(job))  # type: ignore[misc]
        finally:
            self._tasks.close()
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            for talk in list(self._talks):
                talk.join(_SENDING)

    def stop(self) -> None:
        """End the task in training early, send what it has, and take no more."""
        self._tasks.close()

    def _carry_out(self, job: SubmittedTask) -> Frame:
        task = job.key[1]
        _log.info(
            "task %d of run %.80r: %d steps from version %d",
            task,
            job.key[0],
            job.steps,
            job.version,
        )
        try:
            start = decode_arrays(job.arrays, self._rounds.layout)
            done = self._rounds.run(start, steps=job.steps, task=task, should_stop=job.stop.is_set)
            arrays = encode_state(self._rounds.layout, done.end)
        except torch.AcceleratorError:
            raise
        except FedcompassError as error:
            _log.error("task %d failed: %s", task, error)
            raise
        except Exception as error:
            told = self._app.explain(error)
            _log.exception("task %d failed: %s", task, told)
            raise TaskFailed(told) from error
        _log.info(
            "task %d: %d of %d steps in %.3f s, mean loss %.4g",
            task,
            done.steps_done,
            job.steps,
            done.seconds,
            done.loss,
        )
        facts: Facts = {
            "steps_done": done.steps_done,
            "seconds": done.seconds,
            "num-examples": self.samples,
            "loss": done.loss,
            "task": task,
            "version": job.version,
        }
        return Frame("trained", facts, arrays)

    @property
    def samples(self) -> int:
        """How many samples the site counts for."""
        return self._rounds.trainer.sample_count()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            self._room.acquire()
            try:
                connection, _ = listener.accept()
            except OSError:  # closed: the worker has stopped
                return
            talk = threading.Thread(target=self._talk, args=(connection,), daemon=True)
            self._talks.add(talk)
            talk.start()

    def _talk(self, connection: socket.socket) -> None:
        """Read one request and answer it; a peer that has gone does not matter."""
        try:
            with connection, suppress(EOFError, OSError):
                connection.settimeout(_READING)
                greet(connection)
                try:
                    answer = self._answer(receive(connection, self._most_bytes))
                except FedcompassError as error:
                    told = without_folders(str(error), self._folders)
                    answer = Frame("error", {"reason": f"site {self._site.name}: {told}"})
                send(connection, answer)
        finally:
            self._talks.discard(threading.current_thread())
            self._room.release()

    def _answer(self, request: Frame) -> Frame:
        protocol = request.facts.get("protocol", PROTOCOL)
        if protocol != PROTOCOL:
            raise WireError(
                f"the server speaks protocol {protocol}, this site {PROTOCOL}; "
                "use the same version of fedcompass on both"
            )
        if request.kind == "query":
            return Frame("facts", self._facts())
        if request.kind != "train":
            raise WireError(f"a request is of kind {request.kind!r}; allowed: query, train")
        if "refused" in request.facts:
            _log.warning("the server refused the last answer: %.200r", request.facts["refused"])
        job = SubmittedTask(
            (str(request.facts.get("run", "")), _whole(request.facts, "task")),
            _whole(request.facts, "steps"),
            _whole(request.facts, "version"),
            request.arrays,
        )
        return self._tasks.submit(job).result()

    def _facts(self) -> Facts:
        return {
            "protocol": PROTOCOL,
            "samples": self.samples,
            "site": self._site.name,
            "fedcompass": fedcompass.__version__,
        }


def _warm_up_torch(device: str) -> None:
    """Load what torch loads with a first optimizer, so that no task pays those seconds."""
    weight = torch.zeros(1, device=device, requires_grad=True)
    optimizer = torch.optim.Adam([weight])
    weight.sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _whole(facts: Facts, name: str) -> int:
    value = facts.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise WireError(f"a task has {name} {value!r}; allowed: a whole number from 0 up")
    return value


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM; a mistake of the user's ends in one line and exit code 1."""
    die_with_parent()
    given = _parser().parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    if given.threads:
        torch.set_num_threads(given.threads)
    try:
        site = Site(given.name, given.data, given.device, _settings(given.settings))
        worker = SiteWorker(load_app(given.app), site)
        listener = listen_at(given.socket)
    except FedcompassError as error:
        _log.error("%s", error)
        sys.exit(1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=worker.stop).start())
    _log.info("site %s serves %s with %d samples", site.name, given.socket, worker.samples)
    try:
        worker.serve(listener)
    finally:
        given.socket.unlink(missing_ok=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fedcompass.deployment.site.site_worker")
    parser.add_argument("--app", type=Path, required=True, help="the app.py with model, trainer")
    parser.add_argument("--socket", type=Path, required=True, help="where to listen")
    parser.add_argument("--name", required=True, help="the site's name")
    parser.add_argument("--data", type=Path, help="the folder with the site's data")
    parser.add_argument("--device", default="cpu", help="what torch calls it, such as cuda:0")
    parser.add_argument("--threads", type=int, help="of torch; as many as it likes if left out")
    parser.add_argument("--settings", help=f"JSON; ${SETTINGS_VARIABLE} if left out")
    return parser


def _settings(text: str | None) -> dict[str, Any]:
    text = text or os.environ.get(SETTINGS_VARIABLE, "{}")
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"the site's settings are not JSON: {error}") from None
    if not isinstance(settings, dict):
        raise SettingsError("the site's settings are not a table; give a JSON object")
    return settings


if __name__ == "__main__":
    main()
