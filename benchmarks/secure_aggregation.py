"""CPU seconds of one secure round, at a member and at the server, beside plain sums."""

import operator
import os
from collections.abc import Callable
from time import process_time
from typing import ParamSpec, TypeVar

import numpy as np

from fedcompass.secure_aggregation.member import MaskingMember
from fedcompass.secure_aggregation.messages import FromMember, Send, SumOpened, Unsigned
from fedcompass.secure_aggregation.server_round import ServerRound
from fedcompass.secure_aggregation.terms import terms_for

P = ParamSpec("P")
T = TypeVar("T")


class Clock:
    """CPU seconds spent inside what it runs."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        begun = process_time()
        result = work(*args, **kwargs)
        self.seconds += process_time() - begun
        return result


def round_seconds(count: int, length: int) -> tuple[float, float, float]:
    """Of a member, on average; of the server; and of a plain sum of the same vectors."""
    names = tuple(f"site-{number:03}" for number in range(count))
    terms = terms_for("benchmark", 1, names, length, clip=1.0)
    values = np.random.default_rng(0).uniform(-1, 1, length).astype(np.float32)
    members = {name: MaskingMember(name, Unsigned(), os.urandom) for name in names}
    at_members, at_server, plain, server = Clock(), Clock(), Clock(), ServerRound(terms)
    waiting: list[FromMember] = [
        at_members.run(member.begin, terms, values, 1 / count) for member in members.values()
    ]
    while waiting:
        for output in at_server.run(server.handle, waiting.pop(0)):
            if isinstance(output, Send):
                waiting += at_members.run(members[output.to].handle, output.message)
            else:
                assert isinstance(output, SumOpened)
                assert np.abs(output.values - values).max() <= terms.encoding.error_bound
    total = np.zeros_like(values)
    for _ in names:
        plain.run(operator.iadd, total, values)
    return at_members.seconds / count, at_server.seconds, plain.seconds


def main() -> None:
    for count, length in ((5, 600_000), (20, 600_000)):
        member, server, plain = round_seconds(count, length)
        print(
            f"{count} members, {length} values: {member:.2f} s each, {server:.2f} s at the server "
            f"(goal: below 1), a plain sum {plain:.3f} s"
        )


if __name__ == "__main__":
    main()
