"""Who takes part: sites are added and revoked, also while the server runs."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from fedcompass.deployment.certificate_dates import PublicKey, public_key_of
from fedcompass.deployment.operator.certificates import read_key
from fedcompass.deployment.operator.project_files import certify_site, write_site
from fedcompass.deployment.server.project import ServerProject
from fedcompass.deployment.site.site_folder import SiteFolder, valid_name
from fedcompass.deployment.wire.site_roster import RosterFile, fingerprint_of, roster_text
from fedcompass.errors import FedcompassError, ProjectError
from fedcompass.runs.files import FolderLock, write_whole

__all__ = ["add_site", "locked_roster", "revoke_site", "write_roster"]


@contextmanager
def locked_roster(project: ServerProject) -> Iterator[dict[str, list[str]]]:
    """The fingerprints of each site, to change; one command at a time has them.

    Raises:
        ProjectError: the roster is missing or damaged.
    """
    with FolderLock(project.certificates, wait=True):
        yield RosterFile(project.roster).roster.fingerprints


def write_roster(project: ServerProject, sites: dict[str, list[str]]) -> None:
    """Replace the roster by one of these sites' fingerprints.

    Raises:
        RunFolderError: it cannot be written; the old one is still there.
    """
    write_whole(project.roster, roster_text(sites))


def add_site(folder: Path, name: str, own_key: PublicKey | None = None) -> Path:
    """Give a new site, or one that was revoked, a certificate; the folder it is handed.

    It is handed a new key, too, unless it keeps one, of which `own_key` is the public half.

    Raises:
        ProjectError: there is no federation, the site takes part already, its key is another's or
            was revoked, or the CA's key is not here; the roster is as it was.
    """
    project, name = ServerProject(folder), valid_name(name)
    with locked_roster(project) as roster:
        if name in roster:
            raise ProjectError(
                f"{name} is on the roster already; for a new key and certificate first: "
                f"fedcompass deploy revoke-site {folder} {name}"
            )
        if own_key is not None:
            _check_fresh(project, own_key)
        roster[name] = [_make_site(project, name, list(roster), own_key)]
        write_roster(project, roster)
    return folder / "sites" / name


def _make_site(
    project: ServerProject, name: str, listed: list[str], own_key: PublicKey | None
) -> str:
    """Make the folder that a site is handed, all at once; its certificate's fingerprint."""
    project.sites.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=project.sites, prefix=".") as beside:
        new = Path(beside) / name
        new.mkdir(mode=0o700)
        taken = _numbers(project, listed)
        number = next(number for number in count() if number not in taken)
        of = max(taken | {number}) + 1
        write_site(project.folder, new, project.network.address, number, of)
        fingerprint = certify_site(project.folder, new, own_key)
        _put_in_place(new, project.sites / name)
    if own_key is not None:
        _remove_other_key(project.sites / name / "site.key", own_key)
    return fingerprint


def _check_fresh(project: ServerProject, own_key: PublicKey) -> None:
    """Refuse the key of another site, and one that was revoked: somebody else may have it."""
    for path in sorted(project.certificates.glob("*/*.crt")):
        if public_key_of(path) == own_key:
            raise ProjectError(
                f"the request is for the key of {path}; at the site, move site.key away and make "
                "a new request: fedcompass deploy request FOLDER"
            )


def _numbers(project: ServerProject, listed: list[str]) -> set[int]:
    """The sites' numbers, by which the example app splits its data."""
    present = {path.parent.name for path in project.sites.glob("[!.]*/site.toml")}
    found, unknown = set(), False
    for name in sorted(present | set(listed)):
        try:
            number = SiteFolder(project.sites / name).settings.settings.get("number")
        except FedcompassError:  # its folder was handed over and removed
            number = None
        if isinstance(number, int):
            found.add(number)
        unknown |= not isinstance(number, int)
    return found | set(range(len(listed))) if unknown else found


def _put_in_place(new: Path, site: Path) -> None:
    """Make a site's folder; one that is there keeps all but its keys and certificates."""
    if not site.exists():
        new.rename(site)
        return
    for path in new.iterdir():
        if path.suffix in (".key", ".crt"):
            path.replace(site / path.name)


def _remove_other_key(path: Path, own_key: PublicKey) -> None:
    """Remove an earlier key, so that nobody copies it over the site's own."""
    try:
        other = read_key(path).public_key() != own_key
    except ProjectError:
        other = True
    if other:
        path.unlink(missing_ok=True)


def revoke_site(folder: Path, name: str) -> None:
    """Take a site off the roster: the server ends its calls within seconds.

    Raises:
        ProjectError: it is not on it.
    """
    project = ServerProject(folder)
    with locked_roster(project) as roster:
        project.check_listed(name)
        del roster[name]
        write_roster(project, roster)
        _keep_revoked(project.site_certificates / f"{name}.crt")


def _keep_revoked(certificate: Path) -> None:
    """Move a certificate to certificates/revoked/, so that its key is known there."""
    if not certificate.exists():
        return
    revoked = certificate.parent.parent / "revoked"
    revoked.mkdir(exist_ok=True)
    start = fingerprint_of(certificate.read_bytes())[:16]
    certificate.replace(revoked / f"{certificate.stem}-{start}.crt")
