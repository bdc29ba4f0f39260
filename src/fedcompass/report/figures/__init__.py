"""Figures for papers, drawn from run folders with matplotlib; they need the `plot` extra."""

from fedcompass.report.figures.accuracy import draw_accuracy
from fedcompass.report.figures.records import RunRecord, read_runs
from fedcompass.report.figures.split_and_speeds import draw_fleets_of, draw_partition_of
from fedcompass.report.figures.staleness import draw_staleness
from fedcompass.report.figures.style import COLUMN, PAGE
from fedcompass.report.figures.timeline import draw_timeline

__all__ = [
    "COLUMN",
    "PAGE",
    "RunRecord",
    "draw_accuracy",
    "draw_fleets_of",
    "draw_partition_of",
    "draw_staleness",
    "draw_timeline",
    "read_runs",
]
