"""Reading paces from CSV files, whole and broken."""

from pathlib import Path

import pytest

from fedcompass.errors import DataError
from fedcompass.simulation.fleet_trace import read_trace


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace.csv"


def test_a_row_holds_from_its_round_on(trace: Path) -> None:
    trace.write_text("client,round,seconds_per_step\n0,4,0.3\n0,0,0.1\n1,0,0.2\n")
    assert read_trace(trace, clients=2) == ([{4: 0.3, 0: 0.1}, {0: 0.2}], True)


def test_rounds_may_be_left_out(trace: Path) -> None:
    trace.write_text("client,seconds_per_step\n1,0.2\n0,1e-1\n")
    assert read_trace(trace, clients=2) == ([{0: 0.1}, {0: 0.2}], False)


def test_a_spreadsheets_file_is_read(trace: Path) -> None:
    trace.write_bytes(b"\xef\xbb\xbfclient, seconds_per_step\r\n0,0.1\r\n\r\n")
    assert read_trace(trace, clients=1).paces == [{0: 0.1}]


COLUMNS = "allowed: client,round,seconds_per_step or client,seconds_per_step"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f" has the columns (none); {COLUMNS}"),
        ("client,pace\n0,1\n", f" has the columns client,pace; {COLUMNS}"),
        ("0,0.1\n", f" has the columns 0,0.1; {COLUMNS}"),
        ("client,seconds_per_step\n0\n", " row 1 has 1 values; allowed: client,seconds_per_step"),
        (
            "client,seconds_per_step\n0,0.1\none,0.1\n",
            " row 2: client is 'one'; allowed: a whole number at least 0",
        ),
        (
            "client,round,seconds_per_step\n0,-1,0.1\n",
            " row 1: round is '-1'; allowed: a whole number at least 0",
        ),
        (
            "client,seconds_per_step\n0,fast\n",
            " row 1: seconds_per_step is 'fast'; allowed: a number above 0",
        ),
        (
            "client,seconds_per_step\n0,0\n",
            " row 1: seconds_per_step is '0'; allowed: a number above 0",
        ),
        (
            "client,seconds_per_step\n0,nan\n",
            " row 1: seconds_per_step is 'nan'; allowed: a number above 0",
        ),
        (
            "client,seconds_per_step\n0,0.1\n1,0.1\n2,0.1\n",
            " row 3: client is 2; allowed: 0 to 1, "
            "or set clients to the number of clients in the trace",
        ),
        (
            "client,seconds_per_step\n0,0.1\n0,0.1\n",
            " row 2: client 0 has a second pace for round 0; keep one",
        ),
        (
            "client,seconds_per_step\n0,0.1\n",
            " has no pace for client 1 in round 0; add a row for it",
        ),
        (
            "client,round,seconds_per_step\n0,0,0.1\n1,2,0.1\n",
            " has no pace for client 1 in round 0; add a row for it",
        ),
    ],
)
def test_a_broken_file_gets_one_clear_line(trace: Path, text: str, message: str) -> None:
    trace.write_text(text)
    with pytest.raises(DataError) as refusal:
        read_trace(trace, clients=2)
    assert str(refusal.value) == f"{trace}{message}"


def test_a_missing_file_is_named(trace: Path) -> None:
    with pytest.raises(DataError) as refusal:
        read_trace(trace, clients=2)
    assert "trace.csv cannot be read: " in str(refusal.value)
    assert "No such file" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_picture_is_no_trace(trace: Path) -> None:
    trace.write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    with pytest.raises(DataError, match=r"cannot be read: .* give a CSV file$"):
        read_trace(trace, clients=2)
