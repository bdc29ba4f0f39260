"""A member that restarts gives its round up; no mask ever covers two vectors."""

import json

import numpy as np
import pytest
from tests.secure_aggregation.conversations import (
    Conversation,
    drawn,
    opened,
    plain_sum,
    some_terms,
    vectors_for,
)

from fedcompass.errors import CheckpointError, EncodingError, MessageRefused
from fedcompass.secure_aggregation.member import MaskingMember
from fedcompass.secure_aggregation.messages import (
    InputMasked,
    KeysAdvertised,
    Phase,
    Send,
    Unsigned,
)


def restarted(member: MaskingMember, seed: object = 0) -> MaskingMember:
    """As after kill -9: what was on disk, and nothing of what was in memory."""
    saved = json.loads(json.dumps(member.to_json()))
    return MaskingMember.from_json(member.name, Unsigned(), drawn(seed), saved)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.OVER])
def test_a_member_that_restarts_in_any_phase_answers_no_more_and_the_others_go_on(
    phase: Phase,
) -> None:
    terms = some_terms(5, threshold=4)
    conversation = Conversation(terms, vectors_for(terms), silent={"site-01": phase})
    end = opened(conversation.play())
    bound = terms.encoding.error_bound
    assert np.abs(end.values - plain_sum(conversation, end.members)).max() <= bound
    member = restarted(conversation.members["site-01"])
    for send in conversation.told:
        if isinstance(send, Send) and send.to == member.name:
            with pytest.raises(MessageRefused, match="which is in no round; a restart ends"):
                member.handle(send.message)
    with pytest.raises(MessageRefused) as caught:
        member.begin(terms, vectors_for(terms, seed=9)["site-01"], 1.0)
    assert str(caught.value) == (
        "'site-01' was asked to begin merge 1 of run 'run'; allowed: 2 or later, because it has "
        "begun 1. Open a new round"
    )


def test_after_a_restart_the_next_merge_has_other_masks_even_with_the_same_entropy() -> None:
    terms = some_terms(3)
    member = MaskingMember("site-00", Unsigned(), drawn("stuck"))
    first = member.begin(terms, np.zeros(7), 1.0)
    later = restarted(member, "stuck").begin(some_terms(3, merge=2), np.zeros(7), 1.0)
    assert first.mask_key != later.mask_key
    assert first.seal_key != later.seal_key


def test_what_is_saved_has_no_secret() -> None:
    member = MaskingMember("site-00", Unsigned(), drawn(0))
    member.begin(some_terms(3, merge=7), np.zeros(7), 1.0)
    assert member.to_json() == {"last_merges": {"run": 7}}


def test_secrets_show_in_no_log() -> None:
    member = MaskingMember("site-00", Unsigned(), lambda count: b"Z" * count)
    member.begin(some_terms(3), np.zeros(7), 1.0)
    assert member._round is not None
    assert "ZZZZ" not in repr(vars(member._round))


def test_secrets_are_gone_when_a_round_is_over() -> None:
    terms = some_terms(3)
    conversation = Conversation(terms, vectors_for(terms))
    opened(conversation.play())
    for member in conversation.members.values():
        assert member._round is not None
        assert member._round._secrets is None
        assert member._round.phase is Phase.OVER


def test_a_vector_is_masked_once_and_then_forgotten() -> None:
    terms = some_terms(3)
    conversation = Conversation(terms, vectors_for(terms), silent={"site-00": Phase.INPUTS})
    conversation.play()
    member = conversation.members["site-01"]
    delivered = [send.message for send in conversation.told if send.to == member.name][1]
    with pytest.raises(MessageRefused, match="SharesDelivered came to 'site-01' in phase "):
        member.handle(delivered)
    sent = [message for message in conversation.heard if isinstance(message, InputMasked)]
    assert [message.member for message in sent] == ["site-01", "site-02"]


def test_a_new_round_gives_an_open_one_up() -> None:
    member = MaskingMember("site-00", Unsigned(), drawn(0))
    old, new = some_terms(3), some_terms(3, merge=2)
    member.begin(old, np.zeros(7), 1.0)
    assert isinstance(member.begin(new, np.zeros(7), 1.0), KeysAdvertised)
    with pytest.raises(MessageRefused, match="allowed: 3 or later"):
        member.begin(old, np.zeros(7), 1.0)


def test_a_vector_that_does_not_fit_begins_no_round() -> None:
    member = MaskingMember("site-00", Unsigned(), drawn(0))
    with pytest.raises(EncodingError) as caught:
        member.begin(some_terms(3), np.zeros(8), 1.0)
    assert str(caught.value) == "the vector of 'site-00' has shape [8]; allowed: [7]"
    with pytest.raises(EncodingError, match="the largest weighted value of the update is 5;"):
        member.begin(some_terms(3), np.full(7, 5.0), 1.0)
    assert member.to_json() == {"last_merges": {}}
    member.begin(some_terms(3), np.full(7, 5.0), 0.5)


def test_a_member_begins_no_round_of_others() -> None:
    with pytest.raises(MessageRefused, match=r"'stranger' is not among the members \['site-00'"):
        MaskingMember("stranger", Unsigned(), drawn(0)).begin(some_terms(3), np.zeros(7), 1.0)


@pytest.mark.parametrize(
    "saved",
    [
        {},
        {"last_merges": 3},
        {"last_merges": {"run": "x"}},
        {"last_merges": {"run": 3.7}},
        {"last_merges": None},
    ],
)
def test_a_damaged_record_is_refused_rather_than_forgotten(saved: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match="the saved rounds of 'site-00' are "):
        MaskingMember.from_json("site-00", Unsigned(), drawn(0), saved)
