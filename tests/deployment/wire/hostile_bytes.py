"""Bytes that a hostile peer may send: real messages, damaged in all the usual ways.

    python -m tests.deployment.wire.hostile_bytes --inputs 1000000 --seconds 3600

feeds every decoder of the wire with them, from a fixed seed, and prints what came of it; an answer
is read on to what the scheduler hears of it, and a payload to the model that it holds. It fails at
the first input that raises anything but a refusal of ours, or if memory grows beyond a bound.
"""

import argparse
import os
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import torch
from tests.faults.tally import put_section
from tests.secure_aggregation.conversations import Conversation, some_terms, vectors_for

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.coordinator import possible
from fedcompass.deployment.operator.site_requests import make_request, read_request
from fedcompass.deployment.server.grpc_transport import reply_of
from fedcompass.deployment.server.replies import checked_greeting, spent_by
from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.answers import Received
from fedcompass.deployment.wire.decoding import (
    MOST_MESSAGE_BYTES,
    read_answer_part,
    read_answer_reply,
    read_from_server,
    read_from_site,
    read_model_request,
    read_piece,
    read_sum_part,
)
from fedcompass.deployment.wire.payloads import payload_bytes, payload_pieces, read_payload
from fedcompass.deployment.wire.sum_parts import Begin, lacking, read_begin, read_lacking
from fedcompass.deployment.wire.task_book import GivenTask, problem_of
from fedcompass.errors import FedcompassError
from fedcompass.secure_aggregation.message_codec import from_member, to_bytes, to_member

TASK, DIGEST = "A" * 22, "0" * 64
MOST_GROWTH = 64  # MB: some dozens of the longest message
LONG = 1000  # one of so many inputs is as long as a message may be, or longer

LAYOUT = Layout.of(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)))
GIVEN = GivenTask(
    id=TASK,
    site="north",
    run="trial",
    number=1,
    steps=3,
    version=0,
    model=DIGEST,
    model_bytes=100,
    form="model",
    payload_bytes=100,
)
TERMS = some_terms(5)
TALK = Conversation(TERMS, vectors_for(TERMS))
TALK.play()
_FILE = Path(tempfile.gettempdir()) / f"hostile-{os.getpid()}"


def zeros() -> FlatState:
    state = LAYOUT.empty()
    for vector in (state.trainable, state.averaged, state.counted):
        vector.zero_()
    return state


def read_answer(raw: bytes) -> None:
    """Read an answer as far as the server does before its payload is looked at."""
    part = read_answer_part(raw)
    if part.WhichOneof("kind") == "answer":
        problem = problem_of(GIVEN, part.answer)
        assert problem is None or problem.isprintable()
        reply = reply_of(Received(GIVEN, part.answer, None, problem))
        told = [*spent_by(reply).values(), possible(reply.seconds) or 0.0]
        assert all(0 <= value < float("inf") for value in told)
        assert isinstance(reply.steps_done, int)
        checked_greeting(reply.greeting)  # of a site whose budget is spent


def read_sum_message(raw: bytes) -> None:
    """Read what a member of a secure round sends, as the server does."""
    if read_lacking(raw) is None:
        from_member(raw, TERMS, TERMS.members[0])


def read_model(raw: bytes) -> None:
    """Read an update's payload, in either form."""
    _FILE.write_bytes(raw)
    halved = len(raw) == payload_bytes(LAYOUT, "change-bfloat16")
    read_payload(_FILE, LAYOUT, "change-bfloat16" if halved else "model", zeros())


def read_csr(raw: bytes) -> None:
    """Read a site's request for a certificate."""
    _FILE.write_bytes(raw)
    read_request(_FILE)


def _a_request() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "north"
        make_request(site)
        return (site / "site.csr").read_bytes()


MESSAGES: dict[Callable[[bytes], object], list[bytes]] = {
    read_from_site: [
        pb.FromSite(
            hello=pb.Hello(protocol=1, software="0.1.0", process="0" * 32, samples=5, layout=DIGEST)
        ).SerializeToString(),
        pb.FromSite(
            hello=pb.Hello(
                software="0.1.0", process="0" * 32, layout=DIGEST, leaving="budget spent"
            )
        ).SerializeToString(),
        pb.FromSite(heartbeat=pb.Heartbeat(task=TASK)).SerializeToString(),
    ],
    read_model_request: [pb.ModelRequest(task=TASK, offset=7).SerializeToString()],
    read_answer: [
        pb.AnswerPart(
            answer=pb.Answer(
                task=TASK,
                form="model",
                payload_bytes=100,
                digest=DIGEST,
                steps_done=3,
                seconds=0.5,
                samples=9,
                loss=0.1,
                epsilon=2.5,
                delta=1e-5,
            )
        ).SerializeToString(),
        pb.AnswerPart(
            answer=pb.Answer(task=TASK, error="spent", budget_spent=True, epsilon=4.0, delta=1e-5)
        ).SerializeToString(),
        pb.AnswerPart(answer=pb.Answer(task=TASK, error="it failed")).SerializeToString(),
        pb.AnswerPart(data=bytes(range(256))).SerializeToString(),
    ],
    read_model: [
        b"".join(payload_pieces(LAYOUT, form, zeros(), zeros()))
        for form in ("model", "change-bfloat16")
    ],
    read_csr: [_a_request()],
    read_sum_part: [
        pb.SumPart(data=bytes(100)).SerializeToString(),
        pb.SumPart(data=b"{}", last=True).SerializeToString(),
    ],
    read_sum_message: [lacking([1, 2]), *map(to_bytes, TALK.heard)],
    to_member: [to_bytes(sent.message) for sent in TALK.told],
    read_begin: [
        Begin(replace(TERMS, run="run" * 100), {1: (0.2, 0.2)}, max_norm).to_bytes()
        for max_norm in (None, 10.0)
    ],
    read_from_server: [
        pb.FromServer(
            task=pb.Task(
                id=TASK,
                run="run",
                number=1,
                steps=20,
                version=3,
                model=DIGEST,
                model_bytes=9,
                form="model",
            )
        ).SerializeToString(),
        pb.FromServer(welcome=pb.Welcome(protocol=1, site="north")).SerializeToString(),
        pb.FromServer(withdrawn=pb.Withdrawn(task=TASK)).SerializeToString(),
        pb.FromServer(sum=pb.SumRound(id=TASK)).SerializeToString(),
    ],
    read_piece: [pb.Piece(data=bytes(100)).SerializeToString()],
    read_answer_reply: [
        pb.AnswerReply(receipt=pb.Receipt(task=TASK, accepted=True)).SerializeToString(),
        pb.AnswerReply(proceed=pb.Proceed(offset=10)).SerializeToString(),
    ],
}

