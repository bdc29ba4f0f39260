"""Files that a crash leaves whole: written beside and renamed, or appended line by line."""

import json
import os
from pathlib import Path
from typing import Any

from fedcompass.errors import RunFolderError
from fedcompass.finite_json import json_text

__all__ = ["LineFile", "write_whole"]


def write_whole(path: Path, text: str) -> None:
    """Write a file that is, after a crash, absent, the old one or the whole new one.

    Raises:
        RunFolderError: it cannot be written; an old one is still there.
    """
    beside = path.with_name(f".{path.name}.partial")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise _failure(path, error) from None


class LineFile:
    """A file of JSON lines that grows; a last line that a crash cut off is removed when opened.

    Args:
        path: the file, made when it is not there.
        durable: wait for the disk after every `append`.
    """

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        self._path, self._durable = path, durable
        try:
            path.touch()
            whole = path.read_bytes()
            if not whole.endswith(b"\n"):
                os.truncate(path, whole.rfind(b"\n") + 1)
        except OSError as error:
            raise _failure(path, error) from None

    def records(self) -> list[dict[str, Any]]:
        """All lines; one that is damaged is left out."""
        found = []
        for line in self._path.read_bytes().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                found.append(record)
        return found

    def append(self, records: list[dict[str, Any]]) -> None:
        """Add lines.

        Raises:
            RunFolderError: they cannot be written (a full disk, no permission).
        """
        if not records:
            return
        lines = "".join(json_text(record) + "\n" for record in records).encode()
        try:
            with self._path.open("ab", buffering=0) as file:
                file.write(lines)
                if self._durable:
                    os.fsync(file.fileno())
        except OSError as error:
            raise _failure(self._path, error) from None


def _failure(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(
        f"{path} cannot be written: {error.strerror}; free some space or mend its permissions, "
        "then resume"
    )
