"""`fedcompass deploy init`: the folder of a new federation, and what each site is handed."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from fedcompass.deployment.addresses import split_address
from fedcompass.deployment.certificate_dates import PublicKey
from fedcompass.deployment.operator import project_texts as texts
from fedcompass.deployment.operator.certificates import (
    make_authority,
    make_server_certificate,
    make_site_certificate,
)
from fedcompass.deployment.site.site_folder import valid_name
from fedcompass.deployment.wire.site_roster import fingerprint_of, roster_text
from fedcompass.errors import ProjectError, SettingsError

__all__ = ["certify_site", "init_project", "write_site"]


def init_project(folder: Path, address: str, sites: Sequence[str]) -> None:
    """Write a federation's folder: app, settings, certificates, roster, units, a folder per site.

    Args:
        folder: new, or empty; it stays so if anything goes wrong.
        address: host:port by which the sites reach the server.
        sites: their names.

    Raises:
        ProjectError: the folder holds something already, or cannot be written.
        SettingsError: the address or a name cannot be used.
    """
    split_address(address)
    if len(set(sites)) != len(sites):
        raise SettingsError(f"two sites have the same name: {', '.join(sites)}")
    names = [valid_name(name) for name in sites]
    with _filled_at_once(folder) as beside:
        _write_server(beside, folder.resolve(), address, len(names))
        prints = {}
        for number, name in enumerate(names):
            site = beside / "sites" / name
            site.mkdir(mode=0o700)
            write_site(beside, site, address, number, len(names))
            prints[name] = [certify_site(beside, site)]
        (beside / "roster.toml").write_text(roster_text(prints), encoding="utf-8")


def write_site(project: Path, site: Path, address: str, number: int, of: int) -> None:
    """Write what a site needs but its certificate; its name is the folder's."""
    shutil.copy(project / "app.py", site / "app.py")
    home = f"/srv/fedcompass/{site.name}"
    _write(
        site,
        {
            "site.toml": texts.SITE_TOML,
            "README.md": texts.SITE_README,
            "fedcompass-site.service": texts.UNIT,
        },
        {"name": site.name, "address": address, "number": number, "sites": of}
        | {"what": f"site {site.name}", "folder": home, "command": "site ."}
        | {"written": f"{home}/state"},
    )


def certify_site(project: Path, site: Path, own_key: PublicKey | None = None) -> str:
    """Certify a site of the folder's name; returns the fingerprint, for the roster.

    As `make_site_certificate`, with `ca.crt` beside it and a copy for the federation's operator.
    """
    certificates = project / "certificates"
    certificate = make_site_certificate(certificates, site, site.name, own_key=own_key)
    shutil.copy(certificates / "ca.crt", site / "ca.crt")
    (certificates / "sites" / f"{site.name}.crt").write_bytes(certificate)
    return fingerprint_of(certificate)


def _write_server(folder: Path, final: Path, address: str, sites: int) -> None:
    """Write all but the sites; `final` is where the folder will be."""
    for name in ("certificates", "sites"):
        (folder / name).mkdir(mode=0o700)
    (folder / "systemd").mkdir()
    certificates = folder / "certificates"
    (certificates / "sites").mkdir()
    make_authority(certificates, final.name)
    make_server_certificate(certificates, certificates, [split_address(address)[0]])
    _write(
        folder,
        {
            "app.py": texts.APP,
            "deployment.toml": texts.DEPLOYMENT_TOML,
            "README.md": texts.SERVER_README,
            ".gitignore": texts.GITIGNORE,
            "systemd/fedcompass-server.service": texts.UNIT,
        },
        {"address": address, "min_clients": max(sites, 1)}
        | {"what": "server", "folder": final, "written": final}
        | {"command": "server . --resume-if-begun"},
    )


def _write(folder: Path, named: Mapping[str, str], values: Mapping[str, object]) -> None:
    for name, text in named.items():
        (folder / name).write_text(text.format(**values), encoding="utf-8")


@contextmanager
def _filled_at_once(folder: Path) -> Iterator[Path]:
    """Where to write what is to be in a new or empty folder; it gets all of it, or nothing.

    deployment.toml comes last: a folder without it is no federation.
    """
    there = folder.exists()
    if there and not folder.is_dir():
        raise ProjectError(f"{folder} is a file; choose a new folder")
    if there and any(folder.iterdir()):
        raise ProjectError(f"{folder} is not empty; choose a new folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=folder, prefix=".init-"))
        yield beside
        for path in sorted(beside.iterdir(), key=lambda path: path.name == "deployment.toml"):
            path.rename(folder / path.name)
        beside.rmdir()
    except BaseException as error:
        _remove(folder, itself=not there)
        if not isinstance(error, OSError):
            raise
        raise ProjectError(
            f"{folder} cannot be made: {error.strerror}; choose another folder"
        ) from None


def _remove(folder: Path, *, itself: bool) -> None:
    """Remove what a failure left in a folder that was empty."""
    with suppress(OSError):
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if itself:
            folder.rmdir()
