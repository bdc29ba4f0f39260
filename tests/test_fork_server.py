"""Worker processes of later tests start although an earlier test's folder is gone."""

import multiprocessing
import shutil
from pathlib import Path

import pytest


def _nothing() -> None:
    pass


def _start_a_process() -> int | None:
    process = multiprocessing.get_context("forkserver").Process(target=_nothing)
    process.start()
    process.join()
    return process.exitcode


def test_a_fork_server_outlives_the_folder_of_the_test_that_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    with monkeypatch.context() as inside:
        inside.chdir(folder)
        assert _start_a_process() == 0
    shutil.rmtree(folder)
    assert _start_a_process() == 0
