"""Fault tests: what they share, the table they write, and that no process outlives a test."""

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep

import pytest
from tests.faults.loopback import Hang
from tests.faults.tally import Row, markdown, put_section, read_rows

_HERE = Path(__file__).parent
_MARK = "FEDCOMPASS_FAULT_TEST"
_TITLE = "One fault at a time"
_NEXT = "## A soak"  # the tables of other sections are not ours
_WORDS = "Written by `make test-faults`; each line is of the last run of its test."
_ROW = pytest.StashKey[Row]()
_rows: dict[str, Row] = {}  # by test


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fault-table", type=Path, help="write the table of faults to this file")
    parser.addoption("--fault-rows", type=Path, help="change only the rows of the tests that ran")


@pytest.fixture(autouse=True)
def no_process_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test whose processes, or their descendants, outlive it."""
    mark = token_hex(8)
    monkeypatch.setenv(_MARK, mark)
    yield
    until = monotonic() + 60  # one that was killed takes a moment to go
    while (left := _marked(mark)) and monotonic() < until:
        sleep(0.05)
    assert not left, f"processes are left: {left}"


def _marked(mark: str) -> dict[int, str]:
    """Running processes that inherited the mark, and their command lines."""
    wanted, found = f"{_MARK}={mark}".encode(), {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if int(folder.name) != os.getpid():
                    found[int(folder.name)] = command.strip()
        except OSError:
            continue  # gone, or somebody else's
    return found


@pytest.fixture
def row(request: pytest.FixtureRequest) -> Row:
    """The test's line in the table, to be filled in."""
    made = request.node.stash[_ROW] = Row(_words(request.node.name))
    return made


def _words(name: str) -> str:
    return name.removeprefix("test_").replace("_", " ").replace("[", " (").replace("]", ")")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    if item.path.is_relative_to(_HERE) and "row" in getattr(item, "fixturenames", ()):
        made = item.stash.setdefault(_ROW, Row(_words(item.name)))
        if call.excinfo is not None:
            skipped = call.excinfo.errisinstance(pytest.skip.Exception)
            made.outcome = "skipped" if skipped else "FAILED"
            made.hangs += call.excinfo.errisinstance(Hang)
        if call.when == "teardown":
            item.user_properties.append(("fault", asdict(made)))
    yield


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        for name, made in report.user_properties:
            if name == "fault":
                _rows[report.nodeid] = Row(**made)  # type: ignore[arg-type]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if not _rows:
        return
    by_test = [_rows[test] for test in sorted(_rows)]
    terminalreporter.section("faults")
    terminalreporter.write_line(markdown(by_test))
    for option in ("--fault-table", "--fault-rows"):
        path: Path | None = config.getoption(option, None)
        if path is not None:
            rows = {made.fault: made for made in by_test}
            if option == "--fault-rows":
                rows = read_rows(path.read_text(encoding="utf-8").partition(_NEXT)[0]) | rows
            put_section(path, _TITLE, f"{_WORDS}\n\n{markdown(rows.values())}")
