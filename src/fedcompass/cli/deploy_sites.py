"""`fedcompass deploy add-site | revoke-site | request | renew`: sites and certificates."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["add_site", "renew", "request", "revoke_site"]

_Folder = Annotated[Path, typer.Argument(help="The federation's folder.")]
_Name = Annotated[str, typer.Argument(help="The site's name.")]


def add_site(
    folder: _Folder,
    name: _Name,
    request: Annotated[
        Path | None, typer.Option(help="The site's site.csr, if it has made its own key.")
    ] = None,
) -> None:
    """Give a further site, or one that was revoked, a certificate; also while the server runs."""
    from fedcompass.deployment.operator import site_admission
    from fedcompass.deployment.operator.site_requests import key_digest, read_request

    key = None if request is None else read_request(request, name)
    handed = site_admission.add_site(folder, name, key)
    print(f"hand over {handed}")
    if key is not None:
        print(f"but first compare the key's digest with {name}, by telephone: {key_digest(key)}")


def request(
    folder: Annotated[Path, typer.Argument(help="The site's folder, new or not; of its name.")],
) -> None:
    """Make a site's own key and a request for its certificate, at the site."""
    from fedcompass.deployment.operator.site_requests import make_request

    digest = make_request(folder)
    print(f"send {folder}/site.csr to the federation's operator; site.key stays here")
    print(f"the key's digest, to compare by telephone: {digest}")


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
