"""A site's worker: keeps torch, data and model warm, and trains when the site's process says so.

Both talk over a pair of connected sockets, one JSON object a line; models are files, whose paths
they tell each other. The worker says first what it has: `samples`, the `layout` of its model, and
why it is `leaving` if its privacy budget is spent; or why it is `unable` to work here. Then it
answers every task with the fields of the wire's `Answer`, but for the payload's form and size. It
ends when the site's process does.
"""

import argparse
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from fedcompass.aggregation import GuardSettings, UsualNorms, change_norm, check_update
from fedcompass.aggregation.layout import FlatState
from fedcompass.deployment.app.app_file import AppFile, load_app
from fedcompass.deployment.app.trainer import Site
from fedcompass.deployment.site.local_round import Round, SiteRounds
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.supervision import die_with_parent
from fedcompass.deployment.wire.arriving import write_hashed
from fedcompass.deployment.wire.kept_updates import write_update
from fedcompass.deployment.wire.payloads import layout_digest, payload_pieces, read_payload
from fedcompass.deployment.wire.short_texts import KEPT, one_line, without_folders
from fedcompass.errors import AppError, BudgetSpent, FedcompassError, TaskFailed
from fedcompass.freed_memory import ask_for_large_pages, keep_freed_memory
from fedcompass.secure_aggregation.vectors import WaitingUpdate
from fedcompass.settings.aggregation import TIMES_MEDIAN

__all__ = ["SiteWorker", "main"]

_log = logging.getLogger("fedcompass.worker")

_Request = dict[str, Any]  # a task, as the site's process writes it


class SiteWorker:
    """Carries out tasks until its site's process goes; model and data are loaded once."""

    def __init__(self, app: AppFile, site: Site) -> None:
        self._app, self._site = app, site
        try:
            self._rounds = SiteRounds(app.model(), app.trainer(site), site)
            budget = self._rounds.budget
            self._leaving = "" if budget is None else budget.account.exhausted
            _warm_up_torch(site.device)
        except AppError:
            raise
        except Exception as error:  # data or model that do not fit the device, for example
            raise AppError(app.explain(error)) from error
        self._norms = UsualNorms(TIMES_MEDIAN, clients=1)  # of updates that stay here
        self._folders = [app.path.parent, *(() if site.data is None else (site.data,))]
        self._requests: SimpleQueue[_Request | None] = SimpleQueue()
        self._stopped: set[str] = set()  # tasks that are to end after the present step
        self._alone = threading.Event()  # the site's process is gone: nobody wants an answer

    @property
    def samples(self) -> int:
        """How many samples the site counts for."""
        return self._rounds.trainer.sample_count()

    def serve(self, channel: socket.socket) -> None:
        """Train what is asked for until the other end closes; in the thread that made the worker.

        Raises:
            torch.AcceleratorError: the device failed for good; a new process is needed.
        """
        threading.Thread(target=self._listen, args=(channel,), daemon=True).start()
        _say(
            channel,
            samples=self.samples,
            layout=layout_digest(self._rounds.layout),
            leaving=self._leaving,
        )
        while (request := self._requests.get()) is not None:
            answer = self._answer(request)
            with suppress(OSError):  # the site's process is gone: nobody wants an answer
                _say(channel, task=request["task"], samples=self.samples, **answer)

    def _listen(self, channel: socket.socket) -> None:
        with suppress(OSError):
            for record in _lines(channel):
                if "stop" in record:
                    self._stopped.add(record["stop"])
                else:
                    self._requests.put(record)
        self._alone.set()
        self._requests.put(None)

    def _answer(self, request: _Request) -> dict[str, Any]:
        answer = self._outcome(request)
        with suppress(FedcompassError):  # no account can be read: the task failed, which says why
            if (budget := self._rounds.budget) is not None:
                answer |= {"epsilon": budget.account.epsilon, "delta": budget.account.plan.delta}
        return answer

    def _outcome(self, request: _Request) -> dict[str, Any]:
        budget_spent = False
        try:
            return self._train(request)
        except torch.AcceleratorError:
            raise
        except FedcompassError as error:
            told, budget_spent = str(error), isinstance(error, BudgetSpent)
            _log.error("task %d failed: %s", request["number"], told)
        except Exception as error:
            told = self._app.explain(error)
            _log.exception("task %d failed: %s", request["number"], told)
        told = one_line(without_folders(told, self._folders)) or "failed"
        return {"error": told, "budget_spent": budget_spent}

    def _train(self, request: _Request) -> dict[str, Any]:
        """Train from the model in a file, and write the answer's payload into another."""
        number, steps, layout = request["number"], request["steps"], self._rounds.layout
        told = (number, request["run"], steps, request["version"])
        _log.info("task %d of run %.80r: %d steps from version %d", *told)
        start = read_payload(Path(request["model"]), layout, "model", layout.empty())

        def is_given_up() -> bool:
            return request["task"] in self._stopped or self._alone.is_set()

        done = self._rounds.run(
            start,
            steps=steps,
            task=number,
            steps_before=request["steps_before"],
            should_stop=is_given_up,
        )
        digest = self._write(Path(request["payload"]), request["form"], start, done)
        took = (number, done.steps_done, steps, done.seconds, done.loss)
        _log.info("task %d: %d of %d steps in %.3f s, mean loss %.4g", *took)
        return {
            "steps_done": done.steps_done,
            "seconds": done.seconds,
            "loss": done.loss,
            "digest": digest,
        }

    def _write(self, path: Path, form: str, start: FlatState, done: Round) -> str:
        """The answer's payload; one that stays at the site is the change itself. Its SHA-256."""
        if form == KEPT:
            write_update(path, self._kept(start, done))
            return ""  # nothing of it is sent
        return write_hashed(path, payload_pieces(self._rounds.layout, form, done.end, start))[0]

    def _kept(self, start: FlatState, done: Round) -> WaitingUpdate:
        """What a site keeps for a sum: no server sees it, so the site is its own guard.

        Raises:
            TaskFailed: it is not finite or cannot be, or is far beyond what is usual for this site.
        """
        change = start.trainable - done.end.trainable
        update = FlatState(change, done.end.averaged, done.end.counted).to("cpu")
        refused = check_update(update, self._rounds.layout, GuardSettings())
        if refused is None:
            norm = change_norm(update.trainable) / done.steps_done
            refused = self._norms.refusal(norm)
            self._norms.note("this site", norm)
        if refused is not None:
            raise TaskFailed(refused.message)
        return WaitingUpdate(trainable=update.trainable.numpy(), averaged=update.averaged.numpy())


