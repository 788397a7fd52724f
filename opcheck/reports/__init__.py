"""What a check found, as files. A format is one function that registers with :data:`writers`."""

from ait_llm.opcheck.reports import machine, markdown, table  # they register their formats
from ait_llm.opcheck.reports.machine import as_json
from ait_llm.opcheck.reports.writing import SUFFIXES, free_stem, write_reports, writers

__all__ = [
    "SUFFIXES",
    "as_json",
    "free_stem",
    "machine",
    "markdown",
    "table",
    "write_reports",
    "writers",
]