BITS = [b"\x00", b"\xff" * 9 + b"\x01", b"\x80" * 10, b"\x0a\xff\xff\xff\xff\x0f", b"\x0b" * 200]
BITS += [b"[" * 5000, b"9" * 5000]  # of JSON


def damaged(chance: random.Random, message: bytes, others: list[bytes]) -> bytes:
    """A message with some of its bytes changed, removed, doubled or taken from another."""
    raw = bytearray(message)
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(raw))
        match chance.randrange(6):
            case 0 if raw:
                raw[at % len(raw)] ^= 1 << chance.randrange(8)
            case 1:
                del raw[at : at + chance.randint(1, 20)]
            case 2:
                raw[at:at] = chance.randbytes(chance.randint(1, 20))
            case 3:
                raw[at:at] = chance.choice(BITS)
            case 4:
                raw += raw[at:]
            case _:
                other = chance.choice(others)
                raw[at:] = other[chance.randint(0, len(other)) :]
    return bytes(raw)


def try_one(read: Callable[[bytes], object], raw: bytes) -> bool:
    """Whether a decoder takes some bytes; anything but a refusal of ours is raised."""
    try:
        read(raw)
    except FedcompassError as error:
        told = str(error)
    else:
        return True
    assert told.isprintable(), told
    assert len(told) < 400, told
    return False


def run(inputs: int, seconds: float, seed: int = 0) -> Counter[str]:
    """Feed so many inputs, as long as the time lasts; what became of them, by decoder."""
    chance, counts, ends = random.Random(seed), Counter[str](), time.monotonic() + seconds
    readers, every = list(MESSAGES), [raw for kind in MESSAGES.values() for raw in kind]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(inputs):
        read = chance.choice(readers)
        raw = damaged(chance, chance.choice(MESSAGES[read]), every)
        if number % LONG == 0:
            raw += raw[:1] * (MOST_MESSAGE_BYTES + chance.randint(-1000, 1000))
        taken = try_one(read, raw)
        counts[f"{read.__name__} {'taken' if taken else 'refused'}"] += 1
        if number % 1000 == 0 and time.monotonic() > ends:
            break
    _FILE.unlink(missing_ok=True)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < MOST_GROWTH, f"memory grew by {grown:.0f} MB"
    counts["MB grown"] = round(grown)
    return counts


def table(counts: Counter[str]) -> str:
    """What became of the inputs, as a page of the documentation."""
    rows = []
    for read in MESSAGES:
        taken, refused = (counts[f"{read.__name__} {what}"] for what in ("taken", "refused"))
        rows.append((f"`{read.__name__}`", taken + refused, taken, refused))
    whole = ("**all**", *(sum(row[n] for row in rows) for n in (1, 2, 3)))  # type: ignore[misc]
    lines = [f"| {row[0]} | " + " | ".join(f"{n:,}" for n in row[1:]) + " |" for row in rows]
    total = f"| {whole[0]} | " + " | ".join(f"{n:,}" for n in whole[1:]) + " |"
    head = "| decoder | inputs | taken | refused |\n|---|--:|--:|--:|"
    return "\n".join([head, *lines, total])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", type=Path, help="write the table into this page")
    given = parser.parse_args()
    counts = run(given.inputs, given.seconds, given.seed)
    words = (
        f"Written by `make fuzz` on {datetime.now(UTC):%Y-%m-%d}, from seed {given.seed}: real "
        "messages with bytes changed, removed,\ndoubled or taken from another. Each was taken or "
        f"refused with one line; none did anything else.\nMemory grew by {counts['MB grown']} MB "
        f"in all; allowed are {MOST_GROWTH}."
    )
    print(f"{table(counts)}\n\n{words}")
    if given.page is not None:
        put_section(given.page, "Hostile bytes", f"{words}\n\n{table(counts)}")


if __name__ == "__main__":
    main()
