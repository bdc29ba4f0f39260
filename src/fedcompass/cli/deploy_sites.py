"""`fedcompass deploy add-site | revoke-site | renew`: who takes part, and their certificates."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["add_site", "renew", "revoke_site"]

_Folder = Annotated[Path, typer.Argument(help="The federation's folder.")]
_Name = Annotated[str, typer.Argument(help="The site's name.")]


def add_site(folder: _Folder, name: _Name) -> None:
    """Give a further site, or one that was revoked, a certificate; also while the server runs."""
    from fedcompass.deployment.operator import site_admission

    print(f"hand over {site_admission.add_site(folder, name)}")


def revoke_site(folder: _Folder, name: _Name) -> None:
    """Shut a site out; also while the server runs."""
    from fedcompass.deployment.operator import site_admission

    site_admission.revoke_site(folder, name)
    print(f"{name} is off the roster; `fedcompass deploy add-site {folder} {name}` admits it anew")


def renew(
    folder: _Folder,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that are not about to expire.")
    ] = False,
) -> None:
    """Renew what expires within eight weeks of the CA's, the server's and sites' certificates."""
    from fedcompass.deployment.operator.renewal import renew_certificates

    for line in renew_certificates(folder, everything=everything):
        print(line)
