"""Runs in which the server sees only sums: the same models, and nothing of a single update."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.simulation.tiny_runs import (
    CLIENTS,
    assert_same_run,
    eventful,
    events_of,
    experiment,
    of_kind,
    problem,
    resumed,
    stopped_run,
)

from fedcompass import Experiment, simulate
from fedcompass.errors import EncodingError, SettingsError
from fedcompass.runs.replay import replay
from fedcompass.secure_aggregation.fixed_point import FixedPoint
from fedcompass.setting_tables import merged
from fedcompass.simulation.result import Result

SUMMING = ("fedavg", "fedbuff", "fedcompass", "fedcompass+m", "fedcompass+n", "metronome")
SGD = {
    "local": {"optimizer": "sgd", "learning_rate": 0.05},
    "evaluation": {"every_updates": "none"},
}
CLIP = 8.0  # BatchNorm's running variances are part of the vector


def chosen(name: str, *, secure: bool, bits: int = 32, **changes: Any) -> Experiment:
    """The same merges by sums or, for comparison, by single updates."""
    absent = {"strategy": {"absent": "skip"}} if name == "metronome" else {}
    how: dict[str, Any] = {"strategy": {"merge_at_least": 3}}
    if secure:
        how = {"secure": {"enabled": True, "clip": CLIP, "bits": bits}}
    return experiment(name, **merged(SGD, absent, how, changes))


def run(made: Experiment, **options: Any) -> Result:
    return simulate(made, problem=problem(), **options)


def furthest(one: Result, other: Result) -> float:
    """The largest difference of two runs' models, integer buffers left out."""
    return max(
        float((one.model[name] - other.model[name]).abs().max())
        for name, tensor in one.model.items()
        if tensor.is_floating_point()
    )


@pytest.mark.parametrize("name", SUMMING)
def test_a_merge_by_masked_sums_is_that_of_single_updates_within_the_bound(name: str) -> None:
    plain = run(chosen(name, secure=False, max_updates=1))
    masked = run(chosen(name, secure=True, max_updates=1))
    steps = 8 if name == "fedcompass+n" else 1  # its sum is of changes per step
    bound = FixedPoint(bits=32, clip=CLIP, members=CLIENTS).error_bound
    assert 0 < furthest(plain, masked) <= steps * bound + 1e-6  # and float32's own rounding


@pytest.mark.parametrize("name", SUMMING)
def test_a_whole_run_by_masked_sums_is_that_of_single_updates(name: str) -> None:
    plain, masked = run(chosen(name, secure=False)), run(chosen(name, secure=True, bits=64))
    assert masked.summary["global_updates"] == plain.summary["global_updates"] > 1
    assert furthest(plain, masked) < 1e-4
    assert masked.summary["masked_merges"] == masked.summary["global_updates"]


def test_no_merge_has_fewer_than_three_clients_and_first_answers_wait(tmp_path: Path) -> None:
    run(chosen("fedcompass", secure=True), folder=tmp_path / "run")
    records = events_of(tmp_path / "run")
    commits = of_kind(records, "Commit")
    assert all(len({client for client, _, _ in c["contributions"]}) >= 3 for c in commits)
    assert [of_kind(records, "Hold")[0]["buffers"], commits[0]["version"]] == [[0], 1]
    assert not of_kind(records, "Fold", direct=True)
    replay(tmp_path / "run" / "journal.jsonl")


@pytest.mark.whatever_is_learned
@pytest.mark.parametrize("name", ["fedcompass", "metronome"])
def test_a_secure_run_that_was_stopped_ends_as_if_never_stopped(name: str, tmp_path: Path) -> None:
    absent = {"absent": "skip"} if name == "metronome" else {}
    made = eventful(name, secure={"enabled": True, "clip": CLIP}, strategy=absent)
    run(made, folder=tmp_path / "whole")
    stopped_run(made, tmp_path / "stopped", saved=6, stopped=9)
    resumed(tmp_path / "stopped")
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")
    replay(tmp_path / "whole" / "journal.jsonl")


def test_a_client_that_leaves_takes_its_update_along(tmp_path: Path) -> None:
    made = chosen("fedavg", secure=True, fleet={"dropouts": [[0, 0.7]]}, horizon=3.0)
    result = run(made, folder=tmp_path / "run")
    [first, *_] = of_kind(events_of(tmp_path / "run"), "Commit")
    gone = next(task for client, task, _ in first["contributions"] if client == "0")
    assert first["left_out"] == [gone]
    assert gone not in [task for _, task, _ in result.pending]


