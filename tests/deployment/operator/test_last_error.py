"""What a process that died is said to have died of: one line that helps, from its own log."""

from pathlib import Path
from time import monotonic, sleep

from fedcompass.deployment.operator.project_files import init_project
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.site.site_process import site_program
from fedcompass.deployment.supervision import Child, Program, free_port, last_line

PATIENCE = 120.0  # seconds; only a failing test waits so long

REFUSED = """\
2026-11-16 10:00:00 INFO starting
2026-11-16 10:00:01 ERROR cannot listen at 10.0.0.5:9092: it is taken
INFO:     Shutting down
INFO:     Finished server process [3518]
"""


def test_the_line_about_trouble_is_shown_and_not_what_was_tidied_up_after_it(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    log.write_text(REFUSED)
    assert last_line(log).endswith("ERROR cannot listen at 10.0.0.5:9092: it is taken")


def test_without_trouble_it_is_the_last_line_that_says_something(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_line(log) == ""
    log.write_text("one\ntwo\n\n")
    assert last_line(log) == "two"


def test_trouble_of_an_earlier_process_or_long_ago_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ERROR old\n")
    start = log.stat().st_size
    log.write_text("ERROR old\nnew\n")
    assert last_line(log, start) == "new"
    log.write_text("ERROR old\n" + "fine\n" * 100)
    assert last_line(log) == "fine"


def test_a_process_that_was_killed_is_said_to_have_been(tmp_path: Path) -> None:
    child = Child(Program("a web server", "http.server", tmp_path / "log", ["0"]))
    child.start()
    try:
        child.kill()
        wait_for_the_end_of(child)
        assert child.cause.startswith("it was killed by signal 9; its log ends with: ")
    finally:
        child.stop()


def wait_for_the_end_of(child: Child) -> None:
    until = monotonic() + PATIENCE
    while child.running:
        assert monotonic() < until
        sleep(0.05)


def test_a_free_port_is_none_that_connections_of_other_programs_may_get() -> None:
    lowest, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = {free_port() for _ in range(20)}
    assert len(ports) > 1  # two who ask at the same time do not get the same
    assert all(1024 <= port < max(20_000, lowest) for port in ports)


def test_a_site_whose_key_others_can_read_ends_in_one_line_and_no_traceback(tmp_path: Path) -> None:
    init_project(tmp_path / "f", "127.0.0.1:9", ["north"])
    site = SiteFolder(tmp_path / "f" / "sites" / "north")
    site.identity.key.chmod(0o644)
    program = site_program(site)
    child = Child(program)
    child.start()
    try:
        wait_for_the_end_of(child)
        assert child.cause.startswith(f"ERROR: {site.identity.key} can be read by others")
        assert "Traceback" not in program.log.read_text()
    finally:
        child.stop()
