"""A user's own thing, named `package.module:name` or `FILE.py:name`: found, called, told apart.

One loader for models, data, losses, metrics and strategies. It imports the module under its own
name, by which worker processes find it again; torch is loaded only if the user's module does so.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedcompass.error_text import told
from fedcompass.errors import FedcompassError, SettingsError

__all__ = [
    "FORMS",
    "absolute",
    "accepted_arguments",
    "call",
    "described",
    "digest",
    "find",
    "is_own",
    "names_in",
    "short",
    "shown",
    "with_names",
    "wrong",
]

FORMS = "package.module:name or FILE.py:name"
"""How a user's own thing is named."""

NAMED = (
    ("data", "name"),
    ("model",),
    ("loss",),
    ("strategy", "name"),
    ("evaluation", "target_metric"),
    ("evaluation", "metrics"),
)
"""Where in an experiment's settings such a name may stand."""

_DIGITS = 16  # of a file's hash


def is_own(name: object) -> bool:
    """Whether a name is that of a user's own thing; ours have no colon."""
    return isinstance(name, str) and ":" in name


def absolute(name: str, folder: Path | None = None) -> str:
    """The same name with an absolute FILE; a relative one is looked up in the current folder.

    Args:
        name: of one of ours or of a user's; one of ours, or a module's, stays as it is.
        folder: look there instead.
    """
    module, colon, attribute = name.partition(":")
    if not colon or not _is_file(module):
        return name
    return f"{((folder or Path.cwd()) / Path(module).expanduser()).resolve()}:{attribute}"


def short(name: str) -> str:
    """`mine.rule` for `some/where/mine.py:rule`: for tables and the names of folders."""
    module, colon, attribute = name.partition(":")
    if not colon:
        return name
    stem = Path(module).stem if _is_file(module) else module.rpartition(".")[2]
    return f"{stem}.{attribute}"


def shown(name: str) -> str:
    """A name as a user would write it, for messages: a file from the current folder."""
    module, colon, attribute = name.partition(":")
    if not colon or not _is_file(module):
        return name
    try:
        return f"./{Path(module).relative_to(Path.cwd())}:{attribute}"
    except (ValueError, OSError):
        return name


def with_names(settings: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """An experiment's settings with every name of a user's own thing changed."""
    changed = dict(settings)
    for table, *keys in NAMED:
        if table not in changed:
            continue
        if not keys:
            changed[table] = _changed(changed[table], change)
        elif isinstance(changed[table], Mapping) and keys[0] in changed[table]:
            inner = dict(changed[table])
            changed[table] = {**inner, keys[0]: _changed(inner[keys[0]], change)}
    return changed


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_changed(item, change) for item in value]
    return change(value) if is_own(value) else value


def names_in(settings: Mapping[str, Any]) -> list[str]:
    """The names of a user's own things in an experiment's settings, each once."""
    found: dict[str, None] = {}

    def note(name: str) -> str:
        found[name] = None
        return name

    with_names(settings, note)
    return list(found)


def find(what: str, name: str) -> Any:
    """The object that `package.module:name` or `FILE.py:name` names.

    The current directory is searched for a module too, and a file's own folder for what it imports.

    Args:
        what: is looked for, in a word, for messages: "model", "strategy".
        name: its name.

    Raises:
        SettingsError: it cannot be imported or does not exist.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise SettingsError(f"{what} {name!r} is not of the form {FORMS}")
    told_as = f"{what} {shown(name)!r}"
    is_file = _is_file(module_name)
    module = _import_file(told_as, module_name) if is_file else _import(told_as, module_name)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise SettingsError(f"{told_as}: {_file(module)} has no {attribute}{_offers(module)}")
        found = getattr(found, part)
    return found


def call(what: str, name: str, function: Callable[..., Any], offered: Mapping[str, Any]) -> Any:
    """What a user's function returns when called with those of the offered arguments it names.

    Raises:
        SettingsError: it needs other arguments, or fails.
    """
    try:
        return function(**accepted_arguments(what, name, function, offered))
    except FedcompassError:
        raise
    except Exception as error:  # the user's code can raise anything; the cause stays attached
        raise SettingsError(f"{what} {shown(name)!r} raised {told(error)}") from error


def accepted_arguments(
    what: str, name: str, function: Callable[..., Any], offered: Mapping[str, Any]
) -> dict[str, Any]:
    """Those of the offered arguments that a function names.

    Raises:
        SettingsError: it needs another one.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtins have none
        return {}
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = {key: value for key, value in parameters.items() if value.kind in kinds}
    for key, parameter in named.items():
        if parameter.default is inspect.Parameter.empty and key not in offered:
            raise SettingsError(
                f"{what} {shown(name)!r} asks for an argument {key!r}; "
                f"it can have {' and '.join(offered) or 'none'}, or must give {key!r} a default"
            )
    return {key: value for key, value in offered.items() if key in named}


