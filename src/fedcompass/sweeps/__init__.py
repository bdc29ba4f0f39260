"""Many experiments, each run once: a grid in a file, a store of results, and tables of them.

`running.run_all` carries them out. It needs torch, and nothing here does.
"""

from fedcompass.sweeps.formats import csv_table, latex_table, markdown_table
from fedcompass.sweeps.record import Record, RunOutcome, failed_record, record_of
from fedcompass.sweeps.results import Entry, Results
from fedcompass.sweeps.store import Store
from fedcompass.sweeps.sweep_file import Planned, Sweep
from fedcompass.sweeps.tables import Cell, Comparison

__all__ = [
    "Cell",
    "Comparison",
    "Entry",
    "Planned",
    "Record",
    "Results",
    "RunOutcome",
    "Store",
    "Sweep",
    "csv_table",
    "failed_record",
    "latex_table",
    "markdown_table",
    "record_of",
]
