"""`fedcompass deploy renew`: certificates with later dates for the same keys, before they expire.

The old ones stay valid until they expire: nobody has to change anything at the same moment, and no
secret has to travel. A site whose key is no longer secret is revoked and added anew.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedcompass.deployment.certificate_dates import (
    WARNED_AHEAD,
    hosts_of,
    public_key_of,
    read_certificate,
)
from fedcompass.deployment.operator.certificates import SIGNED_DAYS, Authority, make_key, read_key
from fedcompass.deployment.operator.site_admission import locked_roster, write_roster
from fedcompass.deployment.server.project import ServerProject
from fedcompass.deployment.wire.site_roster import fingerprint_of
from fedcompass.errors import ProjectError
from fedcompass.runs.files import replacing

__all__ = ["renew_certificates"]

_IsDue = Callable[[datetime], bool]


def renew_certificates(folder: Path, *, everything: bool = False) -> list[str]:
    """Renew what expires within eight weeks, or all; what is to be done now, in lines.

    Raises:
        ProjectError: there is no federation, or the CA's key is not here; nothing was changed.
    """
    project, now = ServerProject(folder), datetime.now(UTC)

    def is_due(end: datetime) -> bool:
        return everything or end < now + WARNED_AHEAD

    with locked_roster(project) as roster:
        told, sites = _sites_due(project, list(roster), is_due)
        for_server = _server_is_due(project, is_due)
        # A CA must not expire before what it signs.
        end = read_certificate(project.identity.authority).not_valid_after_utc
        for_authority = is_due(end - timedelta(days=SIGNED_DAYS))
        if not (sites or for_server or for_authority):
            return [*told, f"nothing expires within {WARNED_AHEAD.days} days; --all renews all"]
        signer = Authority(project.certificates)
        if for_authority:
            told.append(_renew_authority(project, signer, end))
        if for_server:
            told.append(_renew_server(project, signer))
        return told + _renew_sites(project, signer, roster, sites)


def _sites_due(
    project: ServerProject, names: list[str], is_due: _IsDue
) -> tuple[list[str], list[str]]:
    """What is wrong with some sites' certificates, and whose are to be renewed."""
    wrong, due = [], []
    for name in names:
        path = project.site_certificates / f"{name}.crt"
        try:
            public_key_of(path)
            due += [name] if is_due(read_certificate(path).not_valid_after_utc) else []
        except ProjectError as error:
            wrong.append(f"{name} is not renewed: {error}; revoke-site and add-site renew it, too")
    return wrong, due


def _server_is_due(project: ServerProject, is_due: _IsDue) -> bool:
    """Whether the server needs a certificate: also if the present one is damaged or of another."""
    identity = project.identity
    try:
        present = read_certificate(identity.certificate)
        fits = public_key_of(identity.certificate) == read_key(identity.key).public_key()
    except ProjectError:
        return True
    fits = fits and project.network.host in hosts_of(present)
    return not fits or is_due(present.not_valid_after_utc)


def _renew_authority(project: ServerProject, signer: Authority, end: datetime) -> str:
    certificate, own = signer.own_certificate(), project.identity.authority
    sites = [site for site in project.sites.glob("[!.]*") if site.is_dir()]
    for folder in (*sites, project.certificates):
        _write(folder / "ca.crt", certificate)
    return f"carry {own} to all sites, as ca.crt, before {end:%Y-%m-%d}; it is not secret"


def _renew_server(project: ServerProject, signer: Authority) -> str:
    secret, path = project.identity.key, project.identity.certificate
    key = read_key(secret) if secret.exists() else make_key(secret)
    certificate = signer.server_certificate(key.public_key(), [project.network.host])
    _write(path, certificate)
    return f"{path} is new; it counts from the server's next start at the latest"


def _renew_sites(
    project: ServerProject, signer: Authority, roster: dict[str, list[str]], names: list[str]
) -> list[str]:
    """Renew sites' certificates; they are on the roster before anybody can show them."""
    made, told = {}, []
    for name in names:
        path = project.site_certificates / f"{name}.crt"
        end = read_certificate(path).not_valid_after_utc
        made[name] = signer.site_certificate(public_key_of(path), name)
        roster[name].append(fingerprint_of(made[name]))
        told.append(
            f"carry {path} to {name}, as site.crt, before {end:%Y-%m-%d}; it is not secret and "
            "used from the next connection"
        )
    write_roster(project, roster)
    for name, certificate in made.items():
        handed = project.sites / name
        for folder, file in ((project.site_certificates, f"{name}.crt"), (handed, "site.crt")):
            if folder.is_dir():
                _write(folder / file, certificate)
    return told


def _write(path: Path, certificate: bytes) -> None:
    try:
        with replacing(path) as beside:
            beside.write_bytes(certificate)
    except OSError as error:
        raise ProjectError(f"{path} cannot be written: {error.strerror}; run it again") from None
