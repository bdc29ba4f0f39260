"""`deploy readmit`: an operator lets a quarantined site back in while the server runs."""

import getpass
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.exactly_once import audit, check_exactly_once
from tests.deployment.fake_network import (
    Clock,
    FakeNetwork,
    federation,
    run_until,
    settings,
    sites,
)

from fedcompass.deployment.operator.readmit import request_readmission
from fedcompass.deployment.server.federation import Federation
from fedcompass.deployment.server.readmission import put_request, take_requests
from fedcompass.deployment.wire.transport import Reply
from fedcompass.errors import RunFolderError, SettingsError

pytestmark = pytest.mark.usefixtures("quick_disk")


def wrong(reply: Reply, _: int) -> Reply:
    return replace(reply, steps_done=-1)


def with_a_quarantined_site(folder: Path) -> tuple[Federation, FakeNetwork]:
    network = FakeNetwork(Clock(), sites(0.1, 0.2))
    network.sites[102].spoil = wrong
    running = federation(folder, network, settings(max_updates=60))
    run_until(running, lambda _: len(audit(folder, "quarantined")) == 1)
    network.sites[102].spoil = None
    return running, network


def asked(folder: Path, site: str, running: Federation) -> dict[str, Any]:
    """The server's answer; its loop goes on while the operator waits."""

    def pause(_: float) -> None:
        running.step()
        running._pause(running._until_next())

    return request_readmission(folder, site, pause=pause)


def test_a_quarantined_site_is_readmitted_while_the_server_runs(tmp_path: Path) -> None:
    running, network = with_a_quarantined_site(tmp_path)
    before = len(network.sites[102].tasks)
    answer = asked(tmp_path, "site-2", running)
    assert (answer["what"], answer["who"]) == ("readmitted", "site-2")
    assert answer["by"] == getpass.getuser()
    assert answer in audit(tmp_path, "readmitted")
    summary = running.run()
    assert len(network.sites[102].tasks) > before
    assert summary.sites["site-2"].updates > 0
    assert len(audit(tmp_path, "readmitted")) == 1
    check_exactly_once(tmp_path, running.settings)


def test_a_readmission_in_the_same_moment_as_an_answer_keeps_the_order_of_events(
    tmp_path: Path,
) -> None:
    running, network = with_a_quarantined_site(tmp_path)

    def ticking() -> float:  # as a real clock does, between two looks at it
        network.clock.now += 0.001
        return network.clock.now

    running._clock = ticking
    assert network.on_its_way
    put_request(tmp_path, "site-2", "anna")
    network.clock.now += 60.0  # an answer is here, and it is time to look for requests
    before = len(audit(tmp_path, "accepted"))
    running.step()
    assert len(audit(tmp_path, "readmitted")) == 1
    assert len(audit(tmp_path, "accepted")) == before + 1
    running.run()
    check_exactly_once(tmp_path, running.settings)


def test_a_site_that_is_away_is_readmitted_and_behind_sudo_the_person_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_USER", "anna")
    running, network = with_a_quarantined_site(tmp_path)
    network.connected.discard(102)
    run_until(running, lambda _: len(audit(tmp_path, "left")) == 1)
    answer = asked(tmp_path, "site-2", running)
    assert (answer["what"], answer["by"]) == ("readmitted", "anna")
    tasks = len(network.sites[102].tasks)
    network.connected.add(102)
    run_until(running, lambda _: len(network.sites[102].tasks) > tasks)
    running.close()


def test_a_readmission_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    running, network = with_a_quarantined_site(tmp_path)
    asked(tmp_path, "site-2", running)
    running.close()
    again = federation(tmp_path, network, running.settings, resume=True)
    assert not again.coordinator.scheduler.roster.members["site-2"].quarantined
    again.run()
    check_exactly_once(tmp_path, running.settings)


@pytest.mark.parametrize(
    ("site", "why"), [("site-1", "it is not in quarantine"), ("nobody", "it takes no part now")]
)
def test_where_there_is_nothing_to_lift_it_is_said(tmp_path: Path, site: str, why: str) -> None:
    running, _ = with_a_quarantined_site(tmp_path)
    answer = asked(tmp_path, site, running)
    assert (answer["what"], answer["why"]) == ("not readmitted", why)
    assert audit(tmp_path, "readmitted") == []
    running.close()


def test_a_request_that_no_server_takes_up_is_withdrawn(tmp_path: Path) -> None:
    running, _ = with_a_quarantined_site(tmp_path)
    running.close()
    with pytest.raises(RunFolderError, match="no server took it up within 0 s"):
        request_readmission(tmp_path, "site-2", patience=0.0)
    assert list((tmp_path / "readmit").iterdir()) == []


def test_a_request_is_for_its_user_alone_and_handed_out_once(tmp_path: Path) -> None:
    seen: list[int] = []

    def pause(_: float) -> None:
        paths = (tmp_path / "readmit", tmp_path / "readmit" / "south")
        seen.extend(stat.S_IMODE(path.stat().st_mode) for path in paths)
        (tmp_path / "readmit" / ".north.1").touch()  # one that is being written
        assert take_requests(tmp_path) == [("south", getpass.getuser())]
        assert take_requests(tmp_path) == []
        (tmp_path / "audit.jsonl").write_text('{"what": "readmitted", "who": "south"}\n')

    assert request_readmission(tmp_path, "south", pause=pause)["who"] == "south"
    assert seen == [0o700, 0o600]


@pytest.mark.parametrize("name", ["", "../keys", ".hidden", "a/b", "x" * 101])
def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="is no site's name"):
        request_readmission(tmp_path, name)
    assert list(tmp_path.iterdir()) == []
