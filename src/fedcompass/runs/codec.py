"""Events and commands as JSON values, and events back."""

from typing import Any

from fedcompass.errors import JournalError
from fedcompass.scheduling import events
from fedcompass.scheduling.commands import DIRECT, Command, Commit, Fold, Hold, SetDeadline
from fedcompass.scheduling.events import Event

__all__ = ["command_to_json", "event_from_json", "event_to_json"]

_EVENTS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        events.ClientJoined,
        events.UpdateArrived,
        events.UpdateRefused,
        events.UpdateReturned,
        events.MergeFailed,
        events.SpoilerFound,
        events.TaskLost,
        events.ClientLost,
        events.DeadlinePassed,
        events.QuarantineLifted,
    )
}


def event_to_json(
    event: Event, *, privacy: dict[str, Any] | None = None, **_: Any
) -> dict[str, Any]:
    """An event with its kind under "event"; of a journal's notes on it `privacy` is kept."""
    record = {"event": type(event).__name__, **_values(event)}
    return {**record, "privacy": privacy} if privacy else record


def command_to_json(command: Command) -> dict[str, Any]:
    """A command with its kind under "command"; contributions as [client, task, staleness].

    "direct" repeats for a journal's readers that the buffer is DIRECT.
    """
    record = {"command": type(command).__name__, **_values(command)}
    if isinstance(command, Fold):
        record["direct"] = command.buffer == DIRECT
    if isinstance(command, SetDeadline) and command.due is None:
        del record["due"]
    if isinstance(command, Commit | Hold):
        record["buffers"] = list(command.buffers)
    if isinstance(command, Commit):
        record["contributions"] = [[f.client, f.task, f.staleness] for f in command.contributions]
        record["direct"] = DIRECT in command.buffers
    return record


def event_from_json(record: dict[str, Any]) -> Event:
    """The event a record describes.

    Raises:
        JournalError: an unknown kind, or fields that do not fit.
    """
    values = dict(record)
    name = values.pop("event", None)
    values.pop("privacy", None)  # a note
    if "untold" in values:
        values["untold"] = tuple(values["untold"])
    if name not in _EVENTS:
        raise JournalError(f"event is {name!r}; allowed: {', '.join(_EVENTS)}")
    try:
        return _EVENTS[name](**values)
    except TypeError as error:
        raise JournalError(f"{name} cannot be read: {error}") from None


def _values(fact: Any) -> dict[str, Any]:
    return {name: getattr(fact, name) for name in type(fact).__slots__}
