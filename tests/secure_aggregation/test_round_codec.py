"""Messages as bytes: what is read is what was written, and anything else is refused in one line."""

import random
from contextlib import suppress

import numpy as np
import pytest
from tests.secure_aggregation.conversations import Conversation, some_terms, vectors_for

from fedcompass.errors import EncodingError, MessageRefused
from fedcompass.secure_aggregation.message_codec import from_member, most_bytes, to_bytes, to_member
from fedcompass.secure_aggregation.messages import InputMasked, RoundFailed
from fedcompass.secure_aggregation.vectors import WaitingUpdate, weighted_vector

TERMS = some_terms(5)


@pytest.fixture(scope="module")
def talk() -> Conversation:
    conversation = Conversation(TERMS, vectors_for(TERMS))
    conversation.play()
    return conversation


def test_what_members_say_comes_back(talk: Conversation) -> None:
    assert len(talk.heard) == 25
    for message in talk.heard:
        raw = to_bytes(message)
        assert len(raw) <= most_bytes(TERMS)
        again = from_member(raw, TERMS, message.member)
        if isinstance(message, InputMasked):
            assert isinstance(again, InputMasked)
            assert np.array_equal(again.words, message.words)
        else:
            assert again == message


def test_what_the_server_says_comes_back_with_what_stands_beside_it(talk: Conversation) -> None:
    for sent in talk.told:
        again, head = to_member(to_bytes(sent.message, certificates={"a": "text"}))
        assert again == sent.message
        assert head["certificates"] == {"a": "text"}
    failed = RoundFailed(context=b"1", reason="why", accused={"a": "lies"}, among=("a", "b"))
    assert to_member(to_bytes(failed))[0] == failed


def test_a_member_speaks_for_itself_alone(talk: Conversation) -> None:
    raw = to_bytes(talk.heard[0])
    assert from_member(raw, TERMS, "site-04").member == "site-04"


def test_damaged_messages_are_refused_and_nothing_else_happens(talk: Conversation) -> None:
    chance = random.Random(5)
    messages = [to_bytes(m) for m in talk.heard] + [to_bytes(s.message) for s in talk.told]
    for _ in range(3000):
        raw = bytearray(chance.choice(messages))
        for _ in range(chance.randint(1, 4)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        kept = bytes(raw[: chance.randint(0, len(raw))] if chance.random() < 0.3 else raw)
        with suppress(MessageRefused):
            from_member(kept, TERMS, "site-01")
        with suppress(MessageRefused):
            to_member(kept)


@pytest.mark.parametrize("raw", [b"", b"\0\0\0\0", b"\2\0\0\0[]", b"\2\0\0\0{}", b"\xff" * 9])
def test_what_is_no_message_is_refused(raw: bytes) -> None:
    with pytest.raises(MessageRefused):
        from_member(raw, TERMS, "site-01")
    with pytest.raises(MessageRefused):
        to_member(raw)


def update(*values: float) -> WaitingUpdate:
    return WaitingUpdate(trainable=np.array(values), averaged=np.array([1.0]))


def test_a_members_vector_is_the_weighted_sum_of_its_updates() -> None:
    found = weighted_vector([(update(1.0, 2.0), (0.5, 0.25)), (update(4.0, 0.0), (0.25, 0.5))])
    assert found.tolist() == [1.5, 1.0, 0.75]


def test_a_change_beyond_the_norm_bound_is_scaled_to_it_and_averages_are_not() -> None:
    found = weighted_vector([(update(3.0, 4.0), (1.0, 1.0))], max_norm=1.0)
    assert found.tolist() == pytest.approx([0.6, 0.8, 1.0])
    assert weighted_vector([(update(3.0, 4.0), (1.0, 1.0))], max_norm=5.0).tolist() == [3, 4, 1]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_update_that_is_not_finite_is_refused_at_its_member(value: float) -> None:
    with pytest.raises(EncodingError, match="the update has NaN or infinite values"):
        weighted_vector([(update(1.0, value), (1.0, 1.0))])
