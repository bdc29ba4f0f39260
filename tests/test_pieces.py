"""What the server keeps of each client, in whole conversations with the coordinator."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.test_coordinator import answer, answer_of, coordinator, journal, of_two, weights

from fedcompass.coordinator import Coordinator
from fedcompass.errors import CheckpointError, SettingsError
from fedcompass.strategies import known_keys, names, strategy


def three_clients(**settings: Any) -> Coordinator:
    """Metronome with beats of 4 s; client c is too slow for one of them."""
    made = coordinator(
        "metronome", min_steps=2, max_steps=4, min_clients=3, covered=0.6, **settings
    )
    for client in "abc":
        made.join(0.0, client, 1)
    answer(made, 2.0, "a", [3.0, 0.0, 0.0])
    answer(made, 2.0, "b", [0.0, 3.0, 0.0])
    return made


def with_a_late_warm_up(**settings: Any) -> Coordinator:
    """The slow client's warm-up is merged with the second beat."""
    made = three_clients(**settings)
    answer(made, 5.9, "c", [0.0, 0.0, 3.0])
    answer(made, 6.0, "a", [0.0, 0.0, 0.0])
    answer(made, 6.0, "b", [0.0, 0.0, 0.0])
    return made


def again(made: Coordinator) -> list[tuple[Any, ...]]:
    """What was folded once more: client, task, share and weight."""
    return [
        (line["client"], line["task"], line["share"], line["weight"])
        for line in journal(made)
        if line.get("command") == "FoldAgain"
    ]


def test_who_is_absent_from_a_beat_counts_with_its_last_update_again() -> None:
    made = with_a_late_warm_up(absent="remember")
    assert weights(made) == pytest.approx([0.0, 1.0, 2.0])
    assert again(made) == []  # everybody was in the last merge
    answer(made, 10.0, "a", [3.0, 0.0, 0.0])
    answer(made, 10.0, "b", [0.0, 0.0, 0.0])
    assert weights(made) == pytest.approx([-1.0, 1.0, 1.0])  # c's [0, 0, 3] / 3 once more
    assert again(made) == [("c", 3, pytest.approx(1 / 3), pytest.approx(1 / 3))]


def test_one_that_is_skipped_does_not() -> None:
    made = with_a_late_warm_up(absent="skip")
    answer(made, 10.0, "a", [3.0, 0.0, 0.0])
    answer(made, 10.0, "b", [0.0, 0.0, 0.0])
    assert weights(made) == pytest.approx([-1.0, 1.0, 2.0])


def test_one_that_left_is_forgotten_also_when_it_comes_back() -> None:
    made = with_a_late_warm_up(absent="remember")
    made.lose(7.0, "c")
    made.join(7.5, "c", 1)
    answer(made, 10.0, "a", [3.0, 0.0, 0.0])
    answer(made, 10.0, "b", [0.0, 0.0, 0.0])
    assert again(made) == []


def test_one_that_leaves_after_an_overdue_beat_is_remembered_in_that_beat() -> None:
    made = with_a_late_warm_up(absent="remember")
    answer(made, 10.0, "a", [3.0, 0.0, 0.0])
    made.lose(30.0, "c")  # b missed its beat, whose deadline comes first
    assert [client for client, *_ in again(made)] == ["b", "c"]


def test_remembered_updates_survive_a_checkpoint() -> None:
    made = with_a_late_warm_up(absent="remember")
    twin = coordinator(
        "metronome", min_steps=2, max_steps=4, min_clients=3, covered=0.6, absent="remember"
    )
    twin.restore(*made.state({}))
    for one in (made, twin):
        answer(one, 10.0, "a", [3.0, 0.0, 0.0])
        answer(one, 10.0, "b", [0.0, 0.0, 0.0])
    assert weights(twin) == weights(made) == pytest.approx([-1.0, 1.0, 1.0])


def test_a_checkpoint_from_before_there_were_pieces_is_taken_and_one_without_its_own_is_not() -> (
    None
):
    saved = of_two("fedbuff", steps=4)
    tensors, facts = saved.state({})
    del facts["memory"]
    for piece in PIECES:
        facts["made_with"]["strategy"]["aggregation"].pop(piece)
    coordinator("fedbuff", steps=4, min_clients=2).restore(tensors, facts)

    saved = of_two("fedbuff", steps=4, calibrated=True)
    tensors, facts = saved.state({})
    facts["memory"] = {}
    with pytest.raises(CheckpointError, match=r"keeps \[\] of each client, .* \['calibration'\]"):
        coordinator("fedbuff", steps=4, min_clients=2, calibrated=True).restore(tensors, facts)


