"""`deploy renew`, and warnings weeks before a certificate ends."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from fedcompass.deployment.certificate_dates import (
    expiry_warnings,
    hosts_of,
    read_certificate,
)
from fedcompass.deployment.operator import renewal
from fedcompass.deployment.operator.certificates import Authority, make_authority, read_key
from fedcompass.deployment.operator.project_files import init_project
from fedcompass.deployment.operator.renewal import renew_certificates
from fedcompass.deployment.server.project import ServerProject
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.wire.site_roster import RosterFile, fingerprint_of
from fedcompass.errors import ProjectError

NOTHING = "nothing expires within 56 days; --all renews all"


@pytest.fixture
def project(tmp_path: Path) -> ServerProject:
    init_project(tmp_path / "f", "fl.example:9092", ["north", "south"])
    return ServerProject(tmp_path / "f")


def contents(project: ServerProject) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in project.folder.rglob("*") if path.is_file()}


def end_of(path: Path) -> datetime:
    return read_certificate(path).not_valid_after_utc


def let_expire(project: ServerProject, name: str, days: int) -> None:
    """Give a site a certificate for its key that lasts `days`."""
    site = project.sites / name
    key = read_key(site / "site.key").public_key()
    certificate = Authority(project.certificates).site_certificate(key, name, days)
    for path in (site / "site.crt", project.site_certificates / f"{name}.crt"):
        path.write_bytes(certificate)
    roster = RosterFile(project.roster).roster.fingerprints
    roster[name] = [fingerprint_of(certificate)]
    project.roster.write_text("".join(f"{site} = {prints}\n" for site, prints in roster.items()))


def test_what_lasts_longer_than_eight_weeks_is_left_alone(project: ServerProject) -> None:
    before = contents(project)
    assert renew_certificates(project.folder) == [NOTHING]
    assert contents(project) == before


def test_a_sites_certificate_is_renewed_for_its_key_and_the_old_one_stays_listed(
    project: ServerProject,
) -> None:
    let_expire(project, "south", 20)
    before = contents(project)
    ends = end_of(project.site_certificates / "south.crt")
    (old,) = RosterFile(project.roster).roster.fingerprints["south"]
    (told,) = renew_certificates(project.folder)
    new = project.site_certificates / "south.crt"
    assert told == (
        f"carry {new} to south, as site.crt, before {ends:%Y-%m-%d}; it is not secret and used "
        "from the next connection"
    )
    assert end_of(new) > datetime.now(UTC) + timedelta(days=390)
    assert RosterFile(project.roster).roster.fingerprints["south"] == [
        old,
        fingerprint_of(new.read_bytes()),
    ]
    changed = {path for path, content in contents(project).items() if before[path] != content}
    assert changed == {new, project.sites / "south" / "site.crt", project.roster}
    assert renew_certificates(project.folder) == [NOTHING]


def test_a_site_whose_folder_was_handed_over_is_renewed_too(project: ServerProject) -> None:
    let_expire(project, "south", 20)
    for path in (project.sites / "south").iterdir():
        path.unlink()
    (project.sites / "south").rmdir()
    assert len(renew_certificates(project.folder)) == 1
    assert end_of(project.site_certificates / "south.crt") > datetime.now(UTC) + timedelta(390)


def test_a_site_whose_certificate_is_not_here_is_told_and_the_others_are_renewed(
    project: ServerProject,
) -> None:
    (project.site_certificates / "south.crt").unlink()
    told = renew_certificates(project.folder, everything=True)
    assert "south is not renewed" in told[0]
    assert [line for line in told if "to north, as site.crt" in line]
    assert len(RosterFile(project.roster).roster.fingerprints["south"]) == 1


def test_everything_is_renewed_on_demand_and_no_key_changes(project: ServerProject) -> None:
    before = contents(project)
    told = renew_certificates(project.folder, everything=True)
    assert [line.split()[0] for line in told] == [
        "carry",
        str(project.identity.certificate),
        "carry",
        "carry",
    ]
    after = contents(project)
    assert set(after) == set(before)
    for path, content in after.items():
        same = path.suffix != ".crt" and path != project.roster
        assert (content == before[path]) is same, path
    assert (project.sites / "north" / "ca.crt").read_bytes() == after[project.identity.authority]


def test_a_renewed_authority_is_trusted_with_what_was_signed_before_and_the_reverse(
    project: ServerProject,
) -> None:
    old_authority = project.identity.authority.read_bytes()
    old_server = project.identity.certificate.read_bytes()
    renew_certificates(project.folder, everything=True)
    new_authority = project.identity.authority.read_bytes()
    for authority, server in (
        (new_authority, old_server),
        (old_authority, project.identity.certificate.read_bytes()),
    ):
        issuer = x509.load_pem_x509_certificate(authority)
        x509.load_pem_x509_certificate(server).verify_directly_issued_by(issuer)


def test_an_authority_is_renewed_before_what_it_signs_could_outlive_it(
    project: ServerProject,
) -> None:
    certificate = Authority(project.certificates).own_certificate(days=400)
    project.identity.authority.write_bytes(certificate)
    (told,) = renew_certificates(project.folder)
    assert "to all sites, as ca.crt" in told
    assert end_of(project.identity.authority) > datetime.now(UTC) + timedelta(days=3600)


@pytest.mark.parametrize("name", ["server.key", "server.crt"])
def test_a_server_certificate_that_is_gone_is_made_again(project: ServerProject, name: str) -> None:
    (project.certificates / name).unlink()
    (told,) = renew_certificates(project.folder)
    assert "server.crt is new" in told
    project.check_secrets()
    assert stat.S_IMODE(project.identity.key.stat().st_mode) == 0o600
    assert "fl.example" in hosts_of(read_certificate(project.identity.certificate))
    assert renew_certificates(project.folder) == [NOTHING]


def test_a_new_address_gets_a_new_server_certificate(project: ServerProject) -> None:
    toml = project.folder / "deployment.toml"
    toml.write_text(toml.read_text().replace("fl.example", "[2001:db8::7]"))
    renew_certificates(project.folder)
    assert "2001:db8::7" in hosts_of(read_certificate(project.identity.certificate))


def _without_key(project: ServerProject, _: Path) -> None:
    (project.certificates / "ca.key").unlink()


def _with_anothers_key(project: ServerProject, elsewhere: Path) -> None:
    make_authority(elsewhere, "other")
    (project.certificates / "ca.key").write_bytes((elsewhere / "ca.key").read_bytes())


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (_without_key, r"ca\.key is not here; bring it back"),
        (_with_anothers_key, r"ca\.key is not the key of ca\.crt"),
    ],
)
def test_without_the_federations_own_ca_key_nothing_is_renewed_and_nothing_changes(
    project: ServerProject, tmp_path: Path, spoil: object, told: str
) -> None:
    assert callable(spoil)
    spoil(project, tmp_path)
    before = contents(project)
    with pytest.raises(ProjectError, match=told):
        renew_certificates(project.folder, everything=True)
    assert contents(project) == before


def test_a_sites_new_certificate_is_on_the_roster_before_it_is_anywhere_else(
    project: ServerProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    let_expire(project, "south", 20)
    monkeypatch.setattr(renewal, "_write", killed)
    with pytest.raises(KeyboardInterrupt):
        renew_certificates(project.folder)
    assert len(RosterFile(project.roster).roster.fingerprints["south"]) == 2
    monkeypatch.undo()
    assert len(renew_certificates(project.folder)) == 1  # it is due still


def test_a_certificate_is_warned_about_from_eight_weeks_before_its_end(
    project: ServerProject,
) -> None:
    path = project.identity.certificate
    end = end_of(path)
    for before, told in (
        (timedelta(weeks=8, seconds=1), []),
        (timedelta(days=20, hours=1), [f"{path} expires on {end:%Y-%m-%d}, in 20 days; renew it"]),
        (timedelta(days=1, hours=1), [f"{path} expires on {end:%Y-%m-%d}, in 1 day; renew it"]),
        (timedelta(hours=1), [f"{path} expires on {end:%Y-%m-%d}, in 0 days; renew it"]),
        (timedelta(0), [f"{path} expired on {end:%Y-%m-%d}; renew it"]),
    ):
        assert expiry_warnings([path], end - before, "renew it") == told


def test_the_server_warns_of_all_and_a_site_of_its_own(project: ServerProject) -> None:
    now = datetime.now(UTC)
    assert project.expiry_warnings(now) == []
    later = now + timedelta(days=390)
    warned = project.expiry_warnings(later)
    assert [line.split()[0].rpartition("/")[2] for line in warned] == [
        "server.crt",
        "north.crt",
        "south.crt",
    ]
    assert all(line.endswith(f"run: fedcompass deploy renew {project.folder}") for line in warned)
    site = SiteFolder(project.sites / "south")
    assert site.expiry_warnings(now) == []
    (told,) = site.expiry_warnings(later)
    assert "south/site.crt expires on" in told
    assert told.endswith("ask the federation's operator for a new one")


def test_a_certificate_that_cannot_be_read_is_a_warning_and_no_crash(tmp_path: Path) -> None:
    (tmp_path / "a.crt").write_text("no certificate")
    told = expiry_warnings([tmp_path / "a.crt", tmp_path / "b.crt"], datetime.now(UTC), "renew it")
    assert ["not a PEM certificate" in told[0], "No such file" in told[1]] == [True, True]
