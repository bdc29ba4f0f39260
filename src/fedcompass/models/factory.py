"""A user's own factory of networks, named `package.module:factory`."""

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from fedcompass.errors import SettingsError

__all__ = ["call_factory", "find_factory"]


def find_factory(name: str) -> Callable[..., Any]:
    """The object that `package.module:factory` names; the current directory is searched too.

    Raises:
        SettingsError: it cannot be imported, does not exist or cannot be called.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise SettingsError(f"model {name!r} is not of the form package.module:factory")
    module = _import(name, module_name)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise SettingsError(
                f"model {name!r}: {module_name} ({_file(module)}) has no {attribute}"
            )
        found = getattr(found, part)
    if not callable(found):
        raise SettingsError(
            f"model {name!r} is {_described(found)}; "
            "name a function or class that returns a torch.nn.Module"
        )
    factory: Callable[..., Any] = found
    return factory


def call_factory(name: str, factory: Callable[..., Any], offered: Mapping[str, Any]) -> nn.Module:
    """What the factory returns when called with those of the offered arguments that it names.

    Raises:
        SettingsError: it needs other arguments, fails, or returns something else than a network.
    """
    try:
        network = factory(**_accepted(name, factory, offered))
    except SettingsError:
        raise
    except Exception as error:  # the user's code can raise anything; the cause stays attached
        raise SettingsError(f"model {name!r} raised {_told(error)}") from error
    if not isinstance(network, nn.Module):
        raise SettingsError(
            f"model {name!r} returned {_described(network)}; it must return a torch.nn.Module"
        )
    return network


def _import(name: str, module_name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does; stays, for what the module imports later
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except Exception as error:  # a syntax error, a missing package, anything at module level
        raise SettingsError(
            f"model {name!r}: importing {module_name} raised {_told(error)} "
            f"(searched {here} and the Python path)"
        ) from error


def _accepted(name: str, factory: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # some builtins have none
        return {}
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = {key: value for key, value in parameters.items() if value.kind in kinds}
    for key, parameter in named.items():
        if parameter.default is inspect.Parameter.empty and key not in offered:
            raise SettingsError(
                f"model {name!r} asks for an argument {key!r}; "
                f"it can have {' and '.join(offered)}, or must give {key!r} a default"
            )
    return {key: value for key, value in offered.items() if key in named}


def _told(error: Exception) -> str:
    """An exception on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _described(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _file(module: Any) -> str:
    return str(getattr(module, "__file__", None) or "built in")
