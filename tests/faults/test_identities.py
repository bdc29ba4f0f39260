"""Sites with the wrong certificate, and servers whose certificate is not to be trusted."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.faults.federation_files import text_of
from tests.faults.loopback import Loopback
from tests.faults.tally import Row
from tests.faults.toy_federation import ToySites
from typer.testing import CliRunner

from fedcompass.aggregation.layout import Layout
from fedcompass.cli.app import app
from fedcompass.deployment.app.app_file import load_app
from fedcompass.deployment.operator.certificates import (
    make_authority,
    make_server_certificate,
    make_site_certificate,
)
from fedcompass.deployment.operator.checks import check_site
from fedcompass.deployment.operator.site_admission import add_site, revoke_site
from fedcompass.deployment.server.grpc_transport import GrpcTransport
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.wire.connections import Identity
from fedcompass.deployment.wire.site_roster import fingerprint_of

STRATEGY = {"name": "fedasync", "steps": 5}


def new_certificate(federation: Loopback, authority: Path, days: int = 30) -> None:
    folder = federation.site_folder("stranger")
    for name in ("site.key", "site.crt"):
        (folder / name).unlink()
    make_site_certificate(authority, folder, "stranger", days)


def not_listed(federation: Loopback) -> None:
    """A certificate of the federation's own CA that is not on the roster."""
    new_certificate(federation, federation.project / "certificates")


def expired(federation: Loopback) -> None:
    """One that is on the roster, and ran out yesterday."""
    new_certificate(federation, federation.project / "certificates", days=-1)
    list_stranger(federation)


def list_stranger(federation: Loopback) -> None:
    """Put the certificate that the stranger shows on the roster."""
    shown = (federation.site_folder("stranger") / "site.crt").read_bytes()
    roster = federation.project / "roster.toml"
    others = [line for line in roster.read_text().splitlines() if "stranger" not in line]
    roster.write_text("\n".join([*others, f'stranger = ["{fingerprint_of(shown)}"]', ""]))


def of_another_authority(federation: Loopback) -> None:
    """One of a CA of the same name."""
    other = federation.home / "other"
    other.mkdir()
    make_authority(other, federation.project.name)
    new_certificate(federation, other)


def self_signed(federation: Loopback) -> None:
    """One that nobody but itself vouches for: a CA's own, under the site's name."""
    folder = federation.site_folder("stranger")
    other = federation.home / "other"
    other.mkdir()
    make_authority(other, "stranger")
    for made, name in (("ca.crt", "site.crt"), ("ca.key", "site.key")):
        (folder / name).write_bytes((other / made).read_bytes())
    list_stranger(federation)


@pytest.mark.slow_faults  # test_identities_on_the_wire.py has it without processes
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (not_listed, "this certificate is not on the server's roster"),
        (expired, "site.crt expired on"),
        (of_another_authority, "site.crt is not signed by ca.crt"),
        (self_signed, "site.crt is not signed by ca.crt"),
    ],
)
def test_a_site_with_a_wrong_certificate_is_turned_away(
    fault: Callable[[Loopback], None], told: str, row: Row
) -> None:
    with Loopback({"known": 0.05, "stranger": 0.0}, strategy=STRATEGY, min_clients=1) as federation:
        fault(federation)
        log = federation.site_folder("stranger") / "state" / "site.log"
        federation.start()
        federation.until("the other works", lambda: federation.accepted("known") > 1)
        federation.until("it is turned away", lambda: told in text_of(log))
        row.injected = 1
        federation.until_more("accepted", "known")
        federation.finish(row)
        assert "connected as" not in log.read_text(encoding="utf-8")
        assert not [line for line in federation.audit() if line.get("who") == "stranger"]


@pytest.mark.slow_faults  # likewise
def test_a_site_that_is_revoked_while_the_server_runs_is_cut_off_until_it_is_added_anew(
    row: Row,
) -> None:
    with Loopback({"near": 0.02, "far": 0.05}, strategy=STRATEGY) as federation:
        federation.start()
        federation.until_more("accepted", "far")
        revoke_site(federation.project, "far")
        row.injected = 1
        federation.until_more("revoked", "far")
        before = federation.accepted("far")
        federation.until_more("accepted", "near", lines=2)
        assert federation.accepted("far") == before
        federation.sites.pop("far").stop()
        add_site(federation.project, "far")
        federation.start_site("far")
        federation.until_more("accepted", "far")
        assert federation.server is not None
        assert federation.server.restarted == 0
        federation.finish(row)


