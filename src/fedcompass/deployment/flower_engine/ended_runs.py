"""Messages whose run ends while a SuperNode fetches them: cleared away, so that no site waits.

Flower makes a task of a message before it fetches the message's objects. If the run is over by
then (its server was stopped or killed), its `RunNotRunningException`, a BaseException, passes by
the clean-up that other errors get: the task stays, its objects never come, and the site is stuck
with it although the server is back with a new run.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["EndedRuns", "RunIsOver"]


class RunIsOver(Exception):
    """A message is not to be answered: its run ended while it was fetched."""


class EndedRuns:
    """Knows the messages that were given up, once `watch` is in place."""

    def __init__(self) -> None:
        self._given_up: set[str] = set()

    def watch(self) -> None:
        """Have the SuperNode of this process give up such messages as it does after other errors.

        Its loop looks the function up by name each time, so it can be wrapped.
        """
        loop: Any = import_module("flwr.supernode.start_client_internal")
        inner = loop._pull_and_store_message

        def pull_and_store(**arguments: Any) -> Any:
            fetched: list[str] = []
            arguments["receive"] = _noting(arguments["receive"], fetched)
            for name in ("pull_object", "confirm_message_received"):
                arguments[name] = _ordinary(arguments[name])
            run = inner(**arguments)
            if run is None:
                self._given_up.update(fetched)
            return run

        loop._pull_and_store_message = pull_and_store

    def unless_over(self, message: str, pull: Callable[[str], bytes]) -> Callable[[str], bytes]:
        """`pull` that raises `RunIsOver` once the message it pulls objects of was given up."""

        def pulled(name: str) -> bytes:
            if message in self._given_up:
                raise RunIsOver(message)
            return pull(name)

        return pulled


def _noting(receive: Callable[[], Any], fetched: list[str]) -> Callable[[], Any]:
    def received() -> Any:
        found = receive()
        if found is not None:
            fetched.append(found[0].metadata.message_id)
        return found

    return received


def _ordinary(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call whose "the run is over" is an ordinary exception."""
    from flwr.supercore.run import RunNotRunningException

    def called(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        except RunNotRunningException:
            raise RunIsOver("the run is over") from None

    return called
