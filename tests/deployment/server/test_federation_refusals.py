"""What a site can send that is wrong, and that nothing comes of it but a line in the audit log."""

from collections.abc import Callable
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.deployment.exactly_once import audit, check_exactly_once
from tests.deployment.fake_network import (
    Clock,
    FakeNetwork,
    SentModel,
    federation,
    run_until,
    settings,
    sites,
)

from fedcompass.aggregation.layout import FlatState
from fedcompass.deployment.operator.run_view import RunView
from fedcompass.deployment.server.audit_words import in_words
from fedcompass.deployment.server.readmission import put_request
from fedcompass.deployment.wire.transport import Remark, Reply
from fedcompass.runs.replay import replay

pytestmark = pytest.mark.usefixtures("quick_disk")


def saying(**facts: Any) -> Callable[[Reply], Reply]:
    return lambda reply: replace(reply, **facts)


def with_model(change: Callable[[FlatState], object]) -> Callable[[Reply], Reply]:
    def spoiled(reply: Reply) -> Reply:
        assert isinstance(reply.payload, SentModel)
        state = reply.payload.end.clone()
        change(state)
        return replace(reply, payload=SentModel(state))

    return spoiled


def with_another_models_payload(reply: Reply) -> Reply:
    assert isinstance(reply.payload, SentModel)
    payload = replace(reply.payload, size=1000, problem="the payload has 1000 bytes")
    return replace(reply, payload=payload)


WRONG: dict[str, tuple[Callable[[Reply], Reply], str]] = {
    "NaN": (with_model(lambda s: s.trainable.fill_(nan)), "not-finite"),
    "infinite statistics": (with_model(lambda s: s.averaged.fill_(torch.inf)), "not-finite"),
    "too large": (with_model(lambda s: s.trainable.fill_(1e6)), "norm-too-large"),
    "a huge variance": (with_model(lambda s: s.averaged.fill_(3e37)), "wrong-buffers"),
    "a negative variance": (with_model(lambda s: s.averaged.neg_()), "wrong-buffers"),
    "a counter at its end": (with_model(lambda s: s.counted.fill_(2**63 - 1)), "wrong-buffers"),
    "a batch too many": (with_model(lambda s: s.counted.add_(100)), "wrong-buffers"),
    "another model's payload": (with_another_models_payload, "wrong-layout"),
    "no model": (lambda reply: replace(reply, payload=None), "wrong-layout"),
    "another site's task": (saying(task=1), "unexpected-task"),
    "another version": (saying(version=77), "wrong-version"),
    "too many steps": (saying(steps_done=10**6), "wrong-steps"),
    "negative steps": (saying(steps_done=-1), "wrong-steps"),
    "no word of its steps": (saying(steps_done=None), "wrong-steps"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_answer_is_refused_and_told_and_three_in_a_row_quarantine_its_site(
    tmp_path: Path, wrong: str
) -> None:
    spoil, reason = WRONG[wrong]
    network = FakeNetwork(Clock(), sites(0.1, 0.2))
    bad = network.sites[102]
    bad.spoil = lambda reply, number: spoil(reply) if number > 1 else reply
    strategy = {"name": "fedcompass", "min_steps": 2, "max_steps": 10, "guard": {"max_norm": 100.0}}
    chosen = settings(strategy, max_updates=20)
    running = federation(tmp_path, network, chosen)
    running.run()
    refused = audit(tmp_path, "refused")
    assert [line["reason"] for line in refused] == [reason] * 3
    assert all(line["who"] == "site-2" and line["why"] and "bytes" in line for line in refused)
    assert [line["who"] for line in audit(tmp_path, "quarantined")] == ["site-2"]
    told = [given.refused or "" for given in bad.told]
    assert [text.split(":")[0] for text in told] == ["", "", reason, reason]
    model = running.coordinator.model
    assert torch.isfinite(model.trainable).all()
    assert model.averaged.abs().max() < 100
    check_exactly_once(tmp_path, chosen)


def test_a_good_answer_after_a_wrong_one_clears_the_count(tmp_path: Path) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.2))
    wrong = saying(steps_done=-1)
    network.sites[102].spoil = lambda reply, number: wrong(reply) if number % 2 == 0 else reply
    running = federation(tmp_path, network, settings(max_updates=30))
    running.run()
    assert len(audit(tmp_path, "refused")) > 3
    assert audit(tmp_path, "quarantined") == []
    check_exactly_once(tmp_path, running.settings)


