"""A federation's own files on a real wire: who gets in, who is shut out, and what is renewed."""

import asyncio
import shutil
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from tests.deployment.wire.loopback_wire import (
    Caller,
    Papers,
    attending,
    hello,
    play,
    serving,
    to_end,
    until,
)

from fedcompass.deployment.operator.certificates import make_key
from fedcompass.deployment.operator.project_files import init_project
from fedcompass.deployment.operator.renewal import renew_certificates
from fedcompass.deployment.operator.site_admission import add_site, revoke_site
from fedcompass.deployment.operator.site_requests import make_request, read_request
from fedcompass.deployment.server.project import ServerProject
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.wire import visitors
from fedcompass.deployment.wire.connections import Identity, open_channel


class Federation(Papers):
    """What `deploy init` wrote, used as server and sites do."""

    def __init__(self, folder: Path, *sites: str) -> None:
        init_project(folder, "127.0.0.1:9092", sites)
        self.folder, self.project = folder, ServerProject(folder)
        self.server, self.roster = self.project.identity, self.project.roster

    def identity(self, site: str) -> Identity:
        identity = SiteFolder(self.folder / "sites" / site).identity
        assert identity is not None
        return identity


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(tmp_path / "f", "north", "south")


async def refusal(identity: Identity, address: str) -> tuple[grpc.StatusCode, str]:
    async with open_channel(address, identity) as channel:
        call = await Caller(channel).attend(hello())
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await to_end(call)
    return raised.value.code(), raised.value.details()


def self_signed(folder: Path, name: str) -> Identity:
    """A certificate with a site's name that nobody but its owner has signed."""
    folder.mkdir()
    key = make_key(folder / "site.key")
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=30))
        .sign(key, hashes.SHA256())
    )
    (folder / "site.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return Identity(folder / "ca.crt", folder / "site.crt", folder / "site.key")


def test_a_self_signed_certificate_and_the_servers_own_are_refused_in_the_handshake(
    federation: Federation, tmp_path: Path
) -> None:
    stranger = self_signed(tmp_path / "stranger", "north")
    shutil.copy(federation.server.authority, stranger.authority)

    async def scene() -> None:
        async with serving(federation, tmp_path / "state") as server:
            for identity in (stranger, federation.server):
                code, _ = await refusal(identity, server.address)
                assert code is grpc.StatusCode.UNAVAILABLE
            assert server.service.sites == {}

    play(scene())


def test_a_site_cannot_pose_as_the_server_with_its_own_certificate(
    federation: Federation, tmp_path: Path
) -> None:
    federation.server = federation.identity("south")

    async def scene() -> None:
        async with serving(federation, tmp_path / "state") as impostor:
            code, _ = await refusal(federation.identity("north"), impostor.address)
            assert code is grpc.StatusCode.UNAVAILABLE
            assert impostor.service.sites == {}

    play(scene())


def test_a_site_is_added_revoked_and_added_anew_while_the_server_runs(
    federation: Federation, tmp_path: Path
) -> None:
    async def scene() -> None:
        async with serving(federation, tmp_path / "state") as server:
            sites = server.service.sites
            stolen = tmp_path / "stolen"
            shutil.copytree(add_site(federation.folder, "east"), stolen)
            async with attending(federation, "east", tmp_path / "one", server.address):
                await until(lambda: "east" in sites)
                revoke_site(federation.folder, "east")
                await until(lambda: "east" not in sites)
            add_site(federation.folder, "east")
            async with attending(federation, "east", tmp_path / "two", server.address):
                await until(lambda: "east" in sites)
                old = Identity(stolen / "ca.crt", stolen / "site.crt", stolen / "site.key")
                _, told = await refusal(old, server.address)
                assert "not on the server's roster" in told

    play(scene())


def test_a_site_that_keeps_its_own_key_is_admitted_by_its_request(
    federation: Federation, tmp_path: Path
) -> None:
    home = tmp_path / "east"
    make_request(home)
    handed = add_site(federation.folder, "east", read_request(home / "site.csr"))
    assert not (handed / "site.key").exists()
    shutil.copytree(handed, home, dirs_exist_ok=True)
    shutil.copytree(home, handed, dirs_exist_ok=True)  # the helper below looks for sites there

    async def scene() -> None:
        async with (
            serving(federation, tmp_path / "state") as server,
            attending(federation, "east", tmp_path / "one", server.address),
        ):
            await until(lambda: "east" in server.service.sites)

    play(scene())


def test_a_site_goes_on_with_its_old_certificate_and_changes_to_the_new_one_when_it_likes(
    federation: Federation, tmp_path: Path
) -> None:
    certificate = federation.identity("north").certificate
    old = certificate.read_bytes()

    async def scene() -> None:
        async with serving(federation, tmp_path / "state") as server:
            async with attending(federation, "north", tmp_path / "one", server.address) as north:
                await until(lambda: north.link.name == "north")
                renew_certificates(federation.folder, everything=True)
                new = certificate.read_bytes()
                certificate.write_bytes(old)  # what the site still has
                await asyncio.sleep(1.5)  # the server has read the roster again
                assert "north" in server.service.sites
            async with attending(federation, "north", tmp_path / "one", server.address) as north:
                await until(lambda: north.link.name == "north")
            certificate.write_bytes(new)
            async with attending(federation, "north", tmp_path / "one", server.address) as north:
                await until(lambda: north.link.name == "north")

    play(scene())


@pytest.mark.parametrize("roster", [None, "north = " + "[" * 5000], ids=["whole", "damaged"])
def test_a_site_whose_certificate_expires_meanwhile_is_cut_off_and_told(
    roster: str | None, federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = datetime.now(UTC) + timedelta(days=400)

    async def scene() -> None:
        async with (
            serving(federation, tmp_path / "state") as server,
            attending(federation, "north", tmp_path / "one", server.address) as north,
        ):
            await until(lambda: "north" in server.service.sites)
            if roster is not None:
                federation.roster.write_text(roster)
                await asyncio.sleep(1.5)  # the server has read it
            monkeypatch.setattr(visitors, "datetime", SimpleNamespace(now=lambda _: later))
            await until(lambda: not server.service.sites, 10)
            await until(lambda: any("certificate has expired" in line for line in north.notices))

    play(scene())


def test_a_running_server_shows_its_renewed_certificate_to_the_next_who_connects(
    federation: Federation, tmp_path: Path
) -> None:
    async def scene() -> None:
        async with (
            serving(federation, tmp_path / "state") as server,
            attending(federation, "north", tmp_path / "one", server.address) as north,
        ):
            await until(lambda: north.link.name == "north")
            before = await asyncio.to_thread(shown, federation, server.port)
            renew_certificates(federation.folder, everything=True)
            after = await asyncio.to_thread(shown, federation, server.port)
            renewed = x509.load_pem_x509_certificate(federation.server.certificate.read_bytes())
            assert before != after == renewed.serial_number
            federation.server.certificate.write_text("half a certifi")
            assert await asyncio.to_thread(shown, federation, server.port) == after
            assert "north" in server.service.sites

    play(scene())


def shown(federation: Federation, port: int) -> int:
    """The serial number of the certificate that a server shows."""
    context = ssl.create_default_context(cafile=str(federation.server.authority))
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        certificate = secured.getpeercert(binary_form=True)
    assert certificate is not None
    return x509.load_der_x509_certificate(certificate).serial_number
