"""`fedcompass watch` as a process."""

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.child_processes import PATIENCE, started
from tests.report.conftest import scheduled


def test_it_prints_where_the_page_is_serves_it_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    folder = scheduled(tmp_path / "run", clients=2, until=3.0)
    command = [sys.executable, "-m", "fedcompass", "watch", str(folder), "--port", "0"]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        assert p.stdout is not None
        words = p.stdout.readline().split()
        assert words[0] == "watch:"
        assert words[1].startswith("http://127.0.0.1:")
        with urllib.request.urlopen(words[1], timeout=PATIENCE) as response:
            assert b"<title>fedcompass report</title>" in response.read()
        p.send_signal(signal.SIGINT)
        rest, errors = p.communicate(timeout=PATIENCE)
    assert (p.returncode, rest, errors) == (0, "", "")