def test_a_quarantine_outlasts_an_absence_and_a_resume_until_an_operator_lifts_it(
    tmp_path: Path,
) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.2))
    bad = network.sites[102]
    wrong = saying(steps_done=-1)
    bad.spoil = lambda reply, _: wrong(reply)
    running = federation(tmp_path, network, settings(max_updates=1000))

    def until_more(what: str, lines: int = 1) -> None:
        wanted = len(audit(tmp_path, what)) + lines
        run_until(running, lambda _: len(audit(tmp_path, what)) >= wanted)

    until_more("quarantined")
    tasks = len(bad.tasks)
    for _ in range(2):  # away for so long that it counts as gone; then the server restarts, too
        network.connected.discard(102)
        until_more("left")
        running.close()
        running = federation(tmp_path, network, running.settings, resume=True)
        network.connected.add(102)
        until_more("joined")
        until_more("merged", 5)
    assert len(bad.tasks) == tasks
    assert [line["who"] for line in audit(tmp_path, "quarantined")] == ["site-2"] * 3
    bad.spoil = None
    put_request(tmp_path, "site-2", by="anna")
    until_more("readmitted")
    until_more("merged", 5)
    assert len(bad.tasks) > tasks
    (line,) = audit(tmp_path, "readmitted")
    assert (line["who"], line["by"]) == ("site-2", "anna")
    running.close()


HUGE = with_model(lambda s: s.trainable.fill_(3e38))


@pytest.mark.parametrize("first", [1, 6])
@pytest.mark.parametrize("name", ["fedcompass", "fedasync"])
def test_an_update_far_beyond_the_others_is_refused_by_default_from_the_first_on(
    tmp_path: Path, name: str, first: int
) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.15, 0.2, 0.1))
    lie = HUGE if first == 1 else with_model(lambda s: s.trainable.add_(50.0))
    network.sites[104].spoil = lambda reply, number: lie(reply) if number >= first else reply
    chosen = settings({"name": name}, max_updates=60)
    running = federation(tmp_path, network, chosen)
    running.run()
    refused = audit(tmp_path, "refused")
    assert {line["who"] for line in refused} == {"site-4"}
    assert {line["reason"] for line in refused} == {"unusual-norm"}
    assert "norm per step is" in refused[0]["why"]
    assert [line["who"] for line in audit(tmp_path, "quarantined")] == ["site-4"]
    assert (
        len([line for line in audit(tmp_path, "accepted") if line["who"] == "site-4"]) == first - 1
    )
    assert running.coordinator.model.trainable.abs().max() < 10
    check_exactly_once(tmp_path, chosen)


def test_where_training_changes_for_everybody_nobody_is_excluded_and_the_bound_follows(
    tmp_path: Path,
) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.11, 0.12))
    wilder = with_model(lambda s: s.trainable.add_(2000.0 * torch.sign(s.trainable)))
    for site in network.sites.values():
        site.spoil = lambda reply, number: wilder(reply) if number > 5 else reply
    strategy = {"name": "fedcompass", "guard": {"times_median": 1.5}}
    running = federation(tmp_path, network, settings(strategy, max_updates=100, min_clients=3))
    run_until(running, lambda _: len(audit(tmp_path, "refused")) > 10)
    accepted = len(audit(tmp_path, "accepted"))
    run_until(running, lambda _: len(audit(tmp_path, "accepted")) > accepted + 10)
    assert audit(tmp_path, "quarantined") == []
    running.close()