PIECES = ("calibrated", "since_last", "staleness_window")


def test_ca2fl_moves_by_the_mean_of_all_caches_and_the_mean_correction() -> None:
    plain = {"kind": "constant", "alpha": 1.0}
    made = of_two("fedbuff", steps=4, buffer_size=2, staleness=plain, calibrated=True)
    answer(made, 1.0, "a", [4.0, 0.0, 0.0])
    answer(made, 1.0, "b", [0.0, 4.0, 0.0])
    assert weights(made) == [-1.0, 0.0, 3.0]  # 1/2 of both; h = [1, 3, 0]
    answer(made, 2.0, "a", [4.0, 0.0, 2.0])
    answer(made, 3.0, "a", [4.0, 0.0, 4.0])
    # v = h + mean([0, 0, 2], [0, 0, 4]): both against a's cache of the first merge
    assert weights(made) == [-2.0, -3.0, 0.0]


def test_fedcompass_caches_first_answers_as_they_are_and_calibrates_groups() -> None:
    made = coordinator(
        "fedcompass",
        min_steps=2,
        max_steps=4,
        calibrated=True,
        weighting="share",
        scale="mean-share",
    )
    made.join(0.0, "a", 1)
    answer(made, 2.0, "a", [1.0, 1.0, 1.0])
    assert weights(made) == [0.0, 1.0, 2.0]
    answer(made, 6.0, "a", [2.0, 0.0, 0.0])
    assert weights(made) == [-2.0, 1.0, 2.0]  # h and h_a cancel: it is the only client


BY_SHARE = {"weighting": "share", "scale": "mean-share"}
PLAIN_SUM = {"payload": "delta", "weighting": "share", "scale": "none"}
ADAM = {"optimizer": "adam", "learning_rate": 0.1, "delay_limit": 1}


