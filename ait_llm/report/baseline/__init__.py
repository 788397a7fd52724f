"""Two results of one program, an earlier and a later one: what became worse, and what is known."""

from ait_llm.report.baseline.changes import Against, Change, hold_against
from ait_llm.report.baseline.rows import FACTOR, Row, unique_rows

__all__ = ["FACTOR", "Against", "Change", "Row", "hold_against", "unique_rows"]
