"""Figures for papers, drawn from run folders with matplotlib; they need the `plot` extra."""

from fedcompass.figures.accuracy import draw_accuracy
from fedcompass.figures.records import RunRecord, read_runs
from fedcompass.figures.split_and_speeds import draw_fleets_of, draw_partition_of
from fedcompass.figures.staleness import draw_staleness
from fedcompass.figures.style import COLUMN, PAGE
from fedcompass.figures.timeline import draw_timeline

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
