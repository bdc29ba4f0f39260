"""A user's app.py: loaded by its path, and every mistake in it told in one line with its place."""

import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from fedcompass.deployment.app.trainer import Site, Trainer
from fedcompass.errors import AppError, FedcompassError
from fedcompass.training.problem import Samples
from fedcompass.training.streams import seeded, stream_key

__all__ = ["AppFile", "load_app"]

_MODULE = "fedcompass_app"


class AppFile:
    """The functions of a loaded app.py; whatever they raise comes out as `AppError`.

    path: the file.
    """

    def __init__(self, path: Path, module: ModuleType) -> None:
        self.path = path
        self._module = module

    def model(self, seed: int = 0) -> nn.Module:
        """A new model, with initial weights that depend only on the seed."""
        with seeded(stream_key(seed, "model")):
            made = self._call("model")
        if not isinstance(made, nn.Module):
            raise self._wrong("model", made, "a torch.nn.Module")
        return made

    def trainer(self, site: Site) -> Trainer:
        """How this site trains."""
        try:
            made = self._call("trainer", site)
        except AppError as error:
            if site.data is None and "'NoneType'" in str(error):
                raise AppError(f"{error}; perhaps because data is not set in site.toml") from error
            raise
        if not isinstance(made, Trainer):
            raise self._wrong("trainer", made, "a fedcompass.deployment.Trainer")
        return made

    def test_set(self) -> Samples | None:
        """What the server measures merged models on; None if the app has no `test_set`."""
        if not self.has("test_set"):
            return None
        made = self._call("test_set")
        if made is not None and not isinstance(made, Samples):
            raise self._wrong("test_set", made, "fedcompass.Samples")
        return made

    def evaluate(self, model: nn.Module) -> dict[str, float] | None:
        """The app's own measures of a model; None if the app has no `evaluate`."""
        if not self.has("evaluate"):
            return None
        made = self._call("evaluate", model)
        try:
            return {str(name): float(value) for name, value in made.items()}
        except (AttributeError, TypeError, ValueError):
            raise self._wrong("evaluate", made, "a dict of numbers") from None

    def has(self, name: str) -> bool:
        """Whether the app has a function of that name."""
        return callable(getattr(self._module, name, None))

    def function(self, name: str) -> Callable[..., Any]:
        """One of the app's functions as it is.

        Raises:
            AppError: there is none of that name.
        """
        if not self.has(name):
            raise AppError(f"{self.path} has no function {name}(); see docs/deployment.md")
        found: Callable[..., Any] = getattr(self._module, name)
        return found

    def explain(self, error: Exception) -> str:
        """One line that says which line of the app raised what."""
        return _explained(self.path, error)

    def _call(self, name: str, *arguments: Any) -> Any:
        function = self.function(name)
        try:
            return function(*arguments)
        except Exception as error:  # the user's code can raise anything; the cause stays attached
            raise AppError(self.explain(error)) from error

    def _wrong(self, name: str, made: object, wanted: str) -> AppError:
        got = "None" if made is None else f"a {type(made).__name__}"
        return AppError(f"{self.path}: {name}() returned {got}; it must return {wanted}")


def load_app(path: Path | str) -> AppFile:
    """Run a user's app.py; its folder is searched for what it imports.

    Raises:
        AppError: there is no such file, it does not run, or it lacks `model` or `trainer`.
    """
    path = Path(path).resolve()
    if not path.is_file():
        raise AppError(f"there is no file {path}; `fedcompass deploy init` writes an example")
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise AppError(f"{path} is not a Python file; name it *.py")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    sys.modules[_MODULE] = module  # dataclasses and pickle look a class's module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise AppError(_explained(path, error)) from error
    app = AppFile(path, module)
    for needed in ("model", "trainer"):
        app.function(needed)
    return app


def _explained(path: Path, error: Exception) -> str:
    """What went wrong, with the last line of the user's own file that led to it."""
    told = " ".join(str(error).split())
    if not isinstance(error, FedcompassError):  # one of ours is a whole sentence already
        told = f"{type(error).__name__}: {told}" if told else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename) == path]
    if not own:
        return f"{path}: {told}"
    return f"{path}:{own[-1].lineno} in {own[-1].name}: {told}"
