"""The store: append-only lines that survive crashes, are shared by processes and never repeat."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sweeps.small_sweeps import made_record

from fedcompass.errors import StoreError
from fedcompass.sweeps.record import Record, compact_curve
from fedcompass.sweeps.store import Store

HEADER = '{"fedcompass_store": 1}\n'

APPENDS_FOREVER = """
import sys
from dataclasses import replace
from itertools import count
from fedcompass.sweeps.store import Store
from tests.sweeps.small_sweeps import made_record
store, record = Store(sys.argv[1]), made_record()
for number in count(int(sys.argv[2]), 2):
    store.append(replace(record, key=f"{number:016x}", curve=[(0.0, 0, 0.5)] * 2000))
    print(number, flush=True)
"""

CLAIMS = """
import sys
from fedcompass.sweeps.store import Store
store = Store(sys.argv[1])
while True:
    print(store.claim(sys.argv[2]), store.claim("0" * 16), flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def python(code: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_a_record_comes_back_as_it_was(path: Path) -> None:
    whole, missed, failed = (
        made_record(),
        made_record(seed=1, time=None, top=None),
        made_record(seed=2, error="no data"),
    )
    store = Store(path)
    assert [store.append(record) for record in (whole, missed, failed)] == [True] * 3
    assert store.records() == Store(path).records() == [whole, missed, failed]
    assert path.read_text().startswith(HEADER)
    assert Store(path).finished(whole.key) == whole
    assert Store(path).finished(failed.key) is None
    assert Store(path).failure(failed.key) == failed


def test_a_run_that_is_done_is_never_written_again(path: Path) -> None:
    one, other = Store(path), Store(path)
    assert one.append(made_record())
    assert not other.append(made_record(time=99.0))  # it has not read since
    assert not other.append(made_record(error="no data"))
    assert len(path.read_text().splitlines()) == 2
    assert other.records() == [made_record()]


def test_a_failed_run_counts_once_it_is_done(path: Path) -> None:
    store = Store(path)
    store.append(made_record(error="one"))
    store.append(made_record(error="two"))
    assert [record.error for record in store.records()] == ["two"]
    store.append(made_record())
    assert [record.error for record in Store(path).records()] == [None]


def test_a_last_line_cut_anywhere_is_cut_off_by_the_next_append(path: Path) -> None:
    store = Store(path)
    store.append(made_record(seed=0))
    kept = path.stat().st_size
    store.append(made_record(seed=1))
    whole = path.read_bytes()
    for end in range(kept, len(whole) - 2, 7):
        path.write_bytes(whole[:end])
        assert [record.seed for record in Store(path).records()] == [0]
        assert Store(path).append(made_record(seed=2))
        assert [record.seed for record in Store(path).records()] == [0, 2]
        assert path.read_bytes()[:kept] == whole[:kept]


def test_a_last_line_that_lacks_only_its_end_is_kept(path: Path) -> None:
    Store(path).append(made_record(seed=0))
    path.write_bytes(path.read_bytes()[:-1])
    store = Store(path)
    assert store.append(made_record(seed=1))
    assert [record.seed for record in Store(path).records()] == [0, 1]


@pytest.mark.parametrize("end", [0, 1, 10, len(HEADER) - 1])
def test_a_header_cut_anywhere_begins_anew(path: Path, end: int) -> None:
    path.write_text(HEADER[:end])
    assert Store(path).records() == []
    assert Store(path).append(made_record())
    assert path.read_text().startswith(HEADER)
    assert len(Store(path).records()) == 1


def test_two_processes_killed_while_they_append_leave_whole_records(path: Path) -> None:
    with (
        python(APPENDS_FOREVER, str(path), "0") as even,
        python(APPENDS_FOREVER, str(path), "1") as odd,
    ):
        said = []
        for process in (even, odd):
            assert process.stdout is not None
            said += [process.stdout.readline() for _ in range(10)]
        for process in (even, odd):
            os.kill(process.pid, signal.SIGKILL)
            assert process.stdout is not None
            said += process.stdout.readlines()
    numbers = [int(record.key, 16) for record in Store(path).records()]
    assert len(set(numbers)) == len(numbers)
    assert {int(line) for line in said} <= set(numbers)
    assert len(numbers) <= len(said) + 2  # appended, but not told any more
    for rest in (0, 1):
        mine = [number for number in numbers if number % 2 == rest]
        assert mine == list(range(rest, 2 * len(mine) + rest, 2))
    assert Store(path).append(made_record(seed=5))
    assert len(Store(path).records()) == len(numbers) + 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", None),
        ("hello\n", "is not a file of fedcompass's results; choose another path"),
        ("hello", "is not a file of fedcompass's results"),
        ('{"journal": 1}\n', "is not a file of fedcompass's results"),
        ("\0\0\0\n", "is not a file of fedcompass's results"),
        ('{"fedcompass_store": 2}\n', "has version 2, this program reads up to 1; use a newer"),
        (HEADER + '{"key": 1}\n', "line 2 is not a run's record"),
        (HEADER + "\0\0\0\n{}\n", "line 2 is not a run's record"),
    ],
)
def test_a_foreign_newer_or_damaged_file_is_refused_in_one_line_and_left_alone(
    path: Path, content: str, message: str | None
) -> None:
    path.write_text(content)
    if message is None:
        assert Store(path).records() == []
        return
    with pytest.raises(StoreError) as caught:
        Store(path).append(made_record())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_text() == content


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be"):
        Store(tmp_path / "file" / "results.jsonl").append(made_record())


