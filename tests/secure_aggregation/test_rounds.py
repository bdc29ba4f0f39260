"""A round's sum is the plain sum of those that stayed, whoever vanishes when; or there is none."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.secure_aggregation.conversations import (
    ORDER,
    Conversation,
    certificates,
    failed,
    names,
    opened,
    plain_sum,
    some_terms,
    vectors_for,
)

from fedcompass.secure_aggregation.messages import (
    InputMasked,
    KeysListed,
    MemberLost,
    Phase,
    PhaseClosed,
    RoundFailed,
    Send,
    SharesRevealed,
    SumOpened,
    SurvivorsListed,
    ToMember,
)
from fedcompass.secure_aggregation.server_round import ServerRound
from fedcompass.vocabulary import ClientId

SPEAKING = [phase for phase in Phase if phase is not Phase.OVER]


def assert_right(conversation: Conversation, end: SumOpened) -> None:
    error = np.abs(end.values - plain_sum(conversation, end.members)).max()
    assert error <= conversation.terms.encoding.error_bound
    assert end.accused == {}


@pytest.mark.parametrize("bits", [32, 64])
def test_the_sum_of_all_weighted_vectors_comes_out(bits: int) -> None:
    terms = some_terms(5, bits=64 if bits == 64 else 32)
    weights = {name: 0.1 * (number + 1) for number, name in enumerate(terms.members)}
    conversation = Conversation(terms, vectors_for(terms), weights)
    end = opened(conversation.play())
    assert end.members == terms.members
    assert_right(conversation, end)
    assert conversation.refused == []


@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(3, 7),
    when=st.lists(st.sampled_from([*SPEAKING, *[Phase.OVER] * 6]), min_size=7, max_size=7),
    sparse=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_whoever_vanishes_in_whatever_phase_the_sum_is_right_or_there_is_none(
    count: int, when: list[Phase], sparse: bool, seed: int
) -> None:
    degree = 4 if sparse and count > 5 else count - 1
    terms = some_terms(count, threshold=max(3, count // 2 + 1), degree=degree)
    silent = dict(zip(terms.members, when, strict=False))
    conversation = Conversation(terms, vectors_for(terms, seed), silent=silent, seed=seed)
    end = conversation.play()
    answered = {
        phase: [name for name in terms.members if ORDER.index(silent[name]) > ORDER.index(phase)]
        for phase in SPEAKING
    }
    enough = all(len(members) >= terms.threshold for members in answered.values())
    if isinstance(end, SumOpened):
        assert enough
        assert list(end.members) == answered[Phase.INPUTS]
        assert_right(conversation, end)
    elif degree == count - 1:
        assert not enough
        assert f"needed: {terms.threshold}" in end.reason


@pytest.mark.parametrize("phase", SPEAKING)
def test_one_of_five_may_vanish_in_any_phase(phase: Phase) -> None:
    terms = some_terms(5)
    conversation = Conversation(terms, vectors_for(terms), silent={"site-03": phase})
    end = opened(conversation.play())
    is_in = ORDER.index(phase) > ORDER.index(Phase.INPUTS)
    assert ("site-03" in end.members) is is_in
    assert_right(conversation, end)


@pytest.mark.parametrize("phase", SPEAKING)
def test_fewer_than_the_threshold_open_nothing(phase: Phase) -> None:
    terms = some_terms(5, threshold=4)
    silent = {"site-00": phase, "site-04": phase}
    conversation = Conversation(terms, vectors_for(terms), silent=silent)
    end = failed(conversation.play())
    assert end.reason.startswith("3 of 5 members ")
    assert end.reason.endswith("needed: 4. Missing: site-00, site-04")
    if phase is Phase.REVEALS:  # the others' updates are spent, so who left them is named
        assert end.among == tuple(end.accused) == ("site-00", "site-04")
    else:
        assert (end.accused, end.among) == ({}, ())  # to vanish is not to lie
        assert not [message for message in conversation.heard if type(message) is SharesRevealed]


def test_with_three_members_nobody_may_vanish() -> None:
    terms = some_terms(3)
    assert terms.threshold == 3
    assert_right(whole := Conversation(terms, vectors_for(terms)), opened(whole.play()))
    failed(Conversation(terms, vectors_for(terms), silent={"site-01": Phase.INPUTS}).play())


@pytest.mark.parametrize("vanishing", [{}, {"site-02": Phase.INPUTS, "site-07": Phase.SHARES}])
def test_a_sparse_graph_gives_the_same_sum_with_fewer_shares(
    vanishing: Mapping[ClientId, Phase],
) -> None:
    terms = some_terms(12, degree=6)
    conversation = Conversation(terms, vectors_for(terms), silent=vanishing)
    end = opened(conversation.play())
    assert end.members == tuple(name for name in names(12) if name not in vanishing)
    assert_right(conversation, end)
    revealed = [message for message in conversation.heard if isinstance(message, SharesRevealed)]
    assert all(len(each.self_shares | each.key_shares) <= 7 for each in revealed)


def test_as_many_shares_as_the_threshold_are_needed_also_when_some_never_came() -> None:
    terms = some_terms(5, threshold=4)
    conversation = Conversation(terms, vectors_for(terms), silent={"site-04": Phase.KEYS})
    opened(conversation.play())
    roster = conversation.server._known_roster
    assert [roster.share_threshold(name) for name in roster.members] == [4, 4, 4, 4]


def test_signed_rounds_give_the_same_sum() -> None:
    terms = some_terms(4)
    signed = Conversation(terms, vectors_for(terms), identities=certificates(terms.members))
    assert_right(signed, opened(signed.play()))


def test_the_same_entropy_gives_the_same_conversation() -> None:
    terms = some_terms(4)
    one, two = (Conversation(terms, vectors_for(terms), seed=5) for _ in range(2))
    one.play(), two.play()
    assert repr(one.heard) == repr(two.heard)
    assert repr(one.told) == repr(two.told)


def test_nobody_reveals_both_kinds_of_share_of_one_member() -> None:
    terms = some_terms(6)
    conversation = Conversation(terms, vectors_for(terms), silent={"site-01": Phase.INPUTS})
    opened(conversation.play())
    revealed = [message for message in conversation.heard if isinstance(message, SharesRevealed)]
    assert len(revealed) == 5
    for each in revealed:
        assert list(each.key_shares) == ["site-01"]
        assert "site-01" not in each.self_shares


def masked(conversation: Conversation, name: ClientId) -> np.ndarray:
    [words] = [
        message.words
        for message in conversation.heard
        if isinstance(message, InputMasked) and message.member == name
    ]
    return words


def test_what_the_server_sees_of_one_member_is_unlike_its_vector() -> None:
    terms = some_terms(3, length=4000)
    vectors = {name: np.zeros(4000, dtype=np.float32) for name in terms.members}
    seen = [Conversation(terms, vectors, seed=seed) for seed in range(2)]
    for conversation in seen:
        opened(conversation.play())
        words = masked(conversation, "site-00")
        ones = np.unpackbits(words.view(np.uint8)).mean()
        assert abs(ones - 0.5) < 0.01  # five standard deviations are 0.007
        assert len(np.unique(words)) > 3990
    assert not (masked(seen[0], "site-00") == masked(seen[1], "site-00")).any()


def test_equal_entropy_in_two_rounds_gives_different_masks() -> None:
    first, second = (
        Conversation(terms := some_terms(3, merge=merge), vectors_for(terms), seed="stuck")
        for merge in (1, 2)
    )
    opened(first.play()), opened(second.play())
    assert not (masked(first, "site-00") == masked(second, "site-00")).any()


def test_a_lost_member_is_not_waited_for_nor_written_to_any_more() -> None:
    terms = some_terms(4, threshold=3)
    conversation = Conversation(terms, vectors_for(terms))
    server = conversation.server
    for name, member in conversation.members.items():
        sent = server.handle(member.begin(terms, conversation.vectors[name], 1.0))
    assert [output.to for output in sent if isinstance(output, Send)] == list(terms.members)
    assert server.handle(MemberLost(context=terms.context, member="site-02")) == []
    assert server.awaited == ["site-00", "site-01", "site-03"]
    outputs = []
    for output in sent:
        assert isinstance(output, Send)
        assert isinstance(output.message, KeysListed)
        if output.to != "site-02":
            [answer] = conversation.members[output.to].handle(output.message)
            outputs = server.handle(answer)
    assert [output.to for output in outputs if isinstance(output, Send)] == [
        "site-00",
        "site-01",
        "site-03",
    ]


def test_a_timer_of_a_phase_that_is_past_changes_nothing() -> None:
    terms = some_terms(3)
    server = ServerRound(terms)
    assert server.handle(PhaseClosed(context=terms.context, phase=Phase.SHARES)) == []
    [failure] = [
        output
        for output in server.handle(PhaseClosed(context=terms.context, phase=Phase.KEYS))
        if isinstance(output, RoundFailed)
    ]
    assert failure.reason.startswith("0 of 3 members sent keys; needed: 3")
    assert server.handle(PhaseClosed(context=terms.context, phase=Phase.OVER)) == []


def ring_of(conversation: Conversation) -> list[ClientId]:
    """The members in the order of a round with two neighbours each."""
    conversation.play()
    graph, ring = conversation.server._known_roster.graph, ["site-00"]
    while len(ring) < len(conversation.terms.members):
        ring.append(next(name for name in graph.neighbours(ring[-1]) if name not in ring))
    return ring


def test_survivors_in_two_parts_open_nothing_because_each_part_would_have_a_sum() -> None:
    terms = some_terms(8, threshold=5, degree=2)
    ring = ring_of(Conversation(terms, vectors_for(terms)))
    silent = {ring[2]: Phase.INPUTS, ring[6]: Phase.INPUTS}
    end = failed(Conversation(terms, vectors_for(terms), silent=silent).play())
    assert end.reason == "the survivors are not connected as neighbours; use a larger degree"


def test_a_member_confirms_no_survivors_in_two_parts_either() -> None:
    terms = some_terms(8, threshold=5, degree=2)
    ring = ring_of(Conversation(terms, vectors_for(terms)))
    left = tuple(name for name in terms.members if name not in (ring[2], ring[6]))

    def forge(to: ClientId, message: ToMember) -> ToMember:
        if isinstance(message, SurvivorsListed) and to == ring[0]:
            return replace(message, survivors=left)
        return message

    conversation = Conversation(terms, vectors_for(terms), forge=forge)
    conversation.play()
    [refused] = conversation.refused
    assert refused.startswith("the survivors are not connected as neighbours; each part would")


def test_too_few_holders_of_one_members_shares_open_nothing() -> None:
    terms = some_terms(8, threshold=5, degree=2)
    ring = ring_of(Conversation(terms, vectors_for(terms)))
    silent = {ring[0]: Phase.REVEALS, ring[1]: Phase.REVEALS}
    end = failed(Conversation(terms, vectors_for(terms), silent=silent).play())
    assert end.reason in [f"1 holders revealed shares of {name!r}; needed: 2" for name in ring[:2]]