def test_integer_buffers_stay_as_they_were() -> None:
    masked = run(chosen("fedavg", secure=True, max_updates=2))
    assert masked.model["1.num_batches_tracked"] == 0
    assert masked.model["1.running_mean"].abs().max() > 0


def test_what_masks_cost_is_in_the_journal_the_summary_and_the_origin(tmp_path: Path) -> None:
    result = run(chosen("fedavg", secure=True, max_updates=2), folder=tmp_path / "run")
    commits = of_kind(events_of(tmp_path / "run"), "Commit")
    sent = sum(commit["masked"]["bytes_up"] for commit in commits)
    values = sum(t.numel() for t in result.model.values() if t.is_floating_point())
    assert result.summary["masked_bytes_up"] == sent > 2 * CLIENTS * 4 * values
    assert result.summary["masked_bytes_down"] > 0
    origin = json.loads((tmp_path / "run" / "origin.json").read_text())
    assert origin["masking_seconds_per_member"] > 0
    assert origin["unmasking_seconds"] > 0


def test_clients_scale_their_own_changes_down_to_the_norm_bound() -> None:
    bound: dict[str, Any] = {"strategy": {"guard": {"max_norm": 1e-3}, "weights": "equal"}}
    masked = run(chosen("fedavg", secure=True, max_updates=1, **bound))
    free = run(chosen("fedavg", secure=True, max_updates=1))
    start = run(chosen("fedavg", secure=True, horizon=0.01))
    trained = [name for name in start.model if "running" not in name and "num" not in name]
    moved, further = (
        torch.cat([(start.model[name] - r.model[name]).flatten() for name in trained]).norm()
        for r in (masked, free)
    )
    assert moved <= 1.01e-3 < further
    assert masked.summary["refused"] == 0


def test_fedstaleweight_needs_no_single_updates() -> None:
    weighed: dict[str, Any] = {"strategy": {"staleness_window": 3}}
    plain = run(chosen("fedbuff", secure=False, max_updates=2, **weighed))
    masked = run(chosen("fedbuff", secure=True, max_updates=2, bits=64, **weighed))
    assert furthest(plain, masked) < 1e-5


def test_a_value_beyond_the_clip_stops_the_run_with_one_line() -> None:
    small = chosen("fedavg", secure=True).with_settings({"secure": {"clip": 1e-4}})
    with pytest.raises(
        EncodingError, match=r"value of client \d is .*; secure\.clip allows 0\.0001\."
    ):
        run(small)


def test_a_schedule_alone_needs_no_masks() -> None:
    made = run(chosen("fedcompass", secure=True), executor="none")
    assert made.summary["global_updates"] > 0
    assert "masked_merges" not in made.summary


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("fedasync", {}, "'fedasync' merges every update by itself; use fedbuff"),
        (
            "fedat",
            {},
            "'fedat' merges tier by tier, and a tier may be one client; use fedcompass or "
            "metronome",
        ),
        (
            "fedcompass",
            {"calibrated": True},
            "'fedcompass' has calibrated true, which keeps each client's last update; set it to "
            "false",
        ),
        (
            "metronome",
            {"absent": "remember"},
            "'metronome' has absent 'remember', which keeps each client's last update; use 'skip' "
            "or 'catch-up'",
        ),
        (
            "fedcompass",
            {"since_last": True, "weighting": "share"},
            "'fedcompass' has since_last true, which keeps each client's last model; set it to "
            "false",
        ),
        (
            "fedbuff",
            {"model_buffers": "replace"},
            "'fedbuff' has model_buffers 'replace', which counts every client in full, while "
            "secure.clip bounds weighted values; use 'corrected' or 'moving'",
        ),
    ],
)
def test_what_needs_single_updates_is_refused_in_one_line(
    name: str, settings: dict[str, Any], why: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        Experiment(strategy={"name": name, **settings}, secure={"enabled": True})
    assert f"secure.enabled is true, but {why}" in str(refused.value)


def test_two_clients_are_too_few() -> None:
    with pytest.raises(SettingsError, match=r"secure\.enabled is true with 2 clients; allowed: 3"):
        Experiment(fleet={"clients": 2}, secure={"enabled": True})


def test_records_of_runs_without_it_do_not_mention_it() -> None:
    assert "secure" not in experiment().to_record()
    assert chosen("fedavg", secure=True).to_record()["secure"]["enabled"] is True