def test_area_keeps_the_mean_of_what_all_sent_last_however_often_each_answers() -> None:
    made = of_two("fedasync", steps=4, since_last=True, **PLAIN_SUM)
    assert made.payload == "model"
    sent = {"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0]}  # before: the model they were given
    told = [("a", 9.0), ("a", 5.0), ("b", 1.0), ("a", 5.0), ("a", 3.0), ("b", 2.0)]
    for at, (client, value) in enumerate(told):
        sent[client] = [value, 2 * value, 0.0]
        answer(made, at + 1.0, client, sent[client])
        mean = [0.25 * a + 0.75 * b for a, b in zip(sent["a"], sent["b"], strict=True)]
        assert weights(made) == pytest.approx(mean, abs=1e-6)


def test_area_measures_a_joiner_from_the_model_it_was_given() -> None:
    made = of_two("fedasync", steps=4, since_last=True, **PLAIN_SUM)
    answer(made, 1.0, "b", [5.0, 6.0, 7.0])
    before = weights(made)
    made.join(1.0, "c", 4)
    answer(made, 2.0, "c", [before[0] + 2.0, *before[1:]])
    assert weights(made) == pytest.approx([before[0] + 1.0, *before[1:]])


def test_area_averages_model_buffers_and_never_adds_them() -> None:
    made = of_two("fedasync", steps=4, since_last=True, model_buffers="moving", **PLAIN_SUM)
    for at in (1.0, 2.0, 3.0):
        update = answer_of(made, "b", [1.0, 2.0, 3.0])
        assert update.tensors is not None
        update.tensors.averaged.fill_(8.0)
        made.receive(at, update)
    assert made.model.averaged.tolist() == pytest.approx([8.0 * (1 - 0.25**3)])


def test_who_answers_rarely_weighs_more_by_its_mean_staleness() -> None:
    made = of_two(
        "fedbuff", steps=4, buffer_size=2, staleness_window=2, weights="equal", **BY_SHARE
    )
    for at in (1.0, 2.0, 3.0, 4.0):
        answer(made, at, "a", [0.0, 0.0, 0.0])
    answer(made, 5.0, "a", [5.0, 0.0, 0.0])
    answer(made, 6.0, "b", [0.0, 5.0, 0.0])
    # a's last two were 0 and 0 versions old, b's only one 2: weights 1 and 3
    assert weights(made) == pytest.approx([1.0 - 5 / 4, 2.0 - 15 / 4, 3.0])


@pytest.mark.parametrize(
    ("threshold", "moved"), [(None, 2.0), (0, 2.0 / 3), (2, 2.0 / 3), (3, 2.0)]
)
def test_a_merge_with_a_very_stale_update_moves_by_a_rate_divided_by_the_staleness(
    threshold: int | None, moved: float
) -> None:
    server = {"delay_limit": threshold}
    constant = {"kind": "constant", "alpha": 1.0}
    made = of_two("fedbuff", steps=4, buffer_size=1, staleness=constant, server=server)
    for at in (1.0, 2.0, 3.0):
        answer(made, at, "a", [0.0, 0.0, 0.0])
    answer(made, 4.0, "b", [2.0, 0.0, 0.0])  # three versions old
    assert weights(made) == pytest.approx([1.0 - moved, 2.0, 3.0])


def test_a_first_answer_of_compass_is_applied_as_it_is_however_stale() -> None:
    made = of_two("fedcompass", min_steps=2, max_steps=4, server={"delay_limit": 0})
    plain = of_two("fedcompass", min_steps=2, max_steps=4)
    for one in (made, plain):
        answer(one, 2.0, "a", [1.0, 1.0, 1.0])
        answer(one, 3.0, "b", [1.0, 1.0, 1.0])
    assert weights(made) == weights(plain)


def test_area_bounds_the_change_that_is_merged_whatever_the_model_has_become() -> None:
    bounded = {"since_last": True, "guard": {"max_norm": 1.2}}
    made = of_two("fedasync", steps=4, **PLAIN_SUM, **bounded)  # from the model [1, 2, 3]
    for at in range(1, 5):
        answer(made, float(at), "a", [1.0 + at, 2.0, 3.0])
    assert weights(made)[0] == pytest.approx(2.0)
    far = made.receive(5.0, answer_of(made, "b", [3.5, 2.0, 3.0])).refused
    assert far is not None
    assert "norm is 2.5, max_norm allows 1.2" in far.message  # against b's own [1, 2, 3]
    assert made.receive(6.0, answer_of(made, "b", [1.5, 2.0, 3.0])).refused is None
    assert weights(made)[0] == pytest.approx(2.375)


COMBINED: list[tuple[str, dict[str, Any]]] = [
    ("fedcompass", {"min_steps": 2, "max_steps": 4, "calibrated": True}),
    ("fedcompass+m", {"min_steps": 2, "max_steps": 4, "calibrated": True}),
    ("fedcompass+n", {"min_steps": 2, "max_steps": 4, "calibrated": True}),
    ("metronome", {"min_steps": 2, "max_steps": 4, "calibrated": True}),
    ("metronome", {"min_steps": 2, "max_steps": 4, "absent": "remember"}),
    ("fedbuff", {"steps": 4, "buffer_size": 2, "calibrated": True}),
    ("fedadam", {"steps": 4, "calibrated": True}),
    ("fedasync", {"steps": 4, "payload": "delta", "calibrated": True}),
    ("fedcompass", {"min_steps": 2, "max_steps": 4, "since_last": True, "weighting": "share"}),
    ("metronome", {"min_steps": 2, "max_steps": 4, "since_last": True}),
    ("fedbuff", {"steps": 4, "buffer_size": 2, "since_last": True, **PLAIN_SUM}),
    ("fedasync", {"steps": 4, "since_last": True, **PLAIN_SUM}),
    ("fedcompass", {"min_steps": 2, "max_steps": 4, "staleness_window": 2}),
    ("metronome", {"min_steps": 2, "max_steps": 4, "staleness_window": 2}),
    ("fedbuff", {"steps": 4, "buffer_size": 2, "staleness_window": 2, **BY_SHARE}),
    ("fedbuff", {"steps": 4, "buffer_size": 2, "server": ADAM}),
    ("fedcompass+m", {"min_steps": 2, "max_steps": 4, "server": {"delay_limit": 0}}),
    ("fedasync", {"steps": 4, "server": {"delay_limit": 1}}),
]


@pytest.mark.parametrize(("name", "settings"), COMBINED)
def test_a_run_restored_at_any_moment_goes_on_bit_equal(
    name: str, settings: dict[str, Any]
) -> None:
    made = of_two(name, **settings)
    for moment in range(12):
        twin = coordinator(name, min_clients=2, **settings)
        twin.restore(*made.state({}))
        client = "ab"[moment % 3 == 2]
        for one in (made, twin):
            if one.scheduler.outstanding(client) is not None:
                answer(one, moment + 1.0, client, [0.3 * moment, 1.0, -0.7])
        assert weights(twin) == weights(made)
        assert torch.isfinite(made.model.trainable).all()
        made = twin


SENSELESS: list[tuple[str, dict[str, Any], str]] = [
    ("fedasync", {"calibrated": True}, "calibrated is true with payload 'model'; allowed: payload"),
    ("metronome", {"calibrated": True, "absent": "remember"}, "with calibrated true, which makes"),
    ("metronome", {"calibrated": True, "absent": "catch-up"}, "with calibrated true, which makes"),
    ("metronome", {"since_last": True, "absent": "catch-up"}, "absent .* is 'catch-up' with since"),
    (
        "metronome",
        {"staleness_window": 5, "absent": "remember"},
        "absent of 'metronome' is 'remember' with staleness_window 5, which makes up for an absent "
        "client, too; allowed: 'skip', or the other without it",
    ),
    ("fedcompass", {"since_last": True}, "with weighting 'staleness-share'; allowed: weighting 's"),
    (
        "fedavg",
        {"since_last": True},
        "since_last is true with scale 'mean-share'; allowed: scale 'none'",
    ),
    (
        "fedcompass+n",
        {"since_last": True, "weighting": "share"},
        "since_last is true with normalized true; allowed: normalized false",
    ),
    (
        "fedcompass+m",
        {"since_last": True, "weighting": "share"},
        "with server.optimizer 'momentum'; allowed: server.optimizer 'plain'",
    ),
    (
        "metronome",
        {"since_last": True, "staleness_window": 3},
        "with staleness_window 3; allowed: staleness_window unset",
    ),
    ("fedbuff", {"staleness_window": 5}, "weighting 'staleness'; allowed: weighting 'share' or"),
    ("fedat", {"server": {"delay_limit": 1}}, "server.delay_limit of 'fedat' is 1; allow"),
]


@pytest.mark.parametrize(("name", "settings", "message"), SENSELESS)
def test_what_makes_no_sense_together_is_one_line(
    name: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        strategy(name, **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in names() if name != "fedat"])
def test_every_strategy_but_fedat_has_every_piece(name: str) -> None:
    assert set(PIECES) <= set(known_keys(name))


def test_fedat_has_none() -> None:
    with pytest.raises(SettingsError, match="'calibrated'"):
        strategy("fedat", calibrated=True)


@pytest.mark.parametrize("go", [Coordinator.lose, lambda made, at, c: three_refusals(made, at, c)])
def test_who_left_or_is_in_quarantine_is_no_longer_in_the_mean(
    go: Callable[[Coordinator, float, str], object],
) -> None:
    plain = {"kind": "constant", "alpha": 1.0}
    made = of_two("fedbuff", steps=4, buffer_size=2, staleness=plain, calibrated=True)
    answer(made, 1.0, "a", [4.0, 0.0, 0.0])
    answer(made, 1.0, "b", [0.0, 4.0, 0.0])
    go(made, 1.5, "b")
    for at in (2.0, 3.0):
        answer(made, at, "a", [4.0, 0.0, 0.0])
    assert weights(made) == [-2.0, 0.0, 3.0]  # h = [1, 0, 0] and no correction


def three_refusals(made: Coordinator, at: float, client: str) -> None:
    from fedcompass.aggregation import RefusedUpdate
    from fedcompass.vocabulary import Refusal

    for _ in range(3):
        order = made.scheduler.outstanding(client)
        assert order is not None
        refused = RefusedUpdate(reason=Refusal.NOT_FINITE, message="not a number")
        made.refuse(at, client, order.task, refused)
