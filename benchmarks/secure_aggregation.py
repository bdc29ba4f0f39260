"""What a secure merge costs beside a plain one: CPU seconds and bytes."""

import sys
from time import process_time

import numpy as np

from fedcompass.secure_aggregation.messages import SumOpened
from fedcompass.secure_aggregation.terms import terms_for
from fedcompass.simulation.masked_sums import RoundCost, open_locally

SITES = (5, 20, 50)
PARAMETERS = (600_000, 11_000_000)
GOAL_SITES, GOAL_PARAMETERS, GOAL_SECONDS = 20, 600_000, 1.0


def one_merge(count: int, length: int) -> tuple[RoundCost, float]:
    """The cost of a merge by masked sums, and the CPU seconds of a plain one."""
    names = tuple(f"site-{number:03}" for number in range(count))
    terms = terms_for("benchmark", 1, names, length, clip=1.0)
    values = np.random.default_rng(0).uniform(-1, 1, length)
    mine = values / count
    end, cost = open_locally(terms, dict.fromkeys(names, mine))
    assert isinstance(end, SumOpened)
    assert np.abs(end.values - values).max() <= terms.encoding.error_bound + 1e-12
    plain = values.astype(np.float32)
    total = np.zeros_like(plain)
    began = process_time()
    for _ in names:
        total += (1 / count) * plain
    return cost, process_time() - began


def main() -> None:
    sizes = [int(size) for size in sys.argv[1:]] or PARAMETERS
    costs: dict[tuple[int, int], float] = {}
    print("| sites | parameters | member, s | server, s | server / plain | bytes up / plain |")
    print("|---|---|---|---|---|---|")
    for length in sizes:
        for count in SITES:
            cost, plain = one_merge(count, length)
            up = cost.bytes_up / (4 * length * count)
            print(
                f"| {count} | {length / 1e6:g} M | {cost.member_seconds:.2f} | "
                f"{cost.server_seconds:.2f} | {cost.server_seconds / plain:.0f} | {up:.3f} |",
                flush=True,
            )
            costs[count, length] = cost.member_seconds + cost.server_seconds
    whole = costs.get((GOAL_SITES, GOAL_PARAMETERS))
    if whole is not None:
        said = "met" if whole < GOAL_SECONDS else "missed"
        print(
            f"goal, {GOAL_SITES} sites and {GOAL_PARAMETERS / 1e6:g} M: a merge below "
            f"{GOAL_SECONDS:g} s; a member's and the server's CPU: {whole:.2f} s, {said}"
        )


if __name__ == "__main__":
    main()
