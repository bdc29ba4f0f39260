"""A server that dies at any moment loses nothing and doubles nothing; so does a full disk."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.deployment.exactly_once import audit, check_exactly_once, records
from tests.deployment.fake_network import (
    Clock,
    FakeNetwork,
    FakeSite,
    federation,
    run_until,
    settings,
    sites,
)
from tests.deployment.faulty_disk import FaultyDisk, Killed, no_file_longer_than
from torch import nn

from fedcompass.aggregation.layout import Layout
from fedcompass.coordinator import Update
from fedcompass.deployment.server.accepted_updates import AcceptedUpdates
from fedcompass.deployment.server.federation import Federation
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.wire.arriving import write_hashed
from fedcompass.deployment.wire.payloads import PayloadFile, payload_bytes, payload_pieces
from fedcompass.deployment.wire.transport import NodeId
from fedcompass.errors import CheckpointError, FedcompassError
from fedcompass.runs.folder import RunFolder

STRATEGIES: list[dict[str, Any]] = [
    {"name": "fedcompass", "min_steps": 2, "max_steps": 10},
    {"name": "fedcompass+m", "min_steps": 2, "max_steps": 10},
    {"name": "fedcompass+n", "min_steps": 2, "max_steps": 10},
    {"name": "fedavg", "steps": 4},
    {"name": "fedadam", "steps": 4},
    {"name": "fedasync", "steps": 4},
    {"name": "fedbuff", "steps": 4, "buffer_size": 3},
    {"name": "fedat", "steps": 4},
    {"name": "fedat", "steps": 4, "profiling": "tasks"},
    {"name": "metronome", "min_steps": 2, "max_steps": 10, "absent": "remember"},
    {"name": "fedcompass", "min_steps": 2, "max_steps": 10, "calibrated": True},
    {"name": "metronome", "min_steps": 2, "max_steps": 10, "since_last": True},
    {"name": "fedcompass", "min_steps": 2, "max_steps": 10, "staleness_window": 2},
]


class Server:
    """One run of a federation that is killed and resumed."""

    def __init__(
        self, base: Path, disk: FaultyDisk, chosen: FederationSettings, *, files: bool = True
    ) -> None:
        self.base, self.disk, self.chosen = base, disk, chosen
        uploads = base / "uploads" if files else None
        self.network = FakeNetwork(Clock(), sites(0.1, 0.25, 0.6, uploads=uploads))
        push = self.network.push
        self.network.push = self._counted(push)  # type: ignore[method-assign]
        self.folder = base / "0"
        self.deaths = 0

    def _counted(self, push: Any) -> Any:
        def counted(*arguments: Any) -> Any:
            message = push(*arguments)
            self.disk.moment("push")
            return message

        return counted

    def run(self, kill_at: int, torn: float = 1.0) -> bool:
        """Run, or resume, to the end or to the given moment; says whether it got to the end."""
        left = self.base / str(self.deaths + 1)
        self.disk.kill(kill_at, self.folder, left, torn)
        running: Federation | None = None
        try:
            resume = (self.folder / "deployment.toml").exists()
            running = federation(self.folder, self.network, self.chosen, resume=resume)
            running.run()
        except Killed:
            if running is not None:
                running.close()
            self.deaths, self.folder = self.deaths + 1, left
            self.network.restart()
            return False
        self.disk.fail_at = 0  # it was over before that moment
        return True


def check_steps_before(server: Server) -> None:
    """Every task that a site ever got says how many steps it was given before."""
    given: dict[str, int] = {}
    before: dict[int, int] = {}
    for record in records(server.folder):
        if record.get("command") == "StartTraining":
            client, task = record["client"], record["task"]
            before[task] = given.get(client, 0)
            given[client] = before[task] + record["steps"]
    for site in server.network.sites.values():
        assert site.told
        assert [task.steps_before for task in site.told] == [before[t.task] for t in site.told]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    return FaultyDisk(monkeypatch)


@pytest.mark.parametrize(
    ("strategy", "updates", "files", "between"),
    [(STRATEGIES[0], 3, True, 2), (STRATEGIES[0], 4, True, 8), (STRATEGIES[6], 1, False, 2)],
    ids=["fedcompass", "fedcompass without a checkpoint", "fedbuff in memory"],
)
def test_a_server_killed_at_any_write_goes_on_with_every_update_exactly_once(
    tmp_path: Path,
    disk: FaultyDisk,
    monkeypatch: pytest.MonkeyPatch,
    strategy: dict[str, Any],
    updates: int,
    files: bool,
    between: int,
) -> None:
    monkeypatch.setattr("fedcompass.deployment.server.durable_run._UPDATES_BETWEEN", between)
    chosen = settings(strategy, max_updates=updates)
    undisturbed = Server(tmp_path / "whole", disk, chosen, files=files)
    assert undisturbed.run(0)
    moments = disk.moments
    assert moments > 30
    for moment in range(1, moments + 1):
        server = Server(tmp_path / str(moment), disk, chosen, files=files)
        assert not server.run(moment)
        if not (server.folder / "summary.json").exists():
            assert server.run(0)
        check_exactly_once(server.folder, chosen)
        check_steps_before(server)
        shutil.rmtree(tmp_path / str(moment))


@hypothesis_settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    strategy=st.sampled_from(STRATEGIES),
    kills=st.lists(st.tuples(st.integers(1, 60), st.floats(0, 1)), min_size=1, max_size=5),
    files=st.booleans(),
)
def test_a_server_killed_again_and_again_even_while_it_resumes_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    disk: FaultyDisk,
    strategy: dict[str, Any],
    kills: list[tuple[int, float]],
    files: bool,
) -> None:
    chosen = settings(strategy, max_updates=5)
    server = Server(tmp_path_factory.mktemp("killed"), disk, chosen, files=files)
    for moment, torn in kills:
        if server.run(moment, torn) or (server.folder / "summary.json").exists():
            break
    if not (server.folder / "summary.json").exists():
        assert server.run(0)
    check_exactly_once(server.folder, chosen)
    check_steps_before(server)


def test_a_full_disk_stops_the_server_with_one_line_and_nothing_is_lost(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    chosen = settings(max_updates=2)
    undisturbed = Server(tmp_path / "whole", disk, chosen)
    undisturbed.run(0)
    moments = disk.moments
    for moment in range(1, moments + 1):
        server = Server(tmp_path / str(moment), disk, chosen)
        disk.fill_up(moment)
        try:
            running = federation(server.folder, server.network, chosen)
        except FedcompassError as error:
            check_line(error)
        else:
            try:
                running.run()
            except FedcompassError as error:
                check_line(error)
            except OSError:
                assert disk.moments == moment  # a push: the engine's failure, not the disk's
            running.close()
        server.network.restart()
        if not (server.folder / "summary.json").exists():
            resume = (server.folder / "deployment.toml").exists()
            federation(server.folder, server.network, chosen, resume=resume).run()
        check_exactly_once(server.folder, chosen)
        shutil.rmtree(tmp_path / str(moment))


def test_an_update_whose_last_line_does_not_fit_on_the_disk_is_not_accepted(
    tmp_path: Path,
) -> None:
    folder, layout = RunFolder(tmp_path / "run"), Layout.of(nn.Linear(100, 100))
    folder.make()
    updates, start = AcceptedUpdates(folder), layout.empty()
    start.trainable.zero_()
    end = start.clone()
    end.trainable.uniform_()
    update = Update(client="a", task=1, version=0, steps_done=2, tensors=end)

    def uploaded() -> PayloadFile:
        path = tmp_path / "upload"
        return PayloadFile(
            path, "model", write_hashed(path, payload_pieces(layout, "model", end))[0]
        )

    with (
        no_file_longer_than(payload_bytes(layout, "model") + 10),
        pytest.raises(CheckpointError, match="Nothing was accepted; free some space"),
    ):
        updates.keep(update, "run-1", uploaded())
    assert list((tmp_path / "run" / "updates").iterdir()) == []
    updates.keep(update, "run-1", uploaded())
    kept = updates.tensors(update, "run-1", layout, start, "model")
    assert torch.equal(kept.trainable, end.trainable)


def check_line(error: FedcompassError) -> None:
    assert "No space left on device" in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: str(s["name"]))
@pytest.mark.usefixtures("quick_disk")
def test_a_resumed_server_has_the_same_groups_paces_buffers_and_optimizer_state(
    tmp_path: Path, strategy: dict[str, Any]
) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.25, 0.6))
    chosen = settings(strategy, max_updates=50)
    running = federation(tmp_path / "run", network, chosen)
    for stop in (2, 3, 5, 6):
        run_until(running, lambda f, stop=stop: f.coordinator.version >= stop)  # type: ignore[misc]
        for _ in range(stop):
            running.step()
            network.clock.pause(0.1)
        shutil.copytree(tmp_path / "run", tmp_path / str(stop))
        again = federation(tmp_path / str(stop), network, chosen, resume=True)
        tensors, facts = running.coordinator.state({})
        tensors_again, facts_again = again.coordinator.state({})
        assert facts_again == facts
        assert list(tensors_again) == list(tensors)
        for name, tensor in tensors.items():
            assert torch.equal(tensors_again[name], tensor), name
        assert again.now() == pytest.approx(running.coordinator.scheduler.now)
        again.close()
    running.close()


@pytest.mark.usefixtures("quick_disk")
def test_sites_that_are_still_there_go_on_with_their_tasks_after_a_resume(tmp_path: Path) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.25, 0.6))
    chosen = settings(max_updates=30)
    running = federation(tmp_path, network, chosen)
    run_until(running, lambda f: f.coordinator.version >= 5)
    held = {o.client: o.task for o in running._run.outstanding()}
    running.close()
    network.restart()
    network.clock.now += 3600  # the server was down for an hour: that time does not count
    before = {node: len(site.tasks) for node, site in network.sites.items()}
    again = federation(tmp_path, network, chosen, resume=True)
    assert again.now() == pytest.approx(running.coordinator.scheduler.now)
    again.run()
    for node, site in network.sites.items():
        if site.name in held:
            assert site.tasks[before[node]][1] == held[site.name]
    assert len(audit(tmp_path, "joined")) == 3
    assert [line["who"] for line in audit(tmp_path, "returned")] == ["site-1", "site-2", "site-3"]
    check_exactly_once(tmp_path, chosen)


@pytest.mark.usefixtures("quick_disk")
def test_a_resumed_group_still_has_its_deadline(tmp_path: Path) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.25, 0.6))
    chosen = settings(max_updates=30)
    running = federation(tmp_path, network, chosen)
    run_until(running, lambda f: f.coordinator.version >= 5 and bool(f._run.deadlines))
    version, deadlines = running.coordinator.version, dict(running._run.deadlines)
    running.close()
    network.restart()
    network.connected = set()
    again = federation(tmp_path, network, chosen, resume=True)
    assert again._run.deadlines == deadlines
    run_until(again, lambda f: f.now() > max(deadlines.values()) + 1)
    assert again._run.deadlines == {}
    assert again.coordinator.version >= version
    again.close()


@pytest.mark.usefixtures("quick_disk")
def test_a_site_that_does_not_return_after_a_resume_counts_as_gone(tmp_path: Path) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.25, 0.6))
    chosen = settings({"name": "fedavg", "steps": 4}, max_updates=8)
    running = federation(tmp_path, network, chosen)
    run_until(running, lambda f: f.coordinator.version >= 3)
    running.close()
    network.restart()
    network.connected.discard(103)
    federation(tmp_path, network, chosen, resume=True).run()
    (left,) = audit(tmp_path, "left")
    assert (left["who"], left["why"]) == (
        "site-3",
        "it did not return after the server's restart",
    )
    check_exactly_once(tmp_path, chosen)


@pytest.mark.usefixtures("quick_disk")
def test_sites_with_other_node_numbers_are_known_by_their_names_after_a_resume(
    tmp_path: Path,
) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.25))
    chosen = settings(max_updates=12)
    running = federation(tmp_path, network, chosen)
    run_until(running, lambda f: f.coordinator.version >= 3)
    running.close()
    moved: dict[NodeId, FakeSite] = {int(node) + 700: site for node, site in network.sites.items()}
    federation(tmp_path, FakeNetwork(network.clock, moved), chosen, resume=True).run()
    assert len(audit(tmp_path, "returned")) == 2
    assert len(audit(tmp_path, "joined")) == 2
    check_exactly_once(tmp_path, chosen)


@pytest.mark.usefixtures("quick_disk")
def test_another_strategy_or_a_lost_update_is_told_when_resuming(tmp_path: Path) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.25))
    running = federation(tmp_path, network, settings({"name": "fedbuff", "buffer_size": 50}))
    run_until(running, lambda _: len(list((tmp_path / "updates").iterdir())) >= 2)
    running.close()
    other = settings({"name": "fedbuff", "buffer_size": 9})
    with pytest.raises(FedcompassError, match=r"buffer_size is 50 in the checkpoint and 9"):
        federation(tmp_path, network, other, resume=True)
    next((tmp_path / "updates").iterdir()).unlink()
    with pytest.raises(FedcompassError, match=r"safetensors is not there"):
        federation(tmp_path, network, settings({"name": "fedbuff", "buffer_size": 50}), resume=True)


def test_one_checkpoint_covers_eight_updates_and_follows_the_audit_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def note(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)

    monkeypatch.setattr("os.fsync", note)
    network = FakeNetwork(Clock(), sites(0.1, 0.1, uploads=tmp_path / "uploads"))
    chosen = settings({"name": "fedavg", "steps": 4}, max_updates=9)
    federation(tmp_path / "run", network, chosen).run()
    checkpoint, audit_log = ".checkpoint.safetensors.partial", "audit.jsonl"
    before = [synced[i - 1] for i, name in enumerate(synced) if name == checkpoint]
    assert before == ["journal.jsonl"] * 3  # at the start, after 8 updates and after 16
    assert synced.count(audit_log) == 3
    assert sum(name.endswith(".payload.partial") for name in synced) == 18  # each update once
    assert not list((tmp_path / "uploads").iterdir())  # moved, not copied
    check_exactly_once(tmp_path / "run", chosen)
