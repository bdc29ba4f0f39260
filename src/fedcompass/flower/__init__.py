"""For Flower users: a ServerApp that runs any of our strategies, over Flower's public API.

A project names it in its pyproject.toml: `serverapp = "fedcompass.flower:app"`. docs/flower.md has
the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedcompass.errors import MissingExtra

if TYPE_CHECKING:
    from fedcompass.flower.server_app import app
    from fedcompass.flower.training_seconds import pace_mod

__all__ = ["app", "pace_mod"]  # `flwr run` looks for the ServerApp's name in this list

_HOME = {"app": "fedcompass.flower.server_app", "pace_mod": "fedcompass.flower.training_seconds"}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: a ClientApp starts without the server's part."""
    if name not in _HOME:
        raise AttributeError(f"module 'fedcompass.flower' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOME[name]), name)
    except ImportError as error:
        if (error.name or "").split(".")[0] != "flwr":
            raise
        raise MissingExtra("flwr", "flower", "a Flower project") from None
