"""Where the two readings of CreateGroup give another schedule, and what it does to the work done.

    python -m benchmarks.create_group            # random fleets, the paper's settings of MNIST
    python -m benchmarks.create_group STORE …    # the runs of Compass that results are stored of

Nothing is trained: a schedule depends on the clients' speeds alone. Of a stored run, the schedule
is looked at for as long as that run lasted.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from fedcompass.experiment import Experiment
from fedcompass.paper_settings import strategy_settings
from fedcompass.simulation.result import Result
from fedcompass.simulation.run import simulate
from fedcompass.sweeps.store import Store

FLEETS = 40
MEAN_ROUNDS = 15  # as far as the tables of MNIST go under exponential speeds


def scheduled(experiment: Experiment, until: float) -> tuple[Result, Result]:
    """What happens up to a time under the pseudo-code's reading, and under the text's."""
    clamp, pass_over = (
        experiment.with_settings(
            {
                "horizon": until,
                "stop_at_target": False,
                "run_at_least": 0.0,
                "strategy": {"create_group": reading},
            }
        )
        for reading in ("clamp", "pass-over")
    )
    return simulate(clamp, executor="none"), simulate(pass_over, executor="none")


def differ(clamp: Result, pass_over: Result) -> bool:
    """Whether anybody was told to train at another time or for another number of steps."""
    one, other = (
        [(task.start, task.client, task.steps) for task in result.tasks]
        for result in (clamp, pass_over)
    )
    return one != other


def random_fleets() -> Iterator[str]:
    yield "| speeds | clients | another schedule | updates | merges | steps |"
    yield "|---|---|---|---|---|---|"
    for speed in ("exponential", "normal"):
        for clients in (5, 10, 20):
            fleet = {"clients": clients, "speed": speed}
            first = Experiment(data={"name": "mnist"}, fleet=fleet)
            steps = strategy_settings("mnist", clients)["steps"]
            until = MEAN_ROUNDS * steps * first.fleet.mean_seconds_per_step
            found = [scheduled(first.with_settings({"seed": n}), until) for n in range(FLEETS)]
            more = (
                mean(100 * (b.summary[what] / a.summary[what] - 1) for a, b in found)
                for what in ("updates", "global_updates", "local_steps")
            )
            counts = " | ".join(f"{percent:+.1f}%" for percent in more)
            changed = sum(differ(*pair) for pair in found)
            yield f"| {speed} | {clients} | {changed} of {FLEETS} | {counts} |"


def stored_runs(store: Path) -> Iterator[str]:
    cells: defaultdict[tuple[Any, ...], list[bool]] = defaultdict(list)
    for record in Store(store).done():
        settings = record.experiment
        strategy, fleet = settings["strategy"], settings["fleet"]
        if strategy["name"].startswith("fedcompass"):
            every = strategy.get("aim") == "latest" and strategy.get("warm_up") == "max"
            habits = "all habits" if every else "some or none"
            where = settings["partition"]["kind"], fleet["clients"], fleet["speed"]
            found = scheduled(Experiment(**settings), record.numbers.virtual_seconds)
            cells[habits, *where].append(differ(*found))
    yield f"{store.name}: runs of Compass\n"
    yield "| as run | partition | clients | speeds | another schedule |"
    yield "|---|---|---|---|---|"
    for cell, changed in sorted(cells.items()):
        yield f"| {' | '.join(map(str, cell))} | {sum(changed)} of {len(changed)} |"


def main() -> None:
    stores = [Path(argument) for argument in sys.argv[1:]]
    for lines in map(stored_runs, stores) if stores else [random_fleets()]:
        print("\n".join(lines), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
