"""A real federation over a network: the same coordinator as in simulation, on the wall clock.

The names below are imported when they are first used: what runs at a site for every message must
not load torch.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcompass.deployment.app.trainer import Site, Trainer
    from fedcompass.deployment.server.federation import Federation
    from fedcompass.deployment.server.federation_settings import FederationSettings
    from fedcompass.deployment.server.federation_summary import Summary
    from fedcompass.deployment.server.serve import serve

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # not what its connections do; read at import

__all__ = ["Federation", "FederationSettings", "Site", "Summary", "Trainer", "serve"]

_HOME = {
    "Federation": "fedcompass.deployment.server.federation",
    "FederationSettings": "fedcompass.deployment.server.federation_settings",
    "Site": "fedcompass.deployment.app.trainer",
    "Summary": "fedcompass.deployment.server.federation_summary",
    "Trainer": "fedcompass.deployment.app.trainer",
    "serve": "fedcompass.deployment.server.serve",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module 'fedcompass.deployment' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
