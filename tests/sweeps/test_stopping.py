"""Ctrl-C or SIGTERM during a sweep: the first lets it put its runs away, unless it is ignored."""

import os
import signal
from collections.abc import Iterator

import pytest

from fedcompass.sweeps.stopping import Stop


@pytest.fixture(autouse=True)
def handler_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_first_ctrl_c_makes_it_due_and_a_second_one_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stop = Stop()
    with stop.heeding_signals():
        assert not stop.is_due()
        ctrl_c()
        assert stop.is_due()
        assert stop.interrupted
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_background_job_that_ignores_ctrl_c_goes_on_ignoring_it() -> None:
    """As all other commands do; it would end with the Ctrl-C meant for the script's foreground."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop = Stop()
    with stop.heeding_signals():
        ctrl_c()
        assert not stop.is_due()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_sigterm_makes_it_due_as_ctrl_c_does() -> None:
    before = signal.getsignal(signal.SIGTERM)
    stop = Stop()
    with stop.heeding_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.is_due()
    assert signal.getsignal(signal.SIGTERM) is before
