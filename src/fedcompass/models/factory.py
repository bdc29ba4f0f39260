"""A user's own factory of networks, named `package.module:factory` or `FILE.py:factory`."""

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from fedcompass.error_text import told
from fedcompass.errors import SettingsError

__all__ = ["FORMS", "call_factory", "find_factory"]

FORMS = "package.module:factory or FILE.py:factory"
"""How a user's own network is named."""


def find_factory(name: str) -> Callable[..., Any]:
    """The object that `package.module:factory` or `FILE.py:factory` names.

    The current directory is searched for a module too, and a file's own folder for what it imports.

    Raises:
        SettingsError: it cannot be imported, does not exist or cannot be called.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise SettingsError(f"model {name!r} is not of the form {FORMS}")
    is_file = module_name.endswith(".py") or "/" in module_name
    module = _import_file(name, module_name) if is_file else _import(name, module_name)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise SettingsError(
                f"model {name!r}: {module_name} ({_file(module)}) has no {attribute}"
                f"{_offers(module)}"
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
        raise SettingsError(f"model {name!r} raised {told(error)}") from error
    if not isinstance(network, nn.Module):
        raise SettingsError(
            f"model {name!r} returned {_described(network)}; it must return a torch.nn.Module"
        )
    return network


def _import_file(name: str, file: str) -> Any:
    """The module that a file is; under its own name, by which worker processes find it again."""
    path = Path(file).expanduser().resolve()
    if path.suffix != ".py" or not path.is_file():
        raise SettingsError(f"model {name!r}: there is no Python file {path}; allowed: {FORMS}")
    module = _import(name, path.stem, path.parent)
    if Path(getattr(module, "__file__", None) or "built in").resolve() != path:
        raise SettingsError(
            f"model {name!r}: {path.stem} is another module already ({_file(module)}); "
            "rename the file"
        )
    return module


def _import(name: str, module_name: str, folder: Path | None = None) -> Any:
    here = str(folder or Path.cwd())
    if here not in sys.path and (folder is not None or "" not in sys.path):
        sys.path.insert(0, here)  # as `python -m` does; stays, for what the module imports later
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except Exception as error:  # a syntax error, a missing package, anything at module level
        raise SettingsError(
            f"model {name!r}: importing {module_name} raised {told(error)} "
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


def _offers(module: Any) -> str:
    """What a module has of its own that may be meant."""
    own = [key for key, value in vars(module).items() if callable(value)]
    own = [key for key in own if getattr(vars(module)[key], "__module__", "") == module.__name__]
    return f"; it has: {', '.join(own)}" if own else ""


def _described(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _file(module: Any) -> str:
    return str(getattr(module, "__file__", None) or "built in")
