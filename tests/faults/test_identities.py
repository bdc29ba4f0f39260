"""Sites with the wrong key, and servers whose certificate is not to be trusted."""

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.faults.lone_supernode import LoneSuperNode
from tests.faults.loopback import Loopback
from tests.faults.tally import Row

from fedcompass.deployment.flower_engine.superlink import SuperLinkFiles, superlink_program
from fedcompass.deployment.operator.certificates import (
    make_authority,
    make_flower_key,
    make_server_certificate,
)
from fedcompass.deployment.operator.checks import check_site
from fedcompass.deployment.supervision import Child, Program

STRATEGY = {"name": "fedasync", "steps": 5}
REFUSED = "CERTIFICATE_VERIFY_FAILED"
STRANGER = "tests.faults.malicious_apps:nan"  # needs no worker; it never gets a message


def test_a_site_with_a_wrong_key_is_turned_away(row: Row) -> None:
    with Loopback(
        {"known": 0.05, "stranger": 0.0},
        client_apps={"stranger": STRANGER},
        strategy=STRATEGY,
        min_clients=1,
    ) as federation:
        folder = federation.site_folder("stranger")
        (folder / "flower.key").unlink()
        make_flower_key(folder / "flower.key", folder / "other.pub")
        federation.start()
        stranger = federation.sites["stranger"]
        assert isinstance(stranger, LoneSuperNode)
        federation.until(
            "it is turned away", lambda: "Exit Code: 30" in stranger.log.read_text(encoding="utf-8")
        )
        row.injected = 1
        federation.until("the other works", lambda: federation.accepted("known") > 1)
        federation.finish(row)
        assert not [line for line in federation.audit() if line.get("who") == "stranger"]


def test_a_site_refuses_an_expired_certificate_and_anothers_until_the_right_one_is_back(
    row: Row,
) -> None:
    with Loopback({"careful": 0.05}, strategy=STRATEGY) as federation:
        log = federation.site_folder("careful") / "state" / "supernode.log"
        federation.start_site("careful")
        for fault, problem in ((expired, "expired"), (impostor, "unable to get local issuer")):
            superlink = Child(fault(federation))
            superlink.start()
            try:
                federation.until("a check sees it", sees(federation, problem))
                federation.until("the site has tried", has_more(log, REFUSED))
            finally:
                superlink.stop()
            assert "SuperNode ID" not in log.read_text(encoding="utf-8")
            row.injected += 1
        federation.start_server()
        federation.until("the site works", lambda: federation.accepted("careful") > 0)
        federation.finish(row)


def sees(federation: Loopback, problem: str) -> Callable[[], bool]:
    return lambda: problem in connection(federation)


def has_more(log: Path, text: str) -> Callable[[], bool]:
    before = log.read_text(encoding="utf-8").count(text)
    return lambda: log.read_text(encoding="utf-8").count(text) > before


def connection(federation: Loopback) -> str:
    """What `fedcompass deploy check` says to the site about its connection."""
    findings = check_site(federation.site_folder("careful"))
    return next(finding.says for finding in findings if finding.what == "connection")


def expired(federation: Loopback) -> Program:
    """A server whose certificate ran out yesterday."""
    return _superlink(federation, "expired", federation.project / "certificates", days=-1)


def impostor(federation: Loopback) -> Program:
    """A server with the right names and a certificate of another authority of the same name."""
    other = federation.home / "other"
    other.mkdir()
    make_authority(other, federation.project.name)
    return _superlink(federation, "impostor", other, days=30)


def _superlink(federation: Loopback, name: str, authority: Path, days: int) -> Program:
    folder = federation.home / name
    folder.mkdir()
    for file in ("control.token", "executor.secret"):
        shutil.copy(federation.project / "server" / file, folder / file)
    shutil.copy(authority / "ca.crt", folder / "ca.crt")
    make_server_certificate(authority, folder, ["127.0.0.1"], days=days)
    port = int(federation.address.rpartition(":")[2])
    return superlink_program(SuperLinkFiles(folder, folder), "127.0.0.1", port, folder)
