"""What `fedcompass deploy` says about checks and runs, in words and tables."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcompass.cli.text import plain_table
from fedcompass.number_text import epsilon_text, metric_text, number_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedcompass.deployment.operator.checks import CheckResult
    from fedcompass.deployment.operator.demo import DemoRun

__all__ = ["finding_line", "run_told", "runs_compared", "seeds_told", "summary_line"]


def finding_line(finding: "CheckResult") -> str:
    """One check."""
    mark = {True: "ok", False: "WRONG", None: "-"}[finding.ok]
    return f"{mark:<6}{finding.what:<14}{finding.says}"


def summary_line(path: Path) -> str:
    """How a run ended."""
    summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    metric = summary["target_metric"]
    best = summary.get(f"top_{metric}")
    measured = "" if best is None else f", best {metric} {metric_text(metric, best)}"
    merged = number_of(summary["global_updates"], "global update")
    return (
        f"over ({summary['reason']}) after {summary['seconds']:.0f} s and "
        f"{merged}{measured}{_wrong(summary)}{_spent(summary)}; "
        f"see {path}"
    )


def _spent(summary: "Mapping[str, Any]") -> str:
    """What each site has spent of its privacy budget, and who has left for that; mostly nothing."""
    sites = sorted(summary.get("sites", {}).items())
    told = [(name, site["epsilon"]) for name, site in sites if site.get("epsilon") is not None]
    spent = ", ".join(f"{name} {epsilon_text(epsilon)}" for name, epsilon in told)
    left = ", ".join(name for name, site in sites if site.get("budget_spent"))
    parts = ((spent, "; epsilon spent: "), (left, "; budget spent, left: "))
    return "".join(f"{what}{names}" for names, what in parts if names)


def _wrong(summary: "Mapping[str, Any]") -> str:
    """What did not go well in a run."""
    refused, excluded = summary.get("refused_not_finite", 0), summary.get("quarantined", [])
    told = f"; {number_of(refused, 'update')} refused for NaN or infinity" if refused else ""
    return told + (f"; in quarantine: {', '.join(excluded)}" if excluded else "")


def run_told(run: "DemoRun") -> str:
    """What one run of the demo showed."""
    summary = run.summary
    reached = summary["time_to_target"]
    target = f"{summary['target']:.0%} accuracy"
    when = f"{target} after {reached:.1f} s" if reached is not None else f"{target} not reached"
    spread = summary["arrival_spread"]
    groups = len(summary["arrival_spreads"])
    told = "no group had two answers" if spread is None else f"{spread:.1%} of the round's length"
    rows = [
        (
            name,
            str(site["updates"]),
            str(site["steps"]),
            f"{site['idle_share']:.0%}",
            f"{site['overhead_share']:.0%}",
        )
        for name, site in sorted(summary["sites"].items())
    ]
    header = ("site", "updates", "steps", "idle", "overhead")
    table = plain_table(header, rows, left=(0,))
    return "\n".join(
        [
            f"{run.strategy}: {when} (wall time){_wrong(summary)}",
            f"  global updates     {summary['global_updates']} from {summary['updates']} answers, "
            f"{summary['local_steps']:,} local steps",
            f"  arrival spread     {told} (mean of {groups} merges)",
            f"  sites waited       {summary['idle_share']:.0%} of their time",
            *(f"    {line}" for line in table.splitlines()),
            f"  record             {run.folder}",
        ]
    )


def runs_compared(runs: "list[DemoRun]") -> str:
    """How much longer the second run took to the same accuracy."""
    first, second = runs
    if first.time_to_target is None or second.time_to_target is None:
        missing = " and ".join(run.strategy for run in runs if run.time_to_target is None)
        return f"no comparison: {missing} did not reach the target"
    ratio = second.time_to_target / first.time_to_target
    return (
        f"to the same accuracy, on the same sites: {first.strategy} {first.time_to_target:.1f} s, "
        f"{second.strategy} {second.time_to_target:.1f} s ({ratio:.2f} times as long)"
    )


def seeds_told(by_seed: "Mapping[int, list[DemoRun]]") -> str:
    """All runs of all seeds in one table, none left out."""
    header = ("seed", "strategy", "to target (s)", "times as long", "spread", "idle", "overhead")
    rows = [
        (str(seed), run.strategy, *_seed_row(run, runs[0]))
        for seed, runs in by_seed.items()
        for run in runs
    ]
    return plain_table(header, rows, left=(1,))


def _seed_row(run: "DemoRun", first: "DemoRun") -> tuple[str, str, str, str, str]:
    summary, mine, its = run.summary, run.time_to_target, first.time_to_target
    overheads = [site["overhead_share"] for site in summary["sites"].values()]
    spread = summary["arrival_spread"]
    return (
        "not reached" if mine is None else f"{mine:.1f}",
        "-" if mine is None or its is None else f"{mine / its:.2f}",
        "-" if spread is None else f"{spread:.1%}",
        f"{summary['idle_share']:.0%}",
        f"{min(overheads):.1%} to {max(overheads):.1%}" if overheads else "-",
    )
