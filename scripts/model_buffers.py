"""Writes the tables of studies/model-buffers*.toml into docs/model-buffers.md, from results/.

    python scripts/model_buffers.py          # write them
    python scripts/model_buffers.py --check  # say whether they are up to date

The network of these studies is named from the root of the repository: run it there.
"""

import re
import sys
from collections.abc import Sequence
from itertools import product
from math import log
from pathlib import Path

from fedcompass.paper.stored_runs import value_at
from fedcompass.sweeps.formats import TextTable, markdown_table
from fedcompass.sweeps.interval import BySeed, over_seeds
from fedcompass.sweeps.results import Results
from fedcompass.sweeps.store import Store
from fedcompass.sweeps.sweep_file import Sweep

ROOT = Path(__file__).parent.parent
PAGE_FILE = ROOT / "docs" / "model-buffers.md"
_ROUNDS = (2, 3, 4, 10)  # mean rounds at which accuracies are read
_AXES = ("partition.kind", "fleet", "strategy.name", "strategy.model_buffers")
_BEFORE = "moving"
_SECTION = re.compile(r"(<!-- study: tables -->\n).*?(<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """The page with the tables as the results give them now."""
    tables = ""
    for study in sorted((ROOT / "studies").glob("model-buffers*.toml")):
        store = ROOT / "results" / f"{study.stem}.jsonl"
        for table in _tables(Sweep.from_toml(study), Store(store)) if store.exists() else ():
            tables += f"\n{markdown_table(table)}\n"
    return _SECTION.sub(lambda found: f"{found[1]}{tables}\n{found[2]}", text)


def _tables(sweep: Sweep, store: Store) -> tuple[TextTable, TextTable]:
    """How far the other ways are ahead of moving statistics, and all accuracies."""
    plan = sweep.plan()
    first = plan[0].experiment
    steps = first.strategy.get("max_steps") or first.strategy["steps"]
    mean_round = steps * first.fleet.mean_seconds_per_step
    rounds = [number for number in _ROUNDS if number * mean_round <= first.horizon]
    accuracy: dict[tuple[str, ...], dict[int, dict[int, float]]] = {}  # by cell, round and seed
    for run in Results.of_plan(plan, store).runs:
        if run.record is not None and run.record.is_done:
            cell = accuracy.setdefault(tuple(run.labels[axis] for axis in _AXES), {})
            curve = [(at, value) for at, _, value in run.record.curve if value is not None]
            for number in rounds:
                measured = value_at(curve, number * mean_round)
                cell.setdefault(number, {})[run.seed] = measured

    partitions, fleets, strategies, ways = (sweep.axes[axis] for axis in _AXES)
    leads = []
    for fleet, strategy, way in product(fleets, strategies, ways):
        if way != _BEFORE:
            pairs = [
                (accuracy[p, fleet, strategy, way], accuracy[p, fleet, strategy, _BEFORE])
                for p in partitions
            ]
            points = [
                _in_percent(
                    [
                        {seed: new[n][seed] - old[n][seed] for seed in new[n].keys() & old[n]}
                        for new, old in pairs
                    ],
                    "+.1f",
                )
                for n in rounds
            ]
            leads.append([fleet, strategy, way, *points])
    accuracies = [
        [*cell, *(_in_percent([accuracy[cell][n]], ".1f") for n in rounds)]
        for cell in product(partitions, fleets, strategies, ways)
    ]
    labels = ("partition", "speeds", "strategy", "statistics")
    at = [f"at {n}" for n in rounds]
    ahead = f"{sweep.name}: points of accuracy ahead of {_BEFORE}, over all partitions"
    return (
        TextTable(ahead, [*labels[1:], *at], leads, left=range(3)),
        TextTable(f"{sweep.name}: accuracy in %", [*labels, *at], accuracies, left=range(4)),
    )


def _in_percent(cells: Sequence[BySeed], form: str) -> str:
    """The mean over cells and its 95% interval over the seeds."""
    found = over_seeds(cells)  # of logarithms of ratios, and so gives their exponentials
    mean, low, high = (  # 0.0 makes a zero of what rounds to -0.0
        round(100 * log(value), 1) + 0.0 for value in (found.mean, found.low, found.high)
    )
    return f"{mean:{form}} [{low:{form}}, {high:{form}}]" if found.is_known else f"{mean:{form}}"


def main() -> None:
    """Write the page, or with --check fail where it is not what the results give."""
    old = PAGE_FILE.read_text(encoding="utf-8")
    new = page(old)
    if "--check" not in sys.argv:
        PAGE_FILE.write_text(new, encoding="utf-8")
    elif new != old:
        sys.exit(f"{PAGE_FILE} is not what results/ gives; run: python scripts/model_buffers.py")


if __name__ == "__main__":
    main()
