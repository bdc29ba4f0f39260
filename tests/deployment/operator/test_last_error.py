"""What a process that died is said to have died of: one line that helps, from its own log."""

from pathlib import Path
from time import monotonic, sleep

from fedcompass.deployment.flower_engine.supernode import supernode_program
from fedcompass.deployment.operator.project_files import init_project
from fedcompass.deployment.operator.running_site import RunningSite
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.supervision import Child, Program, last_line

PATIENCE = 120.0  # seconds; only a failing test waits so long

REFUSED = """\
\x1b[92mINFO \x1b[0m:      Starting Flower SuperNode
\x1b[91mERROR \x1b[0m:     Exit Code: 305
Failed to initialize the connection to the SuperLink.
[code: 2004] Failed to activate SuperNode.
The SuperNode could not establish a connection to the SuperLink.

For more information, visit: <https://flower.ai/docs/framework/1.41/en/ref-exit-codes/305.html>
INFO:     Shutting down
INFO:     Finished server process [3518]
"""


def test_the_line_about_trouble_is_shown_and_not_what_was_tidied_up_after_it(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    log.write_text(REFUSED)
    assert last_line(log) == (
        "ERROR : Exit Code: 305 Failed to initialize the connection to the SuperLink. "
        "[code: 2004] Failed to activate SuperNode."
    )


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


def test_a_site_that_is_not_admitted_yet_says_so_in_words(tmp_path: Path) -> None:
    init_project(tmp_path / "f", "127.0.0.1:9092", ["north"])
    running = RunningSite(SiteFolder(tmp_path / "f" / "sites" / "north"))
    running.stop()  # it has made a folder for its socket
    child = running._children["supernode"]
    child.program.log.parent.mkdir()
    child.program.log.write_text(REFUSED)
    child.last_error = last_line(child.program.log)
    assert "still counts the old connection as alive" in running.last_error("supernode")
    assert "worker.log" in running.last_error("worker")


def test_a_process_that_was_killed_is_said_to_have_been(tmp_path: Path) -> None:
    child = Child(Program("a web server", "http.server", tmp_path / "log", ["0"]), restarts=1)
    child.start()
    try:
        child.kill()
        wait_for_the_end_of(child)
        child.restart_if_dead()
        assert child.last_error.startswith("it was killed by signal 9; its log ends with: ")
    finally:
        child.stop()


def wait_for_the_end_of(child: Child) -> None:
    until = monotonic() + PATIENCE
    while child.running:
        assert monotonic() < until
        sleep(0.05)


def test_a_client_app_that_does_not_import_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    program = supernode_program(
        "north",
        "127.0.0.1:9",
        tmp_path,
        tmp_path / "worker.sock",
        authority=None,
        key=None,
        client_app="no_such_module:app",
        folder=tmp_path,
    )
    child = Child(program, restarts=1)
    child.start()
    try:
        wait_for_the_end_of(child)
        child.restart_if_dead()
        assert child.last_error == (
            "ERROR: client_app 'no_such_module:app' cannot be imported: "
            "ModuleNotFoundError: No module named 'no_such_module'"
        )
        assert "Traceback" not in program.log.read_text()
    finally:
        child.stop()
