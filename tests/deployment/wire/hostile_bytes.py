"""Bytes that a hostile peer may send: real messages, damaged in all the usual ways.

    python -m tests.deployment.wire.hostile_bytes --inputs 1000000 --seconds 600

feeds every decoder of the wire with them, from a fixed seed, and prints what came of it. It fails
at the first input that raises anything but `WireError` or holds more memory than it should.
"""

import argparse
import random
import resource
import time
from collections import Counter
from collections.abc import Callable

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.decoding import (
    read_answer_part,
    read_answer_reply,
    read_from_server,
    read_from_site,
    read_model_request,
    read_piece,
)
from fedcompass.errors import WireError

TASK, DIGEST = "A" * 22, "0" * 64
MOST_GROWTH = 64  # MB: some dozens of the longest message

MESSAGES: dict[Callable[[bytes], object], list[bytes]] = {
    read_from_site: [
        pb.FromSite(
            hello=pb.Hello(protocol=1, software="0.1.0", process="0" * 32, samples=5, layout=DIGEST)
        ).SerializeToString(),
        pb.FromSite(heartbeat=pb.Heartbeat(task=TASK)).SerializeToString(),
    ],
    read_model_request: [pb.ModelRequest(task=TASK, offset=7).SerializeToString()],
    read_answer_part: [
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
            )
        ).SerializeToString(),
        pb.AnswerPart(answer=pb.Answer(task=TASK, error="it failed")).SerializeToString(),
        pb.AnswerPart(data=bytes(range(256))).SerializeToString(),
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
    ],
    read_piece: [pb.Piece(data=bytes(100)).SerializeToString()],
    read_answer_reply: [
        pb.AnswerReply(receipt=pb.Receipt(task=TASK, accepted=True)).SerializeToString(),
        pb.AnswerReply(proceed=pb.Proceed(offset=10)).SerializeToString(),
    ],
}

BITS = [b"\x00", b"\xff" * 9 + b"\x01", b"\x80" * 10, b"\x0a\xff\xff\xff\xff\x0f", b"\x0b" * 200]


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
    except WireError as error:
        told = str(error)
    else:
        return True
    assert told.isprintable(), told
    assert len(told) < 400, told
    return False


def run(inputs: int, seconds: float, seed: int = 0) -> Counter[str]:
    """Feed so many inputs, as long as the time lasts."""
    chance, counts, ends = random.Random(seed), Counter[str](), time.monotonic() + seconds
    readers, every = list(MESSAGES), [raw for kind in MESSAGES.values() for raw in kind]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(inputs):
        read = readers[number % len(readers)]
        taken = try_one(read, damaged(chance, chance.choice(MESSAGES[read]), every))
        counts["taken" if taken else "refused"] += 1
        if number % 1000 == 0 and time.monotonic() > ends:
            break
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < MOST_GROWTH, f"memory grew by {grown:.0f} MB"
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts = run(given.inputs, given.seconds, given.seed)
    print(f"{sum(counts.values())} inputs: {counts['taken']} taken, {counts['refused']} refused")


if __name__ == "__main__":
    main()
