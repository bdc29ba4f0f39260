"""A site's answers on disk, from the end of their training to the server's receipt.

An answer that is kept outlives this process; once it is forced, which one that soon has its receipt
never is, the machine, too. One that a failing machine damaged before that is noticed by its
digest: its task is trained again.
"""

from contextlib import suppress
from pathlib import Path

from google.protobuf.message import DecodeError

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.arriving import digest_of
from fedcompass.runs.files import force

__all__ = ["Outbox"]

_DAMAGED = "the answer was damaged on the site's disk before it was sent"


class Outbox:
    """A folder of answers without a receipt; what a crash left half-written is removed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.waiting = {answer.task: answer for answer in self._read()}  # in no order
        for path in folder.iterdir():
            if path.stem not in self.waiting or path.suffix not in (".answer", ".payload"):
                path.unlink()

    def _read(self) -> list[pb.Answer]:
        found = []
        for path in sorted(self._folder.glob("*.answer")):
            answer = pb.Answer()
            try:
                answer.ParseFromString(path.read_bytes())
            except DecodeError:
                continue
            if answer.task == path.stem and self._is_whole(answer):
                found.append(answer)
        return found

    def _is_whole(self, answer: pb.Answer) -> bool:
        return bool(answer.error) or self._is_undamaged(answer)

    def _is_undamaged(self, answer: pb.Answer) -> bool:
        payload = self.payload(answer.task)
        return payload.exists() and digest_of(payload) == answer.digest

    def _head(self, task: str) -> Path:
        return self._folder / f"{task}.answer"

    def payload(self, task: str) -> Path:
        """The file with an answer's payload."""
        return self._folder / f"{task}.payload"

    def trained(self, task: str) -> Path:
        """The file that its payload is written into before the answer is kept."""
        return self._folder / f"{task}.trained"

    def keep(self, answer: pb.Answer) -> None:
        """Put an answer in a file; its size is filled in, and its digest unless it is known.

        Raises:
            OSError: the disk.
        """
        trained, path = self.trained(answer.task), self.payload(answer.task)
        if not answer.error:
            if trained.exists():  # else it is here from a try before this one, or is empty
                trained.replace(path)
            path.touch()
            answer.payload_bytes = path.stat().st_size
            answer.digest = answer.digest or digest_of(path)
        beside = self._folder / f"{answer.task}.partial"
        beside.write_bytes(answer.SerializeToString())
        beside.replace(self._head(answer.task))
        self.waiting[answer.task] = answer

    def force(self, task: str) -> None:
        """Wait until an answer is on the disk, unless it has its receipt.

        Raises:
            OSError: the disk.
        """
        if task in self.waiting:
            for path in (self.payload(task), self._head(task), self._folder):
                with suppress(FileNotFoundError):  # dropped, or an error without a payload
                    force(path)

    def verify(self, answer: pb.Answer) -> bool:
        """Whether a payload is still what was kept; if not, the answer becomes an error."""
        if self._is_undamaged(answer):
            return True
        self.keep(pb.Answer(task=answer.task, error=_DAMAGED))
        return False

    def drop(self, task: str) -> None:
        """Forget an answer that has its receipt."""
        self.waiting.pop(task, None)
        for suffix in ("answer", "payload", "trained"):
            (self._folder / f"{task}.{suffix}").unlink(missing_ok=True)
