"""Sites are added and revoked one at a time, as a whole or not at all."""

import base64
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from fedcompass.deployment.certificate_dates import public_key_of
from fedcompass.deployment.operator.project_files import init_project
from fedcompass.deployment.operator.site_admission import add_site, revoke_site
from fedcompass.deployment.operator.site_requests import (
    key_digest,
    make_request,
    read_request,
)
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.wire.site_roster import RosterFile, fingerprint_of
from fedcompass.errors import ProjectError, SettingsError


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "federation"
    init_project(folder, "fl.example:9092", ["north", "south"])
    return folder


def listed(project: Path) -> dict[str, list[str]]:
    return RosterFile(project / "roster.toml").roster.fingerprints


def print_of(certificate: Path) -> str:
    return fingerprint_of(certificate.read_bytes())


def settings(project: Path, name: str) -> dict[str, object]:
    return SiteFolder(project / "sites" / name).settings.settings


def test_a_site_that_is_added_gets_a_whole_folder_and_is_on_the_roster(project: Path) -> None:
    folder = add_site(project, "east")
    names = {path.name for path in (project / "sites" / "north").iterdir()}
    assert {path.name for path in folder.iterdir()} == names
    assert settings(project, "east") == {"number": 2, "sites": 3}
    assert list(listed(project)) == ["north", "south", "east"]
    assert listed(project)["east"] == [print_of(folder / "site.crt")]
    assert print_of(project / "certificates" / "sites" / "east.crt") == listed(project)["east"][0]


def test_a_site_is_not_added_twice(project: Path) -> None:
    before = (project / "roster.toml").read_text()
    with pytest.raises(ProjectError, match=r"north is on the roster already.*revoke-site"):
        add_site(project, "north")
    with pytest.raises(SettingsError, match="site name 'a/b'"):
        add_site(project, "a/b")
    assert (project / "roster.toml").read_text() == before


def test_without_the_authoritys_key_no_site_is_added_and_nothing_is_left(project: Path) -> None:
    (project / "certificates" / "ca.key").rename(project / "offline.key")
    before = sorted(project.rglob("*"))
    with pytest.raises(ProjectError, match=r"ca\.key is not here; bring it back"):
        add_site(project, "east")
    assert sorted(project.rglob("*")) == before
    assert "east" not in listed(project)


def test_a_revoked_site_is_off_the_roster_and_the_others_stay(project: Path) -> None:
    north = listed(project)["north"]
    revoke_site(project, "south")
    assert listed(project) == {"north": north}
    assert not (project / "certificates" / "sites" / "south.crt").exists()
    with pytest.raises(ProjectError, match=r"'south' is not on the roster of .*; on it: north"):
        revoke_site(project, "south")


def test_a_revoked_name_gets_a_new_key_and_keeps_its_other_files(project: Path) -> None:
    old = listed(project)["south"]
    key = (project / "sites" / "south" / "site.key").read_bytes()
    (project / "sites" / "south" / "app.py").write_text("# mine")
    revoke_site(project, "south")
    folder = add_site(project, "south")
    assert listed(project)["south"] == [print_of(folder / "site.crt")] != old
    assert (folder / "site.key").read_bytes() != key
    assert (folder / "app.py").read_text() == "# mine"
    assert settings(project, "south") == {"number": 1, "sites": 2}


def test_a_removed_site_that_is_added_again_gets_the_number_that_is_free(project: Path) -> None:
    add_site(project, "west")
    revoke_site(project, "south")
    shutil.rmtree(project / "sites" / "south")
    for name in ("south", "east"):
        add_site(project, name)
    names = ("north", "south", "west", "east")
    assert [settings(project, name)["number"] for name in names] == [0, 1, 2, 3]
    assert settings(project, "east")["sites"] == 4


def test_numbers_of_folders_that_are_gone_are_not_given_again(project: Path) -> None:
    shutil.rmtree(project / "sites" / "north")
    add_site(project, "west")
    assert settings(project, "west") == {"number": 2, "sites": 3}


