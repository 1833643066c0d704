"""Reports of runs and comparisons: one page of HTML, pictures, and tables for papers and spreadsheets."""

from brainsurgeon.app.report.reading import read_record
from brainsurgeon.app.report.record import Outcome, Record
from brainsurgeon.app.report.write import write_report

__all__ = ["Outcome", "Record", "read_record", "write_report"]
