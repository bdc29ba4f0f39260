"""A federation's own CA: what it signs is trusted, what is private stays private."""

import ssl
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedcompass.deployment import certificate_dates
from fedcompass.deployment.certificate_dates import check_dates, hosts_of, read_certificate
from fedcompass.deployment.operator.certificates import (
    make_authority,
    make_server_certificate,
    make_site_certificate,
)
from fedcompass.deployment.private_files import write_secret
from fedcompass.errors import ProjectError


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    make_authority(tmp_path, "trial")
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def handshake(authority: Path, server: Path, host: str) -> None:
    """Do a TLS handshake in memory; raises what the client would."""
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    accepting.load_cert_chain(server / "server.crt", server / "server.key")
    asking = ssl.create_default_context(cafile=str(authority / "ca.crt"))
    inwards, outwards = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(inwards, outwards, server_hostname=host)
    peer = accepting.wrap_bio(outwards, inwards, server_side=True)
    for _ in range(4):
        for side in (client, peer):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.version() is not None


def test_a_server_certificate_is_trusted_by_who_has_the_authoritys(authority: Path) -> None:
    make_server_certificate(authority, authority, ["fl.example", "10.1.2.3"])
    for host in ("fl.example", "10.1.2.3", "localhost", "127.0.0.1"):
        handshake(authority, authority, host)


def test_another_host_name_is_not_trusted(authority: Path) -> None:
    make_server_certificate(authority, authority, ["fl.example"])
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname mismatch"):
        handshake(authority, authority, "other.example")


def test_an_expired_certificate_is_not_trusted(authority: Path) -> None:
    make_server_certificate(authority, authority, ["fl.example"], days=-1)
    assert read_certificate(authority / "server.crt").not_valid_after_utc < datetime.now(UTC)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(authority, authority, "fl.example")


def test_another_authoritys_certificate_is_not_trusted(authority: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    make_authority(other, "impostor")
    make_server_certificate(other, other, ["fl.example"])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(authority, other, "fl.example")


def test_private_files_are_for_their_owner_only(authority: Path) -> None:
    make_server_certificate(authority, authority, ["fl.example"])
    make_site_certificate(authority, authority, "north")
    for name in ("ca.key", "server.key", "site.key"):
        assert mode(authority / name) == 0o600
    for path in authority.glob("*.crt"):
        assert b"PRIVATE" not in path.read_bytes()


def test_a_secret_is_never_overwritten(tmp_path: Path) -> None:
    write_secret(tmp_path / "token", b"first")
    with pytest.raises(ProjectError, match="exists already"):
        write_secret(tmp_path / "token", b"second")
    assert (tmp_path / "token").read_bytes() == b"first"


def test_dates_that_do_not_hold_today_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_authority(tmp_path, "lab")
    make_server_certificate(tmp_path, tmp_path, [], days=30)
    assert hosts_of(check_dates(tmp_path / "server.crt", "renew it"))[0] == "localhost"
    for days, told in ((31, r"expired on .*; renew it"), (-1, "is this machine's clock right")):
        moment = datetime.now(UTC) + timedelta(days=days)
        fixed = SimpleNamespace(now=lambda _, moment=moment: moment)
        monkeypatch.setattr(certificate_dates, "datetime", fixed)
        with pytest.raises(ProjectError, match=told):
            check_dates(tmp_path / "server.crt", "renew it")


def test_what_is_not_a_certificate_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("hello")
    with pytest.raises(ProjectError, match="not a PEM certificate"):
        read_certificate(tmp_path / "ca.crt")
    with pytest.raises(ProjectError, match="No such file"):
        read_certificate(tmp_path / "missing.pem")


def test_without_the_extra_each_part_names_what_to_install() -> None:
    modules = ["certificates", "checks", "demo", "project_files", "renewal", "site_admission"]
    program = "\n".join(
        [
            "import sys",
            "from importlib import import_module",
            "sys.modules['cryptography'] = None",
            f"for name in {[*modules, 'site_requests']}:",
            "    try:",
            "        import_module(f'fedcompass.deployment.operator.{name}')",
            "    except Exception as error:",
            "        print(error)",
        ]
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100
    )
    lines = told.stdout.splitlines()
    assert len(lines) == len(modules) + 1
    assert all("needs cryptography, which is not installed" in line for line in lines)
    assert all("[deploy]'" in line for line in lines)
