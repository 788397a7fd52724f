"""Reports: what a comparison found, in the formats that people and machines read."""

from ait_llm.report import csv_table, html_page, junit, parquet, xlsx
from ait_llm.report.jsonl import JsonlWriter, read_jsonl
from ait_llm.report.ledger_table import ledger_path, write_ledger
from ait_llm.report.terminal import terminal_lines
from ait_llm.report.writing import Writer, free_stamp, report_path, write_reports, writers

__all__ = [
    "JsonlWriter",
    "Writer",
    "csv_table",
    "free_stamp",
    "html_page",
    "junit",
    "ledger_path",
    "parquet",
    "read_jsonl",
    "report_path",
    "terminal_lines",
    "write_ledger",
    "write_reports",
    "writers",
    "xlsx",
]