def wrong(what: str, name: str, found: object, allowed: str) -> str:
    """Say what a user's own thing is, and what it should be."""
    return f"{what} {shown(name)!r} is {described(found)}; allowed: {allowed}"


def described(value: object) -> str:
    """What somebody gave instead of what was wanted, in words."""
    if value is None:
        return "None"
    if inspect.isfunction(value):
        return f"the function {value.__name__}"
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    kind = type(value)
    home = kind.__module__.partition(".")[0]
    return f"a {kind.__name__}" if home in ("builtins", "__main__") else f"a {home}.{kind.__name__}"


def digest(name: str) -> str | None:
    """A hash of the file that a thing is in, not of what that imports; None if it is not found."""
    module = name.partition(":")[0]
    try:
        path = Path(module).expanduser() if _is_file(module) else _origin(module)
        if path is None:
            return None
        stat = path.stat()
        return _digest(path, stat.st_mtime_ns, stat.st_size)
    except (OSError, ImportError, ValueError):
        return None


def _origin(module: str) -> Path | None:
    _search(None)
    spec = importlib.util.find_spec(module)
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None


@lru_cache(maxsize=64)
def _digest(path: Path, _modified: int, _size: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:_DIGITS]


def _is_file(module: str) -> bool:
    return module.endswith(".py") or "/" in module


def _import_file(told_as: str, file: str) -> Any:
    path = Path(file).expanduser().resolve()
    if path.suffix != ".py" or not path.is_file():
        raise SettingsError(f"{told_as}: there is no Python file {path}; allowed: {FORMS}")
    module = _import(told_as, path.stem, path.parent)
    if Path(getattr(module, "__file__", None) or "built in").resolve() != path:
        raise SettingsError(
            f"{told_as}: {path.stem} is another module already ({_file(module)}); rename the file"
        )
    return module


def _import(told_as: str, module_name: str, folder: Path | None = None) -> Any:
    here = _search(folder)
    try:
        return importlib.import_module(module_name)
    except Exception as error:  # a syntax error, a missing package, anything at module level
        raise SettingsError(
            f"{told_as}: importing {module_name} raised {told(error)} "
            f"(searched {here} and the Python path)"
        ) from error


def _search(folder: Path | None) -> str:
    """Put a folder, or else the current one, on Python's path."""
    here = str(folder or Path.cwd())
    if here not in sys.path and (folder is not None or "" not in sys.path):
        sys.path.insert(0, here)  # as `python -m` does; stays, for what the module imports later
    importlib.invalidate_caches()
    return here


def _offers(module: Any) -> str:
    """What a module has of its own that may be meant."""
    own = [key for key, value in vars(module).items() if _is_of(module.__name__, key, value)]
    return f"; it has: {', '.join(own)}" if own else ""


def _is_of(module: str, key: str, value: Any) -> bool:
    """Whether a public name is one that the module itself defines: nothing plain or imported."""
    if key.startswith("_") or inspect.ismodule(value):
        return False
    if inspect.isclass(value) or inspect.isroutine(value):
        return getattr(value, "__module__", "") == module
    return type(value).__module__ not in ("builtins", "typing")


def _file(module: Any) -> str:
    return str(getattr(module, "__file__", None) or "built in")
