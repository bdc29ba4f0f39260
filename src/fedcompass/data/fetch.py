"""Download a published dataset: resumed where it stopped, checked, moved into place in one step."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeAlias

from fedcompass.data.places import cache_folder
from fedcompass.data.sources import Source, SourceFile, source
from fedcompass.errors import DataError

__all__ = ["Progress", "fetch"]

Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Told what is fetched or prepared, how many bytes or samples of it are there, and of how many."""

_TIMEOUT_SECONDS = 30.0
_CHUNK = 256 * 1024
_BROKEN = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)
_TRIES = 3  # per mirror: a broken connection is resumed, a wrong resumed file starts over


def fetch(
    name: str,
    dest: Path | None = None,
    *,
    base_url: str | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Download a dataset below `dest` (default: the cache folder); gives the files' paths.

    A file that is there already and has the published checksum is kept. `base_url` replaces the
    known mirrors with one of your own that holds the same files.

    Raises:
        SettingsError: the name is unknown, or the dataset needs no download.
        DataError: no mirror gave the published file; a part that can be resumed is kept.
    """
    known = source(name)
    folder = (dest or cache_folder()).expanduser() / known.folders[0]
    mirrors = (base_url.rstrip("/") + "/",) if base_url else known.mirrors
    report = progress or (lambda _name, _done, _total: None)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_fetch_file(known, file, folder, mirrors, report) for file in known.files]
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error.strerror or error}") from error


def _fetch_file(
    known: Source, file: SourceFile, folder: Path, mirrors: tuple[str, ...], report: Progress
) -> Path:
    target = folder / file.name
    if target.is_file() and _md5(target) == file.md5:
        report(file.name, target.stat().st_size, target.stat().st_size)
        return target
    part = folder / f"{file.name}.part"
    failures = []
    for mirror in mirrors:
        failure = _from_mirror(mirror + file.name, part, file, report)
        if failure is None:
            part.replace(target)
            return target
        failures.append(failure)
    kept = "; run it again to resume" if part.is_file() else ""
    raise DataError(f"cannot fetch {known.name}: {'; '.join(failures)}{kept}")


def _from_mirror(url: str, part: Path, file: SourceFile, report: Progress) -> str | None:
    """Complete and check the part file from one mirror; gives the reason if that fails."""
    failure = None
    for _ in range(_TRIES):
        resumed = part.is_file()
        try:
            _append(url, part, file.name, report)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416 and resumed:  # the part is longer than the file: not its beginning
                part.unlink()
                continue
            return f"{url} answered {error.code} {error.reason}"
        except ValueError as error:
            return f"{url} is not an address: {error}"
        except _BROKEN as error:
            failure = f"{url} broke off: {getattr(error, 'reason', None) or error}"
            continue
        md5 = _md5(part)
        if md5 == file.md5:
            return None
        part.unlink()
        failure = f"{url} has md5 {md5}, published is {file.md5}, so it was removed"
        if not resumed:
            return failure
    return failure or f"{url} cannot be resumed"


def _append(url: str, part: Path, name: str, report: Progress) -> None:
    """Request what the part file lacks and append it; start over if the server ignores Range."""
    have = part.stat().st_size if part.is_file() else 0
    headers = {"User-Agent": "fedcompass", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
        if not _continues(response, have):
            have = 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else None
        with part.open("ab" if have else "wb") as out:
            _copy(response, out, have, total, lambda done: report(name, done, total))


def _continues(response: http.client.HTTPResponse, have: int) -> bool:
    """Whether the answer is the rest of the file from byte `have` on."""
    content_range = response.headers.get("Content-Range", "")
    return bool(have) and response.status == 206 and content_range.startswith(f"bytes {have}-")


def _copy(
    response: IO[bytes], out: IO[bytes], have: int, total: int | None, report: Callable[[int], None]
) -> None:
    report(have)
    while chunk := _read(response):
        out.write(chunk)
        have += len(chunk)
        report(have)
    if total is not None and have < total:  # read(n) ends quietly when a connection is cut
        raise http.client.HTTPException(f"{have} of {total} bytes arrived")


def _read(response: IO[bytes]) -> bytes:
    try:
        return response.read(_CHUNK)
    except OSError as error:  # told apart from an OSError of the disk we write to
        raise http.client.HTTPException(str(error) or type(error).__name__) from error


def _md5(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