def _lines(channel: socket.socket) -> Iterator[dict[str, Any]]:
    with channel.makefile("r", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def _say(channel: socket.socket, **record: Any) -> None:
    channel.sendall(json.dumps(record).encode() + b"\n")


def _warm_up_torch(device: str) -> None:
    """Load what torch loads with a first optimizer, so that no task pays those seconds."""
    weight = torch.zeros(1, device=device, requires_grad=True)
    optimizer = torch.optim.Adam([weight])
    weight.sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the site's process; a mistake of the user's ends in one line and exit code 1."""
    die_with_parent()
    keep_freed_memory()
    ask_for_large_pages()
    parser = argparse.ArgumentParser(prog="python -m fedcompass.deployment.site.site_worker")
    parser.add_argument("folder", type=Path, help="the site's")
    parser.add_argument("--channel", type=int, required=True, help="the socket's number")
    given = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    channel = socket.socket(fileno=given.channel)
    os.set_inheritable(given.channel, False)  # not for programs that the user's code starts
    try:
        folder = SiteFolder(given.folder)
        settings = folder.settings
        if settings.threads:
            torch.set_num_threads(settings.threads)
        site = Site(settings.name, folder.data, settings.device, settings.settings, folder.state)
        site.check_device()
        folder.check_data()
        worker = SiteWorker(load_app(folder.app), site)
    except FedcompassError as error:
        _log.error("%s", error)
        _say(channel, unable=str(error))  # no restart mends it, unless it worked before
        sys.exit(1)
    _log.info("site %s is ready with %d samples", site.name, worker.samples)
    worker.serve(channel)


if __name__ == "__main__":
    main()
