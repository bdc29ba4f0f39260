"""Certificates for a benchmark on this machine."""

from pathlib import Path

from fedcompass.deployment.operator.certificates import (
    make_authority,
    make_server_certificate,
    make_site_certificate,
)

__all__ = ["make_papers"]


def make_papers(folder: Path) -> None:
    """A CA, a server's certificate for the loopback, and one for a site called `site`."""
    make_authority(folder, "benchmark")
    make_server_certificate(folder, folder, [])
    make_site_certificate(folder, folder, "site")
