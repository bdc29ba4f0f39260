"""Tables that come with a dataset, read row by row; what is wrong is named by its line."""

import csv
from collections.abc import Iterator
from pathlib import Path

from fedcompass.errors import DataError

__all__ = ["csv_rows"]


def csv_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """A table's rows with their line numbers, once it has the columns.

    Raises:
        DataError: it cannot be read, or a column or a value is missing.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = csv.DictReader(file)
            for column in columns:
                if column not in (table.fieldnames or ()):
                    raise DataError(f"{path} has no column {column!r}; get the file again")
            for row in table:
                if any(row[column] in (None, "") for column in columns):
                    raise DataError(f"{path}, line {table.line_num}, is cut short; get it again")
                yield table.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