def test_a_copy_of_a_sites_folder_is_told_of_also_when_it_takes_over(row: Row) -> None:
    with ToySites({"near": 0.05, "far": 0.05}, strategy=STRATEGY) as federation:
        federation.start()
        federation.until_more("accepted", "far")
        assert federation.audit("joined", "far")[0]["address"].startswith("127.0.0.1:")
        copy = federation.home / "copy"
        shutil.copytree(federation.site_folder("far"), copy)
        federation.sites["copy"] = federation.honest_site(SiteFolder(copy))
        federation.sites["copy"].start()
        row.injected = 1
        federation.until_more("second process", "far")
        assert "turned away" in federation.audit("second process")[0]["why"]
        federation.sites.pop("far").stop()
        taken = "whose place it has taken"
        federation.until(
            "it is told", lambda: taken in federation.audit("second process")[-1]["why"]
        )
        federation.until_more("accepted", "far")
        shown = CliRunner().invoke(app, ["deploy", "status", str(federation.project)]).output
        assert re.search(rf"s  far second process: from 127.0.0.1:\d+; .*{taken}; stop one", shown)
        federation.start_site("far")
        federation.until_more("second process", "far")
        federation.finish(row)


@pytest.mark.slow_faults  # test_wire_admission.py has it without processes
def test_a_site_that_is_started_anew_is_told_of_as_such(row: Row) -> None:
    with ToySites({"near": 0.05, "far": 0.05}, strategy=STRATEGY) as federation:
        federation.start()
        federation.until_more("accepted", "far")
        federation.kill("site", "far")
        federation.until_more("connected anew", "far")
        row.injected = 1
        federation.finish(row)
        assert not federation.audit("second process")


def test_a_site_refuses_an_expired_certificate_and_anothers_until_the_right_one_is_back(
    row: Row,
) -> None:
    with ToySites({"careful": 0.05}, strategy=STRATEGY) as federation:
        log = federation.site_folder("careful") / "state" / "site.log"
        federation.start_site("careful")
        wrongs = {"expired": "certificate has expired", "impostor": "unable to get local issuer"}
        for name, wrong in wrongs.items():
            with impostor(federation, name):
                federation.until("a check sees it", sees(federation, wrong))
                federation.until("the site has tried", says(log, f"is not right: {wrong}"))
            assert "connected as" not in log.read_text(encoding="utf-8")
            row.injected += 1
        federation.start_server()
        federation.until("the site works", lambda: federation.accepted("careful") > 0)
        federation.finish(row)


def sees(federation: Loopback, problem: str) -> Callable[[], bool]:
    return lambda: problem in connection(federation)


def says(log: Path, text: str) -> Callable[[], bool]:
    return lambda: text in text_of(log)


def connection(federation: Loopback) -> str:
    """What `fedcompass deploy check` says to the site about its connection."""
    findings = check_site(federation.site_folder("careful"))
    return next(finding.says for finding in findings if finding.what == "connection")


@contextmanager
def impostor(federation: Loopback, name: str) -> Iterator[None]:
    """A server whose certificate ran out yesterday, or is of another CA of the same name."""
    folder, own = federation.home / name, federation.project / "certificates"
    folder.mkdir()
    if name == "expired":
        make_server_certificate(own, folder, ["127.0.0.1"], days=-1)
    else:
        make_authority(folder, federation.project.name)
        make_server_certificate(folder, folder, ["127.0.0.1"])
    transport = GrpcTransport(
        folder / "state",
        federation.project / "roster.toml",
        Layout.of(load_app(federation.project / "app.py").model()),
        Identity(own / "ca.crt", folder / "server.crt", folder / "server.key"),
        federation.address,
    )
    try:
        yield
    finally:
        transport.close()
