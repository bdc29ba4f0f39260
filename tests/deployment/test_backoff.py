"""How long to wait before the next try."""

from pathlib import Path

import pytest

from fedcompass.deployment.backoff import Backoff
from fedcompass.deployment.supervision import Child, Program
from fedcompass.errors import ProcessFailed


def test_each_failure_in_a_row_doubles_the_pause_up_to_the_longest() -> None:
    backoff = Backoff(first=0.5, longest=30.0)
    assert [backoff.after(failures) for failures in range(8)] == [0, 0.5, 1, 2, 4, 8, 16, 30]
    assert backoff.after(10**6) == 30.0


def test_a_process_that_recovered_starts_counting_anew_and_too_many_deaths_end_it(
    tmp_path: Path,
) -> None:
    lives = iter((1.0, 1.0, 21.0, 20.0, 1.0))
    child = Child(
        Program("a worker", "no.such.module", tmp_path / "log"),
        restarts=2,
        longest_pause=10.0,
        clock=lambda: next(lives),
    )
    assert [child.pause() for _ in range(4)] == [0.2, 0.4, 0.2, 0.4]
    with pytest.raises(ProcessFailed, match="a worker died 3 times in a row"):
        child.pause()
