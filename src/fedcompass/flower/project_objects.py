"""What a project's settings name by `module:name`: its model, its own measure."""

from collections.abc import Callable
from typing import Any

from torch import nn

from fedcompass import own_code
from fedcompass.deployment.wire.messages import one_line
from fedcompass.errors import AppError, SettingsError
from fedcompass.training.streams import seeded, stream_key

__all__ = ["load_object", "make_model"]


def load_object(setting: str, reference: str) -> Callable[..., Any]:
    """The callable that a setting names.

    Raises:
        SettingsError: it cannot be imported, or called.
    """
    found = own_code.find(setting, reference)
    if not callable(found):
        raise SettingsError(own_code.wrong(setting, reference, found, "a function or a class"))
    return found  # type: ignore[no-any-return]


def make_model(reference: str, seed: int) -> nn.Module:
    """A project's model, with initial weights that depend only on the seed.

    Frozen parameters travel, too: a ClientApp loads a whole `state_dict`, and sends one.

    Raises:
        SettingsError: there is none of that name.
        AppError: it raises, or makes something else.
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
    return made.requires_grad_()
