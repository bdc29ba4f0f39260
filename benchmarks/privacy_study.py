"""Who spends what for which accuracy: the tables of studies/privacy-*.toml, from results/.

    python -m benchmarks.privacy_study

Last and best: the accuracy of the last evaluation and of the best one in percent, mean ± standard
deviation over seeds. Fastest, slowest, all: the mean ε that the fastest client has spent, the
slowest, and all on average.
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
    """A study's table in Markdown; of each budget, the seeds that have the runs of all rows."""
    plan = Sweep.from_toml(study).plan()
    found = Results.of_plan(plan, Store(ROOT / "results" / f"{study.stem}.jsonl"))
    missing = {(run.labels["budget"], run.seed) for run in found.runs if not run.is_done}
    cells: dict[tuple[str, str], list[Record]] = {}
    for run in found.runs:
        budget = run.labels["budget"]
        if run.record is not None and (budget, run.seed) not in missing:
            cells.setdefault((budget, run.labels["row"]), []).append(run.record)
    yield f"`{study.stem}`\n"
    yield "| budget | strategy | seeds | last | best | fastest | slowest | all | steps | updates |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for (budget, row), records in cells.items():
        last = _accuracy([record.numbers.final for record in records])
        best = _accuracy([record.numbers.top for record in records])
        told = [str(len(records)), last, best, _spent(records), _work(records)]
        yield f"| {budget} | {row} | {' | '.join(told)} |"


def _accuracy(values: list[float | None]) -> str:
    percent = [100 * (value or 0.0) for value in values]
    return f"{mean(percent):.1f}" + (f" ± {stdev(percent):.1f}" if len(percent) > 1 else "")


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
