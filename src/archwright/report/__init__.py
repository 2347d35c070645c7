"""What people see of a run: one HTML page that opens from disk, offline. Reads runs and their answers only."""

from archwright.report.compared import report_comparison
from archwright.report.page import report_run

__all__ = ["report_comparison", "report_run"]
