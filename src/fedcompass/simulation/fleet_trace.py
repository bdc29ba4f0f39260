"""Reading measured paces from a CSV file."""

import csv
from collections.abc import Iterable, Iterator
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from fedcompass.errors import DataError
from fedcompass.vocabulary import Seconds

__all__ = ["Trace", "clients_in_trace", "paces_by_name", "read_trace"]


class Trace(NamedTuple):
    """Paces of each client, and whether the file says for which rounds."""

    paces: list[dict[int, Seconds]]
    """Per client, the pace from each listed local round on; round 0 is always there."""
    lists_rounds: bool


_CONSTANT = ["client", "seconds_per_step"]
_PER_ROUND = ["client", "round", "seconds_per_step"]


class _Row(NamedTuple):
    where: str
    client: str
    local_round: int
    seconds_per_step: Seconds


def read_trace(path: Path, clients: int) -> Trace:
    """Read the paces of clients 0 to `clients` - 1; a row holds until the client's next row.

    Without a `round` column each client has one row, its pace throughout.

    Raises:
        DataError: the file is missing or damaged, or its clients are not the fleet's.
    """
    header, rows = _read(path)
    return Trace(_by_client(path, rows, clients), "round" in header)


def paces_by_name(path: Path) -> dict[str, list[Seconds]]:
    """The paces of each client that a file names, by any name, in the file's order.

    Raises:
        DataError: the file is missing or damaged, or names nobody.
    """
    found: dict[str, list[Seconds]] = {}
    for row in _read(path)[1]:
        if not row.client.strip():
            raise DataError(f"{row.where}: client is empty; give it a name or a number")
        found.setdefault(row.client.strip(), []).append(row.seconds_per_step)
    if not found:
        raise DataError(f"{path} has no rows; give one for each client: {','.join(_CONSTANT)}")
    return found


def _read(path: Path) -> tuple[list[str], list[_Row]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = _header(path, reader)
            return header, list(_parse(path, header, reader))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"trace {path} cannot be read: {error}; give a CSV file") from None


def clients_in_trace(trace: Path) -> int:
    """How many different clients a file names; `read_trace` says what is wrong with it."""
    try:
        with trace.open(newline="", encoding="utf-8-sig") as file:
            named = {row[0].strip() for row in csv.reader(file) if row}
    except (OSError, UnicodeDecodeError, csv.Error):
        named = set()
    return len({int(name) for name in named if name.isdecimal()}) or 1


def _header(path: Path, reader: Iterator[list[str]]) -> list[str]:
    header = [name.strip() for name in next(reader, [])]
    if header not in (_CONSTANT, _PER_ROUND):
        raise DataError(
            f"{path} has the columns {','.join(header) or '(none)'}; "
            f"allowed: {','.join(_PER_ROUND)} or {','.join(_CONSTANT)}"
        )
    return header


def _parse(path: Path, header: list[str], reader: Iterable[list[str]]) -> Iterator[_Row]:
    """Each row with its number; the round is 0 where there is no such column."""
    for number, row in enumerate(reader, start=1):
        if not row:
            continue
        where = f"{path} row {number}"
        if len(row) != len(header):
            raise DataError(f"{where} has {len(row)} values; allowed: {','.join(header)}")
        values = dict(zip(header, row, strict=True))
        yield _Row(
            where,
            values["client"],
            _whole(values.get("round", "0"), "round", where),
            _pace(values["seconds_per_step"], where),
        )


def _by_client(path: Path, rows: Iterable[_Row], clients: int) -> list[dict[int, Seconds]]:
    paces: list[dict[int, Seconds]] = [{} for _ in range(clients)]
    for where, name, local_round, pace in rows:
        client = _whole(name, "client", where)
        if client >= clients:
            raise DataError(
                f"{where}: client is {client}; allowed: 0 to {clients - 1}, "
                "or set clients to the number of clients in the trace"
            )
        if local_round in paces[client]:
            raise DataError(
                f"{where}: client {client} has a second pace for round {local_round}; keep one"
            )
        paces[client][local_round] = pace
    for client, listed in enumerate(paces):
        if 0 not in listed:
            raise DataError(f"{path} has no pace for client {client} in round 0; add a row for it")
    return paces


def _whole(text: str, name: str, where: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise DataError(f"{where}: {name} is {text!r}; allowed: a whole number at least 0")
    return number


def _pace(text: str, where: str) -> Seconds:
    try:
        pace = float(text)
    except ValueError:
        pace = 0.0
    if not isfinite(pace) or pace <= 0:
        raise DataError(f"{where}: seconds_per_step is {text!r}; allowed: a number above 0")
    return pace
