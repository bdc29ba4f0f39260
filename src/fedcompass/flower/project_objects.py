"""What a project's settings name by `module:name`: its model, its own measure."""

from importlib import import_module
from typing import Any

from torch import nn

from fedcompass.deployment.wire.messages import one_line
from fedcompass.errors import AppError
from fedcompass.training.streams import seeded, stream_key

__all__ = ["load_object", "make_model"]


def load_object(setting: str, reference: str) -> Any:
    """The callable that a setting names.

    Raises:
        AppError: it cannot be imported, or called.
    """
    module, _, name = reference.partition(":")
    if not module or not name:
        raise AppError(f"{setting} is {reference!r}; allowed: module:name, as my_app.task:Net")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:  # a module of the user's own can raise anything
        why = one_line(f"{type(error).__name__}: {error}")
        raise AppError(f"{setting} {reference!r} cannot be imported: {why}") from error
    if not callable(found):
        raise AppError(f"{setting} {reference!r} is a {type(found).__name__}; name a function")
    return found


def make_model(reference: str, seed: int) -> nn.Module:
    """A project's model, with initial weights that depend only on the seed.

    Raises:
        AppError: there is none of that name, it raises, or makes something else.
    """
    function = load_object("model", reference)
    try:
        with seeded(stream_key(seed, "model")):
            made = function()
    except Exception as error:
        why = one_line(f"{type(error).__name__}: {error}")
        raise AppError(f"model {reference!r} does not work without arguments: {why}") from error
    if not isinstance(made, nn.Module):
        raise AppError(
            f"model {reference!r} made a {type(made).__name__}; it must make a torch.nn.Module"
        )
    return made
