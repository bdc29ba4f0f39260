"""`deploy init`: a folder that is complete, that reads back, and whose secrets are secret."""

import stat
from pathlib import Path

import pytest

from fedcompass.deployment.addresses import split_address
from fedcompass.deployment.certificate_dates import hosts_of, read_certificate
from fedcompass.deployment.operator import project_files
from fedcompass.deployment.operator.project_files import init_project
from fedcompass.deployment.private_files import check_private
from fedcompass.deployment.server.project import ServerProject
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.wire.site_roster import RosterFile, fingerprint_of
from fedcompass.errors import ProjectError, SettingsError

SITES = ("north", "south")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "federation"
    init_project(folder, "fl.example:9092", ["north", "south"])
    return folder


def test_a_new_project_reads_back(project: Path) -> None:
    read = ServerProject(project)
    read.check_secrets()
    assert read.network.address == "fl.example:9092"
    assert set(RosterFile(read.roster).roster.names.values()) == {"north", "south"}
    assert read.federation.min_clients == 2
    assert read.app.is_file()
    assert "fl.example" in hosts_of(read_certificate(read.identity.certificate))


def test_each_site_gets_a_folder_that_is_all_it_needs(project: Path) -> None:
    for number, name in enumerate(("north", "south")):
        site = SiteFolder(project / "sites" / name)
        assert site.settings.server == "fl.example:9092"
        assert site.settings.settings == {"number": number, "sites": 2}
        assert site.identity is not None
        check_private(site.identity.key)
        authority, certificate, _ = site.identity.read()
        assert authority == (project / "certificates" / "ca.crt").read_bytes()
        assert RosterFile(project / "roster.toml").roster.names[fingerprint_of(certificate)] == name
        assert site.app.is_file()
        files = {path.name for path in site.folder.iterdir()}
        assert {"README.md", "fedcompass-site.service"} <= files


def test_every_file_with_a_private_key_is_for_its_owner_only(project: Path) -> None:
    secret = [
        path
        for path in project.rglob("*")
        if path.is_file() and b"PRIVATE KEY" in path.read_bytes()
    ]
    assert len(secret) == 4  # CA, server, two sites
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}
    for name in ("certificates", "sites"):
        assert stat.S_IMODE((project / name).stat().st_mode) == 0o700


def test_a_site_is_handed_no_secret_but_its_own(project: Path) -> None:
    keys = {name: (project / "sites" / name / "site.key").read_bytes() for name in SITES}
    assert len(set(keys.values())) == 2
    assert {path.name for path in (project / "sites" / "north").glob("*.key")} == {"site.key"}
    public = (project / "certificates" / "sites").iterdir()
    assert all(b"PRIVATE" not in path.read_bytes() for path in public)


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ProjectError, match="not empty"):
        init_project(tmp_path, "fl.example:9092", ["north"])
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("there", [False, True])
def test_nothing_is_half_made_when_it_fails_midway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(project_files, "certify_site", full_disk)
    folder = tmp_path / "new"
    if there:
        folder.mkdir()
    with pytest.raises(ProjectError, match=f"{folder} cannot be made: No space left on device"):
        init_project(folder, "fl.example:9092", ["north"])
    assert [path.name for path in tmp_path.rglob("*")] == (["new"] if there else [])


def test_a_federation_at_an_ipv6_address_has_it_in_its_certificate(tmp_path: Path) -> None:
    init_project(tmp_path / "six", "[2001:db8::7]:9092", ["north"])
    project = ServerProject(tmp_path / "six")
    assert "2001:db8::7" in hosts_of(read_certificate(project.identity.certificate))


def test_a_folder_of_an_earlier_version_says_what_to_do(project: Path) -> None:
    (project / "roster.toml").unlink()
    with pytest.raises(ProjectError, match=r"an earlier version made it.*deploy init"):
        ServerProject(project)


def test_the_sites_readme_says_what_leaves_the_site(project: Path) -> None:
    told = (project / "sites" / "north" / "README.md").read_text()
    for fact in ("samples", "steps", "seconds", "loss", "name", "version", "300 characters"):
        assert fact in told


def test_a_secret_that_others_can_read_is_refused(project: Path) -> None:
    (project / "certificates" / "server.key").chmod(0o644)
    with pytest.raises(ProjectError, match=r"chmod 600 .*server\.key"):
        ServerProject(project).check_secrets()


@pytest.mark.parametrize("address", ["fl.example", "fl.example:", ":9092", "fl.example:0", "a:b"])
def test_an_address_that_is_none_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(SettingsError, match="allowed: host:port"):
        init_project(tmp_path / "new", address, ["north"])
    assert not (tmp_path / "new").exists()


def test_an_ipv6_address_is_understood() -> None:
    assert split_address("[::1]:9092") == ("::1", 9092)


@pytest.mark.parametrize("name", ["", "North", "a/b", "..", "-x", "x" * 41])
def test_a_name_that_cannot_be_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="site name"):
        init_project(tmp_path / "new", "fl.example:9092", [name])


def test_a_folder_of_an_earlier_version_is_told_what_to_do(project: Path) -> None:
    site = project / "sites" / "north"
    (site / "site.crt").unlink()
    (site / "ca.crt").rename(site / "ca.pem")
    with pytest.raises(ProjectError, match=r"of an earlier version.*; ask the fed"):
        SiteFolder(site)
    (project / "roster.toml").unlink()
    with pytest.raises(ProjectError, match=r"an earlier version made it.*; make a new folder"):
        ServerProject(project)


def test_an_unknown_table_or_key_is_named(project: Path) -> None:
    toml = project / "deployment.toml"
    good = toml.read_text()
    toml.write_text(good + "\n[extra]\nx = 1\n")
    with pytest.raises(SettingsError, match=r"\[extra\]; allowed tables"):
        ServerProject(project)
    toml.write_text(good.replace("listen =", "lissten ="))
    with pytest.raises(SettingsError, match="did you mean 'listen'"):
        ServerProject(project)


def test_a_folder_that_is_no_project_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="deploy init"):
        ServerProject(tmp_path)
    with pytest.raises(ProjectError, match=r"site\.toml"):
        SiteFolder(tmp_path)