def test_a_record_counts_under_the_key_that_its_settings_have_today(path: Path) -> None:
    """A version with one more setting gives old experiments new keys; their runs are still done."""
    record = made_record()
    old = {**json.loads(record.to_json()), "key": "00000000deadbeef"}
    path.write_text(HEADER + json.dumps(old) + "\n")
    store = Store(path)
    found = store.finished(record.key)
    assert found is not None
    assert found.key == "00000000deadbeef"
    assert not store.append(record)


def test_a_failure_under_an_old_key_ends_once_the_run_is_done(path: Path) -> None:
    done, failed = made_record(), made_record(error="no data")
    old = {**json.loads(failed.to_json()), "key": "00000000deadbeef"}
    path.write_text(HEADER + json.dumps(old) + "\n")
    store = Store(path)
    assert [record.error for record in store.records()] == ["no data"]
    store.append(done)
    assert [record.error for record in store.records()] == [None]


def test_where_the_data_lay_is_not_in_a_record(tmp_path: Path) -> None:
    from fedcompass.experiment import Experiment
    from fedcompass.sweeps.record import failed_record

    experiment = Experiment(data={"root": str(tmp_path)})
    record = failed_record(experiment, ValueError("a\nb"), "cpu")
    assert str(tmp_path) not in record.to_json()
    assert Experiment(**record.experiment).key() == experiment.key() == record.key
    assert record.error == "ValueError: a b"


def test_only_one_process_at_a_time_has_a_claim(path: Path) -> None:
    store, key = Store(path), made_record().key
    assert store.claim(key)
    with python(CLAIMS, str(path), key) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "False True\n"
        store.release(key)
        print("again", file=process.stdin, flush=True)
        assert process.stdout.readline() == "True True\n"
        assert not store.claim(key)
        process.kill()
        process.wait()
        assert store.claim(key)


def test_a_compact_curve_tells_exactly_when_anything_was_first_reached() -> None:
    values = [((7 * n) % 501) / 500 + n / 5000 for n in range(5000)]
    rows = [{"time": n / 3, "version": n, "accuracy": v} for n, v in enumerate(values)]
    points = compact_curve(rows, "accuracy", spaced=50)
    assert points[0] == (0.0, 0, 0.0)
    assert points[-1][1] == 4999
    assert [version for _, version, _ in points] == sorted({version for _, version, _ in points})
    for target in (0.1, 0.5, 0.9, 1.0, 1.5):
        first = next(row["version"] for row in rows if row["accuracy"] >= target)
        assert next(v for _, v, value in points if value is not None and value >= target) == first
    assert len(points) < 1000


def test_a_metric_that_is_not_a_number_is_none() -> None:
    rows = [{"time": 0.0, "version": 0, "accuracy": float("nan")}]
    assert compact_curve(rows, "accuracy") == [(0.0, 0, None)]
    assert compact_curve([], "accuracy") == []


def test_a_record_is_a_plain_value() -> None:
    import pickle

    record: Record = made_record()
    assert pickle.loads(pickle.dumps(record)) == record
    with pytest.raises(ValueError, match="failed"):
        _ = made_record(error="x").numbers


def test_a_reader_in_a_hurry_passes_over_what_it_does_not_ask_for(path: Path) -> None:
    record = made_record()
    Store(path).append(record)
    path.write_text(path.read_text() + '{"broken": "elsewhere"}\n')
    assert Store(path, [record.key]).done() == [record]
    with pytest.raises(StoreError, match="line 3 is not a run's record"):
        Store(path)
