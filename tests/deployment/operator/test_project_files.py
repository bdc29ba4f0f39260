"""`deploy init`: a folder that is complete, that reads back, and whose secrets are secret."""

import shutil
import stat
from pathlib import Path

import pytest

from fedcompass.deployment.addresses import split_address
from fedcompass.deployment.operator.certificates import make_authority, read_certificate
from fedcompass.deployment.operator.project_files import add_sites, init_project, renew_certificate
from fedcompass.deployment.private_files import check_private
from fedcompass.deployment.server.project import ServerProject
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.errors import ProjectError, SettingsError


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "federation"
    init_project(folder, "fl.example:9092", ["north", "south"])
    return folder


def test_a_new_project_reads_back(project: Path) -> None:
    read = ServerProject(project)
    read.check_secrets()
    assert read.network.address == "fl.example:9092"
    assert list(read.public_keys()) == ["north", "south"]
    assert read.federation.min_clients == 2
    assert read.app.is_file()
    assert "fl.example" in read_certificate(read.secrets / "server.pem").names


def test_each_site_gets_a_folder_that_is_all_it_needs(project: Path) -> None:
    for number, name in enumerate(("north", "south")):
        site = SiteFolder(project / "sites" / name)
        assert site.settings.server == "fl.example:9092"
        assert site.settings.settings == {"number": number, "sites": 2}
        assert site.key is not None
        check_private(site.key)
        assert site.authority is not None
        assert site.authority.is_file()
        assert site.app.is_file()
        files = {path.name for path in site.folder.iterdir()}
        assert {"README.md", "fedcompass-site.service"} <= files


def test_every_file_with_a_private_key_or_token_is_for_its_owner_only(project: Path) -> None:
    secret = [
        path
        for path in project.rglob("*")
        if path.is_file()
        and (path.suffix in (".token", ".secret") or b"PRIVATE KEY" in path.read_bytes())
    ]
    assert len(secret) == 6  # CA, server, two sites, token, secret
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}
    assert stat.S_IMODE((project / "server").stat().st_mode) == 0o700


def test_two_sites_have_different_keys_and_the_server_has_only_public_ones(project: Path) -> None:
    keys = [(project / "keys" / f"{name}.pub").read_text() for name in ("north", "south")]
    assert len(set(keys)) == 2
    assert all(key.startswith("ecdsa-sha2-nistp384 ") for key in keys)
    assert not (project / "sites" / "north" / "ca.key").exists()


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ProjectError, match="not empty"):
        init_project(tmp_path, "fl.example:9092", ["north"])
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_site_can_be_added_and_none_twice(project: Path) -> None:
    add_sites(project, ["east"])
    assert list(ServerProject(project).public_keys()) == ["east", "north", "south"]
    assert SiteFolder(project / "sites" / "east").settings.settings == {"number": 2, "sites": 3}
    with pytest.raises(ProjectError, match="exists already"):
        add_sites(project, ["north"])


def test_the_certificate_is_renewed_by_the_same_authority(project: Path) -> None:
    old = (project / "server" / "server.pem").read_bytes()
    renew_certificate(project)
    assert (project / "server" / "server.pem").read_bytes() != old
    assert stat.S_IMODE((project / "server" / "server.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((project / "server" / "server.key.old").stat().st_mode) == 0o600


def test_a_removed_site_that_is_added_again_gets_the_number_that_is_free(project: Path) -> None:
    add_sites(project, ["west"])
    (project / "keys" / "south.pub").unlink()
    shutil.rmtree(project / "sites" / "south")
    add_sites(project, ["south", "east"])
    names = ("north", "south", "west", "east")
    numbers = [SiteFolder(project / "sites" / name).settings.settings["number"] for name in names]
    assert numbers == [0, 1, 2, 3]
    assert SiteFolder(project / "sites" / "east").settings.settings["sites"] == 4


def test_numbers_of_folders_that_are_gone_are_not_given_again(project: Path) -> None:
    shutil.rmtree(project / "sites" / "north")
    add_sites(project, ["west"])
    assert SiteFolder(project / "sites" / "west").settings.settings == {"number": 2, "sites": 3}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_without_the_authoritys_key_nothing_is_renewed_and_nothing_changes(project: Path) -> None:
    private = project / "server"
    (private / "ca.key").rename(project / "offline.key")
    before = contents(private)
    with pytest.raises(ProjectError, match=r"ca\.key is not here; bring it back"):
        renew_certificate(project)
    assert contents(private) == before


def test_another_federations_authority_renews_nothing(project: Path, tmp_path: Path) -> None:
    make_authority(tmp_path, "other")
    private = project / "server"
    (private / "ca.key").write_bytes((tmp_path / "ca.key").read_bytes())
    before = contents(private)
    with pytest.raises(ProjectError, match=r"not the key of ca\.pem"):
        renew_certificate(project)
    assert contents(private) == before


def test_a_certificate_that_is_gone_is_made_again(project: Path) -> None:
    for name in ("server.key", "server.pem"):
        (project / "server" / name).unlink()
    renew_certificate(project)
    ServerProject(project).check_secrets()
    assert "fl.example" in read_certificate(project / "server" / "server.pem").names
    assert not [path for path in contents(project / "server") if path.startswith(".")]


def test_the_sites_readme_says_what_leaves_the_site(project: Path) -> None:
    told = (project / "sites" / "north" / "README.md").read_text()
    for fact in ("samples", "steps", "seconds", "loss", "name", "version", "300 characters"):
        assert fact in told


def test_a_secret_that_others_can_read_is_refused(project: Path) -> None:
    (project / "server" / "control.token").chmod(0o644)
    with pytest.raises(ProjectError, match=r"chmod 600 .*control\.token"):
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


def test_no_tls_is_for_loopback_only(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"127\.0\.0\.1 only"):
        init_project(tmp_path / "a", "fl.example:9092", ["north"], insecure=True)
    init_project(tmp_path / "b", "127.0.0.1:9092", ["north"], insecure=True)
    assert SiteFolder(tmp_path / "b" / "sites" / "north").key is None
    toml = tmp_path / "b" / "deployment.toml"
    toml.write_text(toml.read_text().replace("127.0.0.1:9092", "fl.example:9092"))
    with pytest.raises(SettingsError, match=r"127\.0\.0\.1 only"):
        ServerProject(tmp_path / "b")


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
