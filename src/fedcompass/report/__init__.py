"""Run folders as one page: a self-contained file, or live while the run goes on."""

from fedcompass.report.live_server import LiveServer
from fedcompass.report.run_files import RunFiles, find_runs
from fedcompass.report.written import write_report

__all__ = ["LiveServer", "RunFiles", "find_runs", "write_report"]