def test_what_is_usual_survives_a_resume(tmp_path: Path) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.15, 0.2))
    chosen = settings(max_updates=60)
    running = federation(tmp_path, network, chosen)
    run_until(running, lambda _: len(audit(tmp_path, "accepted")) >= 21)
    usual = running._run._norms.usual
    assert usual is not None
    running.close()
    again = federation(tmp_path, network, chosen, resume=True)
    assert again._run._norms.usual == usual
    again.run()
    assert audit(tmp_path, "refused") == []
    check_exactly_once(tmp_path, chosen)


@pytest.mark.parametrize("seconds", [nan, -1.0, 1e12, None])
def test_a_compute_time_that_cannot_be_true_is_not_believed(tmp_path: Path, seconds: Any) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.2))
    wrong = saying(seconds=seconds)
    network.sites[102].spoil = lambda reply, _: wrong(reply)
    running = federation(tmp_path, network)
    run_until(running, lambda f: f.coordinator.version >= 4)
    pace = running.coordinator.scheduler.pace("site-2")
    assert pace is not None
    assert 0 < pace.seconds_per_step < 1
    running.run()
    assert audit(tmp_path, "refused") == []


def test_no_steps_at_all_is_a_lost_task(tmp_path: Path) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.2))
    nothing = saying(steps_done=0)
    network.sites[102].spoil = lambda reply, n: (
        replace(nothing(reply), payload=None) if n == 2 else reply
    )
    running = federation(tmp_path, network)
    running.run()
    (lost,) = audit(tmp_path, "task lost")
    assert lost["why"] == "no steps were done"
    assert [given.task for given in network.sites[102].told].count(lost["task"]) == 1


def test_a_reply_from_another_node_is_not_believed(tmp_path: Path) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.2))
    network.sites[102].spoil = lambda reply, n: replace(reply, node=101) if n == 2 else reply
    running = federation(tmp_path, network)
    running.run()
    (lost,) = audit(tmp_path, "task lost")
    assert lost["why"] == "node 101 answered in its place"
    check_exactly_once(tmp_path, running.settings)


def test_a_reply_that_comes_twice_counts_once(tmp_path: Path) -> None:
    class Doubling(FakeNetwork):
        def pull(self, messages: Any) -> list[Reply]:
            return [copy for reply in super().pull(messages) for copy in (reply, reply)]

    running = federation(tmp_path, Doubling(Clock(), sites(0.1, 0.2)))
    running.run()
    check_exactly_once(tmp_path, running.settings)


@pytest.mark.parametrize("samples", [-1, 0, 10**12 + 1])
@pytest.mark.parametrize("greets", [True, False])
def test_a_site_that_does_not_say_what_it_has_is_turned_away_and_stops_nobody(
    tmp_path: Path, samples: int, greets: bool
) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.2, 0.3))
    odd = network.sites[103]
    odd.samples, odd.greets = samples, greets
    summary = federation(tmp_path, network, settings(max_updates=20)).run()
    assert set(summary.sites) == {"site-1", "site-2"}
    turned = audit(tmp_path, "turned away")
    assert "does not say how many samples" in turned[0]["why"]
    assert len(turned) < 10  # it is asked more and more rarely


def test_what_the_transport_remarks_of_a_site_is_in_the_audit_and_on_the_console(
    tmp_path: Path,
) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.25))
    why = "the disk has no room for its answer of 9 bytes: 5 are free"
    network.remarked = [Remark("site-2", "must wait", why)]
    federation(tmp_path, network, settings(max_updates=2)).run()
    (line,) = audit(tmp_path, "must wait")
    assert (line["who"], line["why"]) == ("site-2", why)
    assert (in_words(line) or "").endswith(f"site-2 must wait: {why}")


def test_a_site_that_claims_too_many_samples_is_turned_away(tmp_path: Path) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.2, 0.3))
    network.sites[103].samples = 10**9
    chosen = settings(max_updates=10, max_samples=1000)
    summary = federation(tmp_path, network, chosen).run()
    assert set(summary.sites) == {"site-1", "site-2"}
    turned = audit(tmp_path, "turned away")[0]
    assert turned["node"] == 103
    assert turned["why"] == "site-3 claims 1000000000 samples; max_samples allows 1000"
    check_exactly_once(tmp_path, chosen)


