"""`fedcompass deploy init`: the folder of a new federation, and what each site is handed."""

import secrets
import shutil
import tempfile
from collections.abc import Sequence
from itertools import count, islice
from pathlib import Path

from fedcompass.deployment.addresses import is_loopback, split_address
from fedcompass.deployment.operator import project_texts as texts
from fedcompass.deployment.operator.certificates import (
    make_authority,
    make_server_certificate,
    make_site_key,
)
from fedcompass.deployment.private_files import write_secret
from fedcompass.deployment.server.project import ServerProject
from fedcompass.deployment.site.site_folder import SiteFolder, valid_name
from fedcompass.errors import FedcompassError, ProjectError, SettingsError

__all__ = ["add_sites", "init_project", "renew_certificate"]

_TOKEN_BYTES = 32


def init_project(
    folder: Path, address: str, sites: Sequence[str], *, insecure: bool = False
) -> None:
    """Write a federation's folder: app, settings, certificates, keys, units and read-me files.

    Args:
        folder: new, or empty.
        address: host:port by which the sites reach the server.
        sites: their names.
        insecure: no TLS, no keys; loopback only.

    Raises:
        ProjectError: the folder holds something already.
        SettingsError: the address or a name cannot be used.
    """
    host, _ = split_address(address)
    names = _distinct(sites)
    if insecure and not is_loopback(host):
        raise SettingsError(
            f"--insecure with address {address!r}; allowed without TLS: 127.0.0.1 only"
        )
    _fresh(folder)
    private = folder / "server"
    private.mkdir(mode=0o700)
    write_secret(private / "control.token", secrets.token_urlsafe(_TOKEN_BYTES).encode())
    write_secret(private / "executor.secret", secrets.token_bytes(_TOKEN_BYTES))
    if not insecure:
        make_authority(private, folder.resolve().name)
        make_server_certificate(private, private, [host])
    (folder / "app.py").write_text(texts.APP, encoding="utf-8")
    settings = texts.deployment_toml(address, len(names), insecure=insecure)
    (folder / "deployment.toml").write_text(settings, encoding="utf-8")
    (folder / "README.md").write_text(texts.server_readme(address), encoding="utf-8")
    (folder / ".gitignore").write_text(texts.GITIGNORE, encoding="utf-8")
    (folder / "systemd").mkdir()
    unit = texts.server_unit(folder.resolve())
    (folder / "systemd" / "fedcompass-server.service").write_text(unit, encoding="utf-8")
    _write_sites(folder, address, names, range(len(names)), of=len(names), insecure=insecure)


def add_sites(folder: Path, names: Sequence[str]) -> None:
    """Make keys and folders for further sites of a federation that exists.

    Raises:
        ProjectError: it does not exist, or a site of that name does.
    """
    project = ServerProject(folder)
    network, fresh, taken = project.network, _distinct(names), _numbers(project)
    numbers = list(islice((number for number in count() if number not in taken), len(fresh)))
    of = max([*taken, *numbers]) + 1
    _write_sites(folder, network.address, fresh, numbers, of=of, insecure=network.insecure)


def _numbers(project: ServerProject) -> set[int]:
    """The numbers of the sites that take part, by which the example app splits its data."""
    names, found = project.public_keys(), set()
    for name in names:
        try:
            number = SiteFolder(project.folder / "sites" / name).settings.settings.get("number")
        except FedcompassError:  # its folder was handed over and removed
            number = None
        if not isinstance(number, int):
            return set(range(len(names)))
        found.add(number)
    return found


def renew_certificate(folder: Path) -> None:
    """Replace the server's certificate by a new one of the same authority; sites notice nothing.

    Raises:
        ProjectError: the authority's key is not here; the old certificate is untouched.
    """
    project = ServerProject(folder)
    if project.network.insecure:
        raise ProjectError(f"{folder} is insecure: it has no certificate to renew")
    host, _ = split_address(project.network.address)
    with tempfile.TemporaryDirectory(dir=project.secrets, prefix=".renewed-") as beside:
        make_server_certificate(project.secrets, Path(beside), [host])
        for name in ("server.key", "server.pem"):
            present = project.secrets / name
            if present.exists():
                present.replace(present.with_suffix(f"{present.suffix}.old"))
            (Path(beside) / name).replace(present)


def _distinct(names: Sequence[str]) -> list[str]:
    if len(set(names)) != len(names):
        raise SettingsError(f"two sites have the same name: {', '.join(names)}")
    return [valid_name(name) for name in names]


def _fresh(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ProjectError(f"{folder} is a file; choose a new folder")
    if folder.exists() and any(folder.iterdir()):
        raise ProjectError(f"{folder} is not empty; choose a new folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "keys").mkdir()
        (folder / "sites").mkdir(mode=0o700)
    except OSError as error:
        raise ProjectError(
            f"{folder} cannot be made: {error.strerror}; choose another folder"
        ) from None


def _write_sites(
    folder: Path,
    address: str,
    names: Sequence[str],
    numbers: Sequence[int],
    *,
    of: int,
    insecure: bool,
) -> None:
    for number, name in zip(numbers, names, strict=True):
        site = folder / "sites" / name
        try:
            site.mkdir(mode=0o700)
        except FileExistsError:
            raise ProjectError(f"{site} exists already; choose another name") from None
        if not insecure:
            public = folder / "keys" / f"{name}.pub"
            make_site_key(site / "site.key", public)
            shutil.copy(folder / "server" / "ca.pem", site / "ca.pem")
        shutil.copy(folder / "app.py", site / "app.py")
        settings = texts.site_toml(name, address, number, of, insecure=insecure)
        (site / "site.toml").write_text(settings, encoding="utf-8")
        (site / "README.md").write_text(texts.site_readme(name, address), encoding="utf-8")
        (site / "fedcompass-site.service").write_text(texts.site_unit(name), encoding="utf-8")
