"""What comes over the wire is checked before it is used, whatever the bytes are."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.deployment.wire.hostile_bytes import DIGEST, MESSAGES, TASK, run, try_one

from fedcompass.deployment.wire import decoding
from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.decoding import (
    MOST_MESSAGE_BYTES,
    PIECE_BYTES,
    read_answer_part,
    read_answer_reply,
    read_from_server,
    read_from_site,
    read_model_request,
    read_piece,
)
from fedcompass.errors import WireError

WIRE = Path(decoding.__file__).parent


def raw_of(message: Any) -> bytes:
    raw: bytes = message.SerializeToString()
    return raw


def part(**fields: Any) -> bytes:
    known: dict[str, Any] = {"task": TASK, "form": "model", "digest": DIGEST}
    return raw_of(pb.AnswerPart(answer=pb.Answer(**{**known, **fields})))


def greeting(**fields: Any) -> bytes:
    known: dict[str, Any] = {"software": "0.1.0", "process": "0" * 32, "layout": DIGEST}
    return raw_of(pb.FromSite(hello=pb.Hello(**{**known, **fields})))


@pytest.mark.parametrize(
    ("read", "raw", "told"),
    [
        (read_from_site, b"\xff", "a message is no FromSite"),
        (read_from_site, greeting(process="0"), "process is '0'"),
        (read_from_site, greeting(layout="Z" * 64), "layout is"),
        (read_from_site, greeting(software="a b"), "software is 'a b'"),
        (read_from_site, greeting(samples=10**16), "samples is 10000000000000000"),
        (read_model_request, b"", "task is ''"),
        (read_answer_part, b"", "a part of an answer is empty"),
        (read_answer_part, part(task="../../etc/passwd"), "task is '../../etc/passwd'"),
        (read_answer_part, part(form=""), "form is ''"),
        (read_answer_part, part(digest="f" * 63), "digest is"),
        (read_answer_part, part(payload_bytes=1 << 60), "payload_bytes is"),
        (read_answer_part, part(steps_done=1 << 63), "steps_done is"),
        (read_answer_part, part(error="x", payload_bytes=1), "an error and a payload"),
        (read_answer_part, pb.AnswerPart(data=b"").SerializeToString(), "a piece has 0 bytes"),
        (read_piece, pb.Piece(data=bytes(PIECE_BYTES + 1)).SerializeToString(), "a piece has"),
        (read_piece, bytes(MOST_MESSAGE_BYTES + 1), "a message has"),
        (read_answer_reply, b"", "a reply to an answer is empty"),
        (
            read_from_server,
            pb.FromServer(task=pb.Task(id=TASK)).SerializeToString(),
            "run is ''",
        ),
    ],
)
def test_a_message_that_cannot_be_right_is_refused_with_one_line(
    read: Callable[[bytes], object], raw: bytes, told: str
) -> None:
    with pytest.raises(WireError, match=told):
        read(raw)


def test_every_text_of_the_wire_has_a_form_or_becomes_one_line() -> None:
    texts = {
        field.name
        for message in pb.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
        if field.type == field.TYPE_STRING
    }
    assert texts == set(decoding._FORMS) | set(decoding._FREE)


def test_an_error_of_blanks_is_no_error_and_a_failed_answer_needs_no_payload() -> None:
    with pytest.raises(WireError, match="form is ''"):
        read_answer_part(part(error="\n", form="", digest=""))
    assert read_answer_part(part(error="x", form="", digest="")).answer.error == "x"


def test_texts_become_one_short_line() -> None:
    message = read_answer_part(part(error="no\x1b[31m\nluck " * 1000))
    assert len(message.answer.error) <= 300
    assert message.answer.error.isprintable()


def test_a_kind_of_a_later_version_is_read_as_nothing() -> None:
    later = b"\x7a\x03abc"  # field 15
    assert read_from_site(later).WhichOneof("kind") is None
    assert read_from_server(later).WhichOneof("kind") is None


@pytest.mark.parametrize("read", MESSAGES, ids=lambda read: read.__name__)
def test_real_messages_are_taken(read: Callable[[bytes], object]) -> None:
    assert all(try_one(read, raw) for raw in MESSAGES[read])


@given(raw=st.binary(max_size=2000), read=st.sampled_from(list(MESSAGES)))
def test_no_bytes_whatever_do_more_than_be_refused(
    raw: bytes, read: Callable[[bytes], object]
) -> None:
    try_one(read, raw)


@given(
    st.builds(
        pb.Answer,
        task=st.text(max_size=30),
        form=st.text(max_size=30),
        payload_bytes=st.integers(0, 2**64 - 1),
        digest=st.text(max_size=70),
        steps_done=st.integers(0, 2**64 - 1),
        seconds=st.floats(),
        samples=st.integers(0, 2**64 - 1),
        loss=st.floats(),
        error=st.text(max_size=500),
    )
)
def test_no_answer_whatever_does_more_than_be_refused(answer: pb.Answer) -> None:
    try_one(read_answer_part, pb.AnswerPart(answer=answer).SerializeToString())


def test_damaged_messages_are_taken_or_refused_and_nothing_else() -> None:
    counts = run(8_000, seconds=60)
    for read in MESSAGES:
        assert counts[f"{read.__name__} taken"] > 10
        assert counts[f"{read.__name__} refused"] > 100


def test_the_generated_classes_are_those_of_the_proto_file() -> None:
    digest = hashlib.sha256((WIRE / "federation.proto").read_bytes()).hexdigest()
    last = (WIRE / "federation_pb2.py").read_text().splitlines()[-1]
    assert last == f"# SHA-256 of federation.proto: {digest}", "run scripts/generate-wire"


def test_nothing_from_a_site_can_hold_more_than_its_bytes() -> None:
    """Repeated fields and maps cost many bytes of memory for each on the wire."""
    seen: list[Any] = [pb.FromSite, pb.ModelRequest, pb.AnswerPart]
    for message in seen:  # grows
        for field in message.DESCRIPTOR.fields:
            assert not field.is_repeated, f"{message.DESCRIPTOR.name}.{field.name} is repeated"
            if field.message_type is not None:
                seen.append(field.message_type._concrete_class)
