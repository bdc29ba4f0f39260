"""Who spends what for which accuracy: the tables of studies/privacy-*.toml, from results/.

    python -m benchmarks.privacy_study

A row is a strategy. Accuracy is that of the last evaluation, mean ± standard deviation over seeds;
spent is the mean ε of the fastest client, of the slowest, and of all.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev

from fedcompass.settings.simulation import FleetSettings
from fedcompass.simulation.fleet import Fleet
from fedcompass.sweeps.record import Record
from fedcompass.sweeps.results import Results
from fedcompass.sweeps.store import Store
from fedcompass.sweeps.sweep_file import Sweep

ROOT = Path(__file__).parent.parent


def lines_of(study: Path) -> Iterator[str]:
    """A study's table in Markdown, of the seeds that have all their runs."""
    plan = Sweep.from_toml(study).plan()
    found = Results.of_plan(plan, Store(ROOT / "results" / f"{study.stem}.jsonl"))
    cells: dict[tuple[str, str], list[Record]] = {}
    for run in found.runs:
        if run.record is not None and run.record.is_done and run.record.seed in _whole(found):
            cells.setdefault((run.labels["budget"], run.labels["row"]), []).append(run.record)
    seeds = ", ".join(map(str, sorted(_whole(found))))
    yield f"{study.stem}: seeds {seeds or 'none yet'}"
    yield "| budget | strategy | accuracy | spent: fastest | slowest | all | steps | updates |"
    yield "|---|---|---|---|---|---|---|---|"
    for (budget, row), records in cells.items():
        yield f"| {budget} | {row} | {_accuracy(records)} | {_spent(records)} | {_work(records)} |"


def _whole(found: Results) -> set[int]:
    """The seeds of which no run is missing."""
    missing = {run.seed for run in found.runs if run.record is None or not run.record.is_done}
    return {run.seed for run in found.runs} - missing


def _accuracy(records: list[Record]) -> str:
    finals = [100 * (record.numbers.final or 0.0) for record in records]
    return f"{mean(finals):.1f}" + (f" ± {stdev(finals):.1f}" if len(finals) > 1 else "")


def _spent(records: list[Record]) -> str:
    ends, everybody = [], []
    for record in records:
        spent = record.numbers.epsilon_per_client
        if spent is None:
            return "– | – | –"
        paces = Fleet(FleetSettings(**record.experiment["fleet"]), record.seed).paces
        ends.append((spent[paces.index(min(paces))], spent[paces.index(max(paces))]))
        everybody.append(mean(spent))
    fastest, slowest = (mean(values) for values in zip(*ends, strict=True))
    return f"{fastest:.2f} | {slowest:.2f} | {mean(everybody):.2f}"


def _work(records: list[Record]) -> str:
    steps = mean(record.numbers.local_steps for record in records)
    return f"{steps:.0f} | {mean(record.numbers.updates for record in records):.0f}"


def main() -> None:
    for study in sorted((ROOT / "studies").glob("privacy-*.toml")):
        print("\n".join(lines_of(study)), end="\n\n")


if __name__ == "__main__":
    main()