def test_a_site_is_added_where_all_folders_were_handed_over_and_removed(project: Path) -> None:
    shutil.rmtree(project / "sites")
    add_site(project, "west")
    assert settings(project, "west") == {"number": 2, "sites": 3}
    assert stat.S_IMODE((project / "sites").stat().st_mode) == 0o700


def test_a_site_that_made_its_own_key_gets_a_certificate_for_it_and_no_key(
    project: Path, tmp_path: Path
) -> None:
    digest = make_request(tmp_path / "west")
    key = read_request(tmp_path / "west" / "site.csr")
    assert key_digest(key) == digest
    revoke_site(project, "south")
    folder = add_site(project, "south", key)  # which has an earlier key in it
    assert public_key_of(folder / "site.crt") == key
    assert not (folder / "site.key").exists()


def test_a_request_for_a_key_that_another_has_or_that_was_revoked_is_refused(
    project: Path, tmp_path: Path
) -> None:
    make_request(tmp_path / "west")
    key = read_request(tmp_path / "west" / "site.csr")
    add_site(project, "west", key)
    with pytest.raises(ProjectError, match=r"for the key of .*certificates/sites/west\.crt"):
        add_site(project, "east", key)
    revoke_site(project, "west")
    with pytest.raises(ProjectError, match=r"for the key of .*certificates/revoked/west-"):
        add_site(project, "west", key)
    assert list(listed(project)) == ["north", "south"]
    (tmp_path / "west" / "site.key").unlink()
    make_request(tmp_path / "west")
    add_site(project, "west", read_request(tmp_path / "west" / "site.csr"))


def test_sites_added_at_the_same_time_are_all_on_the_roster(project: Path) -> None:
    names = [f"lab-{number}" for number in range(8)]
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(partial(add_site, project), names))
    assert set(listed(project)) == {"north", "south", *names}
    numbers = [settings(project, name)["number"] for name in listed(project)]
    assert numbers == list(range(10))


def test_a_request_keeps_the_key_that_is_there_and_is_repeated_at_will(tmp_path: Path) -> None:
    first = make_request(tmp_path / "west")
    assert stat.S_IMODE((tmp_path / "west" / "site.key").stat().st_mode) == 0o600
    assert b"PRIVATE" not in (tmp_path / "west" / "site.csr").read_bytes()
    assert make_request(tmp_path / "west") == first


def test_what_is_no_request_is_refused_in_one_line(tmp_path: Path) -> None:
    make_request(tmp_path / "west")
    whole = (tmp_path / "west" / "site.csr").read_bytes()
    der = x509.load_pem_x509_csr(whole).public_bytes(serialization.Encoding.DER)
    forged = der[:-1] + bytes([der[-1] ^ 1])  # signed by nobody who has the key
    pem = b"-----BEGIN CERTIFICATE REQUEST-----\n%s-----END CERTIFICATE REQUEST-----\n"
    curve = bytes.fromhex("2a8648ce3d0201")  # the object identifier of an EC key
    unknown = der.replace(curve, curve[:-1] + b"\x7f")  # an algorithm that nobody knows
    assert unknown != der
    start = der.index(b"\x02\x01\x00")  # its version, 0
    later = der[: start + 2] + b"\x01" + der[start + 3 :]
    wrong = (forged, unknown, later)
    for content in (b"hello", *(pem % base64.encodebytes(bad) for bad in wrong)):
        (tmp_path / "bad.csr").write_bytes(content)
        with pytest.raises(ProjectError, match=r"bad\.csr is no certificate request"):
            read_request(tmp_path / "bad.csr")
    with pytest.raises(ProjectError, match="No such file"):
        read_request(tmp_path / "missing.csr")
    with pytest.raises(SettingsError, match="site name 'Two Words'"):
        make_request(tmp_path / "Two Words")


def test_a_damaged_roster_is_told_and_not_written_over(project: Path) -> None:
    (project / "roster.toml").write_text("north = [")
    with pytest.raises(ProjectError, match=r"roster .*roster\.toml: not TOML"):
        add_site(project, "east")
    assert (project / "roster.toml").read_text() == "north = ["
    assert not (project / "sites" / "east").exists()
