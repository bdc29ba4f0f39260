"""A site's own ClientApp, by the name in its site.toml."""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from fedcompass.deployment.wire.messages import one_line
from fedcompass.errors import AppError

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp

__all__ = ["load_client_app"]

_FORMER = {
    "fedcompass.deployment.client_app:app": "fedcompass.deployment.flower_engine.client_app:app"
}
"""A site.toml of an earlier version may name the default."""


def load_client_app(reference: str, folder: Path | None = None) -> "ClientApp":
    """Import a ClientApp.

    Args:
        reference: `module:name`.
        folder: the site's, which is searched first.

    Raises:
        AppError: it does not import, or is none.
    """
    from flwr.clientapp import ClientApp

    module, _, name = _FORMER.get(reference, reference).partition(":")
    if not module or not name:
        raise AppError(f"client_app is {reference!r}; allowed: module:name, as flower_client:app")
    if folder is not None and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        found = getattr(import_module(module), name)
    except Exception as error:  # a module of the user's own can raise anything
        why = one_line(f"{type(error).__name__}: {error}")
        raise AppError(f"client_app {reference!r} cannot be imported: {why}") from error
    if not isinstance(found, ClientApp):
        kind = type(found).__name__
        raise AppError(f"client_app {reference!r} is of type {kind}; it must be a ClientApp")
    return found
