"""Calls of a Grid beside the loop: they may wait for ever, for a SuperLink that is gone."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["THREAD", "in_background"]

THREAD = "flower"
"""The name of these threads."""

_T = TypeVar("_T")


def in_background(call: Callable[[], _T]) -> "Future[_T]":
    """Start a call in a thread of its own, which does not keep the process from ending."""
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=THREAD, daemon=True).start()
    return future
