"""The Flower app that a deployment submits as a run: names of our apps, and no code at all.

Server and sites have fedcompass installed and use their own copy of it. The project is small enough
to be read by whoever wants to know what is sent.
"""

import warnings

from fedcompass import __version__

__all__ = ["flower_app_bundle", "pyproject"]


def pyproject(client_app: str = "fedcompass.deployment.flower_engine.client_app:app") -> str:
    """The text of the app's pyproject.toml."""
    return f"""\
[project]
name = "fedcompass-federation"
version = "{__version__}"
description = "A federation of unequal sites"
license = "Apache-2.0"
dependencies = ["flwr>=1.41,<1.42"]

[tool.flwr.app]
publisher = "fedcompass"

[tool.flwr.app.components]
serverapp = "fedcompass.deployment.flower_engine.server_app:app"
clientapp = "{client_app}"
"""


def flower_app_bundle() -> bytes:
    """The app as Flower ships it (a FAB, a zip file)."""
    from flwr.cli.build import build_fab_from_files

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a library that Flower uses
        bundle, _ = build_fab_from_files({"pyproject.toml": pyproject().encode()})
    return bytes(bundle)