@pytest.mark.parametrize("resumed", [False, True])
def test_a_claim_of_more_than_ten_times_all_others_samples_is_said(
    tmp_path: Path, resumed: bool
) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.2, 0.3))
    network.sites[103].samples = 10**12
    chosen = settings(max_updates=10, min_clients=3)
    running = federation(tmp_path, network, chosen)
    if resumed:
        run_until(running, lambda f: f.coordinator.version >= 3)
        running.close()
        running = federation(tmp_path, network, chosen, resume=True)
    running.run()
    said = audit(tmp_path, "claims most samples")
    assert len(said) == 1 + resumed
    assert said[0]["who"] == "site-3"
    told = "1,000,000,000,000, more than 10 times the 30 of all others, and they are its weight"
    assert said[0]["why"].startswith(told)
    assert "site-3 claims most samples: 1,000,000" in (in_words(said[0]) or "")
    view = RunView(tmp_path)
    view.refresh()
    assert [line["who"] for line in view.warnings.values()] == ["site-3"]


@pytest.mark.parametrize(
    "changes",
    [
        {"max_samples": 10**12},
        {"strategy": {"name": "fedcompass", "weights": "equal"}},
        {"strategy": {"name": "fedasync"}},
    ],
)
def test_a_claim_that_is_bounded_or_weighs_nothing_is_left_alone(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.2, 0.3))
    network.sites[103].samples = 10**12
    federation(tmp_path, network, settings(**{"max_updates": 10, "min_clients": 3} | changes)).run()
    assert audit(tmp_path, "claims most samples") == []


def test_ten_times_the_samples_of_all_others_is_nothing_to_say(tmp_path: Path) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.2, 0.3))
    network.sites[103].samples = 300
    federation(tmp_path, network, settings(max_updates=10, min_clients=3)).run()
    assert audit(tmp_path, "claims most samples") == []


def test_a_model_that_diverges_is_said_once_with_those_whose_updates_were_merged_since(
    tmp_path: Path,
) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.11, 0.12, 5.0))

    def evaluate(version: int, state: FlatState) -> dict[str, float]:
        return {"loss": nan if version >= 8 else 1.0, "accuracy": 0.5}

    chosen = settings(max_updates=12, min_clients=4)
    running = federation(tmp_path, network, chosen, evaluate=evaluate)
    for _ in range(3000):
        if running.over:
            break
        running.step()
        running._measure(wait=True)
        running._pause(running._until_next())
    running.finish()
    (said,) = audit(tmp_path, "diverged")
    assert said["version"] == 8
    merged = {line["version"]: line["contributors"] for line in audit(tmp_path, "merged")}
    assert said["contributors"] == sorted({who for who, _, _ in merged[8]})
    assert said["why"] == (
        "the loss is no number at version 8; after version 7 updates of these were merged: "
        + ", ".join(said["contributors"])
    )
    assert "diverged: the loss is no number" in (in_words(said) or "")


def test_a_merge_that_would_not_be_finite_is_said_with_its_sources_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.11, 0.12))
    for number in (101, 102):  # a setting lets them pass, and so they overflow together
        network.sites[number].spoil = lambda reply, n: (
            with_model(lambda s: s.trainable.fill_(-3e38))(reply) if n == 6 else reply
        )
    strategy = {"name": "fedbuff", "steps": 4, "buffer_size": 3, "guard": {"times_median": 1e300}}
    chosen = settings(strategy, max_updates=20)
    running = federation(tmp_path, network, chosen)
    run_until(running, lambda _: len(audit(tmp_path, "sum failed")) == 1)
    running.close()
    network.restart()
    running = federation(tmp_path, network, chosen, resume=True)
    running.run()
    (failed,) = audit(tmp_path, "sum failed")
    assert {"site-1", "site-2"} <= set(failed["members"])
    assert failed["why"] == "the merge would not be finite; see whose updates were in it"
    assert torch.isfinite(running.coordinator.model.trainable).all()
    assert running.coordinator.version == 20
    replay(tmp_path / "journal.jsonl")
