"""A user's own factory of networks, named `package.module:name` or `FILE.py:name`."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from fedcompass import own_code
from fedcompass.errors import SettingsError

__all__ = ["call_factory", "find_factory"]


def find_factory(name: str) -> Callable[..., Any]:
    """The function or class of that name.

    Raises:
        SettingsError: it cannot be imported, does not exist or cannot be called.
    """
    found = own_code.find("model", name)
    if isinstance(found, nn.Module) or not callable(found):
        raise SettingsError(
            f"model {own_code.shown(name)!r} is {own_code.described(found)}; "
            "name a function or class that returns a torch.nn.Module"
        )
    factory: Callable[..., Any] = found
    return factory


def call_factory(
    name: str, factory: Callable[..., Any], offered: Mapping[str, Any], *, what: str = "model"
) -> nn.Module:
    """What the factory returns when called with those of the offered arguments that it names.

    Args:
        name: the user's name for it, or for what brought it.
        factory: to be called.
        offered: the arguments that it can have.
        what: it is, for messages.

    Raises:
        SettingsError: it needs other arguments, fails, or returns something else than a network.
    """
    network = own_code.call(what, name, factory, offered)
    if not isinstance(network, nn.Module):
        raise SettingsError(
            f"{what} {own_code.shown(name)!r} returned {own_code.described(network)}; "
            "it must return a torch.nn.Module"
        )
    return network
