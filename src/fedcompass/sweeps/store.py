"""Results of runs as JSON lines: appended as runs end, shared by processes, safe to cut anywhere.

A header, then one line per run that is done or failed. A line counts once its newline is there, and
it is written under a lock and synced, so a crash can only leave a last line without an end; whoever
appends next cuts that off. A run that is done is never written twice.
"""

import fcntl
import json
import os
from collections.abc import Collection
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcompass.errors import FedcompassError, StoreError
from fedcompass.own_code import short
from fedcompass.runs.files import append_whole, locked
from fedcompass.sweeps.record import Record

if TYPE_CHECKING:
    from fedcompass.experiment import Experiment

__all__ = ["SCHEMA", "Store", "is_store"]

SCHEMA = 1
"""Rises when a line's meaning changes."""

_MARK = "fedcompass_store"
_HEADER = (json.dumps({_MARK: SCHEMA}) + "\n").encode()


class Store:
    """A file of results. Reading needs neither a lock nor permission to write.

    Args:
        path: the file; it need not be there yet.
        about: for a reader in a hurry: lines without any of these texts are passed over unread.

    Raises:
        StoreError: it is not such a file, newer, damaged, or cannot be read or written.
    """

    def __init__(self, path: str | Path, about: Collection[str] = ()) -> None:
        self.path = Path(path)
        self._about = [text.encode() for text in about]
        self._read = 0  # bytes taken in so far; they end with a newline
        self._lines = 0
        self._done: dict[str, Record] = {}  # by key, in the order of the file
        self._failed: dict[str, Record] = {}  # the latest failure of those that are not done
        self._unchecked: list[Record] = []  # done, and not looked at by `_key_in_file` yet
        self._keys: dict[str, str] = {}  # a done record's key today -> its key in the file
        self._claims: int | None = None  # handle of the file whose bytes are locked
        self.refresh()

    def refresh(self) -> None:
        """Take in what others have appended; an unfinished last line is left for later."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                self._take_in(file.read())
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror}") from None

    def done(self) -> list[Record]:
        """The runs that are done, in the order of the file."""
        self.refresh()
        return list(self._done.values())

    def records(self) -> list[Record]:
        """The runs that are done, and the latest failure of each of the others."""
        done = self.done()
        failed = [record for record in self._failed.values() if not self._is_done_by_now(record)]
        return [*done, *failed]

    def _is_done_by_now(self, record: Record) -> bool:
        """Whether a run that failed was done later, perhaps under another version's key."""
        with suppress(FedcompassError):
            return self.finished(_key_today(record)) is not None
        return False

    def finished(self, key: str) -> Record | None:
        """The record of a run that is done; None if it is not."""
        return self._done.get(self._key_in_file(key))

    def failure(self, key: str) -> Record | None:
        """The latest failure of a run; None if there is none, or it is done."""
        return self._failed.get(key)

    def changed_code(self, experiment: "Experiment") -> list[str]:
        """The files of the user's own things whose text was another when runs here were done."""
        now = {short(name): digest for name, digest in (experiment.code or {}).items()}
        then = [record.experiment.get("code") or {} for record in self._done.values()]
        return sorted(
            {
                Path(name.partition(":")[0]).name
                for code in then
                for name, digest in code.items()
                if now.get(short(name), digest) != digest
            }
        )

    def append(self, record: Record) -> bool:
        """Add a run's record and wait for the disk; False if that run is done already.

        Raises:
            StoreError: it cannot be written; nothing was added.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b") as file, locked(file.fileno()):
                self._repair(file.fileno())
                self.refresh()
                if self.finished(record.key) is not None:
                    return False
                line = record.to_json().encode() + b"\n"
                append_whole(file.fileno(), line, durable=True)
        except OSError as error:
            raise StoreError(
                f"{self.path} cannot be written: {error.strerror}; free some space or choose "
                "another place, then run the same command again"
            ) from None
        self.refresh()
        return True

    def claim(self, key: str) -> bool:
        """Keep other processes from running the same run; False if one does. Ends with ours."""
        if self._claims is None:
            self._claims = self._open_claims()
        try:
            fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(key))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _open_claims(self) -> int:
        place = self.path.with_name(f".{self.path.name}.claims")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            return os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"{place} cannot be written: {error.strerror}") from None

    def release(self, key: str) -> None:
        """Let others run it again."""
        if self._claims is not None:
            fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, _byte(key))

    def _take_in(self, content: bytes) -> None:
        for line in BytesIO(content):
            if not line.endswith(b"\n"):
                if self._read == 0:
                    self._check_begun_header(line)
                return  # somebody is writing it, or died doing so
            if self._lines == 0 or self._is_wanted(line):
                self._take_in_line(line)
            else:
                self._lines += 1
            self._read += len(line)

    def _is_wanted(self, line: bytes) -> bool:
        return not self._about or any(text in line for text in self._about)

    def _take_in_line(self, line: bytes) -> None:
        self._lines += 1
        try:
            values = json.loads(line)
            if self._lines == 1:
                return self._check_header(values)
            record = Record.from_json(values)
        except (KeyError, TypeError, ValueError) as error:
            if self._lines == 1:
                raise self._foreign() from None
            raise StoreError(
                f"{self.path}, line {self._lines} is not a run's record ({error!r}); "
                "remove that line, and its run is done again"
            ) from None
        if record.is_done:
            self._failed.pop(record.key, None)
            self._done.setdefault(record.key, record)
            self._unchecked.append(record)
        elif record.key not in self._done:
            self._failed[record.key] = record
        return None

    def _check_header(self, values: Any) -> None:
        found = values.get(_MARK) if isinstance(values, dict) else None
        if not isinstance(found, int):
            raise self._foreign()
        if found > SCHEMA:
            raise StoreError(
                f"{self.path} has version {found}, this program reads up to {SCHEMA}; "
                "use a newer fedcompass"
            )

    def _check_begun_header(self, line: bytes) -> None:
        if not _HEADER.startswith(line):
            raise self._foreign()

    def _foreign(self) -> StoreError:
        return StoreError(f"{self.path} is not a file of fedcompass's results; choose another path")

    def _repair(self, handle: int) -> None:
        """Begin an empty file, and cut off a last line without an end; only under the lock."""
        size = os.fstat(handle).st_size
        if size < self._read:
            raise StoreError(f"{self.path} became shorter while it was in use; start again")
        self.refresh()  # refuses a foreign file before anything is cut
        if size > self._read:
            self._end_last_line(handle, os.pread(handle, size - self._read, self._read))
        if self._read == 0:
            append_whole(handle, _HEADER, durable=True)

    def _end_last_line(self, handle: int, line: bytes) -> None:
        """Give a last line its end if nothing else is missing, else cut it off."""
        try:
            Record.from_json(json.loads(line))
        except (KeyError, TypeError, ValueError):
            os.ftruncate(handle, self._read)
        else:
            append_whole(handle, b"\n", durable=True)
            self.refresh()

    def _key_in_file(self, key: str) -> str:
        """The key under which a run is done, which may be another than today's.

        A version of fedcompass with one more setting gives the same experiment another key; the
        setting's default means what was before, so the record still counts.
        """
        if key in self._done:
            return key
        for record in self._unchecked:
            with suppress(FedcompassError):  # a setting that is no more: nobody asks for it
                self._keys[_key_today(record)] = record.key
        self._unchecked.clear()
        return self._keys.get(key, key)


def is_store(path: Path) -> bool:
    """Whether a file is one of results, by its first line; any other file of lines is not."""
    with path.open("rb") as lines:
        return _MARK.encode() in lines.readline()


def _key_today(record: Record) -> str:
    """The key that this version gives to a record's experiment.

    Raises:
        SettingsError: it has a setting that is no more.
    """
    from fedcompass.experiment import Experiment  # with pydantic, which readers spare

    return Experiment(**record.experiment).key()


def _byte(key: str) -> int:
    """The byte of the claims file that stands for a run; the file itself stays empty."""
    return int(key, 16) % (1 << 62)
