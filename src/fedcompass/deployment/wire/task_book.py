"""The server's record of tasks and receipts: on disk, so that a restart knows what it promised."""

import secrets
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.finite_json import json_text
from fedcompass.runs.files import LineFile, write_whole
from fedcompass.vocabulary import ModelVersion, Steps, TaskId

__all__ = ["GivenTask", "TaskBook", "problem_of"]

_MOST_RECEIPTS = 10_000  # the oldest are forgotten; their answers are then refused as unknown
_UNKNOWN = "this site has no task of this id"
_ANOTHER = "this task was answered already, with other content"
_WITHDRAWN = "it came too late: the task was given up"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenTask:
    """A task that a site was given.

    id: unguessable; the answer carries it.
    site: who may answer.
    run, number: the task in its run; given once.
    model, model_bytes: what to start from, by its digest.
    form, payload_bytes: how the answer is written, and so its exact size.
    refused: why the site's answer before this one was refused.
    steps_before: of all tasks that the site was given before.
    """

    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    site: str
    run: str
    number: TaskId
    steps: Steps
    version: ModelVersion
    model: str
    model_bytes: int
    form: str
    payload_bytes: int
    refused: str = ""
    steps_before: Steps = 0

    def message(self) -> pb.Task:
        """The task as the site gets it."""
        fields = asdict(self)
        del fields["site"], fields["payload_bytes"]
        return pb.Task(**fields)


def problem_of(task: GivenTask, answer: pb.Answer) -> str | None:
    """Why an answer cannot be right, before any of its payload is sent; None: it can."""
    if answer.error:
        return None
    if answer.form != task.form:
        return f"the payload has the form {answer.form!r}; allowed: {task.form!r}"
    if answer.payload_bytes != task.payload_bytes:
        return (
            f"the payload has {answer.payload_bytes} bytes; this model's has {task.payload_bytes}; "
            "the site has another model than the server"
        )
    return None


class TaskBook:
    """Tasks by id: open ones, and the receipts of those that are closed.

    Every change outlives this process when its call returns. A receipt is on the disk by then; a
    task is not waited for: one that a failing machine forgets is given again under another id.

    Nothing is lost with a line, since the run's own journal has what was accepted: without a task,
    its answer is refused as unknown, and the task is given again; without a receipt, the task is
    open until the next one of its site, and an answer to it counts no second time. So a line that
    is damaged, which its checksum tells, is left out; `damaged` is how many were.

    Args:
        path: a file of JSON lines; made when it is not there.

    Raises:
        RunFolderError: it cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._open: dict[str, GivenTask] = {}
        self._closed: dict[str, tuple[str, str | None, pb.Receipt]] = {}  # site, digest, receipt
        self._file = LineFile(path)
        lines, whole = path.read_bytes().count(b"\n"), 0
        for record in self._file.records():
            with suppress(KeyError, TypeError, ValueError):
                if record.pop("crc") == _checksum(record):
                    self._apply(record)
                    whole += 1
        self.damaged = lines - whole
        if self.damaged or lines > 2 * (len(self._open) + len(self._closed)) + 1000:
            write_whole(path, "".join(json_text(_summed(line)) + "\n" for line in self._lines()))

    def _apply(self, record: dict[str, Any]) -> None:
        match record:
            case {"given": {"id": _} as fields}:
                task = GivenTask(**fields)
                self._open[task.id] = task
            case {"closed": fields}:
                receipt = pb.Receipt(**fields)
                self._open.pop(receipt.task, None)
                self._closed[receipt.task] = (record["site"], record["digest"], receipt)
                if len(self._closed) > _MOST_RECEIPTS:
                    del self._closed[next(iter(self._closed))]
            case _:
                raise ValueError(record)

    def _lines(self) -> Iterator[dict[str, Any]]:
        for site, digest, receipt in self._closed.values():
            yield _closed_line(site, digest, receipt)
        for task in self._open.values():
            yield {"given": asdict(task)}

    def _write(self, record: dict[str, Any]) -> None:
        self._file.append([_summed(record)])
        self._apply(record)

    def give(self, new: GivenTask) -> GivenTask:
        """Take down a new task; one that was given before is returned as it is."""
        for task in self._open.values():
            if (task.site, task.run, task.number) == (new.site, new.run, new.number):
                return task
        self._write({"given": asdict(new)})
        return new

    def open_tasks(self, site: str | None = None) -> list[GivenTask]:
        """What a site, or any, has not answered, in the order in which it was given."""
        return [task for task in self._open.values() if site in (None, task.site)]

    def open_task(self, site: str, task: str) -> GivenTask | None:
        """A task that this site may still answer."""
        found = self._open.get(task)
        return found if found is not None and found.site == site else None

    @property
    def models(self) -> set[str]:
        """The models that open tasks start from."""
        return {task.model for task in self._open.values()}

    @property
    def ids(self) -> set[str]:
        """Of the open tasks."""
        return set(self._open)

    @property
    def sites(self) -> set[str]:
        """Those that have open tasks."""
        return {task.site for task in self._open.values()}

    def look_up(self, site: str, answer: pb.Answer) -> GivenTask | pb.Receipt:
        """The open task of this site that an answer is for; else its receipt, or a refusal."""
        task = self.open_task(site, answer.task)
        if task is not None:
            return task
        owner, digest, receipt = self._closed.get(answer.task, (None, None, None))
        if receipt is None or owner != site:
            return pb.Receipt(task=answer.task, reason=_UNKNOWN)
        if digest not in (None, answer.digest):
            return pb.Receipt(task=answer.task, reason=_ANOTHER)
        return receipt

    def close(
        self, task: GivenTask, answer: pb.Answer, *, accepted: bool, reason: str
    ) -> pb.Receipt:
        """The receipt of an answer; the same answer gets it again."""
        receipt = pb.Receipt(task=task.id, accepted=accepted, reason=reason)
        self._write(_closed_line(task.site, answer.digest, receipt))
        self._file.sync()
        return receipt

    def withdraw(self, task: GivenTask) -> None:
        """Give up on a task; whatever is answered to it is refused."""
        receipt = pb.Receipt(task=task.id, reason=_WITHDRAWN)
        self._write(_closed_line(task.site, None, receipt))

    def confirm(self, task: GivenTask) -> None:
        """Close a task whose answer was taken in by a server that died before the receipt."""
        receipt = pb.Receipt(task=task.id, accepted=True)
        self._write(_closed_line(task.site, None, receipt))


def _closed_line(site: str, digest: str | None, receipt: pb.Receipt) -> dict[str, Any]:
    fields = {"task": receipt.task, "accepted": receipt.accepted, "reason": receipt.reason}
    return {"closed": fields, "site": site, "digest": digest}


def _summed(record: dict[str, Any]) -> dict[str, Any]:
    """A record as it is written."""
    return {**record, "crc": _checksum(record)}


def _checksum(record: dict[str, Any]) -> int:
    return zlib.crc32(json_text(record).encode())
