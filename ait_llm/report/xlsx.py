"""The report as a workbook: a summary, every comparison coloured by verdict, what is missing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ait_llm.core.comparison import Comparison, Report, SideSummary, TensorRecord, Verdict
from ait_llm.core.optional import import_optional
from ait_llm.naming import escaped
from ait_llm.report.operations import not_compared
from ait_llm.report.wording import (
    dtype_text,
    index_text,
    kind_text,
    missing_text,
    path_text,
    shape_text,
    why_not,
)
from ait_llm.report.workbooks import workbook
from ait_llm.report.writing import writers

MAX_ROWS = 1_048_576  # of a sheet, by its format
MAX_TEXT = 32_767  # characters of a cell, by its format

_FILLS = {
    Verdict.PASS: "C6EFCE",
    Verdict.FAIL: "FFC7CE",
    Verdict.SKIPPED: "FFEB9C",
    Verdict.ERROR: "E4CCF5",
}
_WIDTHS = {"op": 36, "id": 12, "type": 24, "tensor": 14, "reason": 60, "path": 40}

Cell = Any  # a value or one of openpyxl's cells


def _side_columns(name: str) -> list[str]:
    numbers = ("max", "min", "mean", "norm", "nan", "inf")
    return [f"{name} {what}" for what in ("dtype", "shape", "view", *numbers)]


@writers.register("xlsx")
def write_xlsx(report: Report, path: Path, *, rows_per_sheet: int = MAX_ROWS) -> Sequence[Path]:
    """Write the workbook; comparisons go on in another sheet where one is full.

    Args:
        report: what to write; every comparison becomes one row.
        path: the file.
        rows_per_sheet: rows of one sheet, its header included.

    Raises:
        MissingDependencyError: openpyxl is not installed.
    """
    with workbook(path) as book:
        style = _Style()
        _fill(book, "summary", style, ("what", "value"), _summary(report), rows_per_sheet)
        # made one by one while openpyxl streams them to disk
        rows = (_row(report, item) for item in report.comparisons)
        _fill(book, "comparisons", style, _columns(report), rows, rows_per_sheet)
        columns = ("reason", "count", "example", "verdict")
        _fill(book, "not compared", style, columns, _missing(report), rows_per_sheet)
    return (path,)


class _Style:
    """Cells with colours, and text that is never taken for a formula."""

    def __init__(self) -> None:
        self._cell = import_optional("openpyxl.cell", "writing xlsx reports", "xlsx").WriteOnlyCell
        styles = import_optional("openpyxl.styles", "writing xlsx reports", "xlsx")
        self._bold = styles.Font(bold=True)
        self._fills = {
            verdict: styles.PatternFill("solid", start_color=colour, end_color=colour)
            for verdict, colour in _FILLS.items()
        }

    def text(self, sheet: Any, value: str) -> Cell:
        """Text with what cannot be printed escaped, of which a workbook cannot hold the most."""
        value = escaped(value, "\n\t")
        if len(value) > MAX_TEXT:
            value = value[: MAX_TEXT - 1] + "…"
        if not value.startswith(("=", "#")):
            return value
        cell = self._cell(sheet, value=value)
        cell.data_type = "s"  # openpyxl would make it a formula or an error
        return cell

    def head(self, sheet: Any, value: str) -> Cell:
        """A column's name."""
        cell = self._cell(sheet, value=value)
        cell.font = self._bold
        return cell

    def verdict(self, sheet: Any, verdict: Verdict) -> Cell:
        """A verdict in its colour."""
        cell = self._cell(sheet, value=verdict.value)
        cell.fill = self._fills[verdict]
        return cell

    def any(self, sheet: Any, value: object) -> Cell:
        """A value by its type; NaN becomes an empty cell, infinities text."""
        if isinstance(value, Verdict):
            return self.verdict(sheet, value)
        if isinstance(value, str):
            return self.text(sheet, value)
        if isinstance(value, float) and not math.isfinite(value):
            return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
        return value


def _fill(
    book: Any,
    title: str,
    style: _Style,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    rows_per_sheet: int,
) -> None:
    """Stream rows into one sheet, or several: ``comparisons``, ``comparisons 2``."""
    sheet: Any = None
    number = 0
    used = rows_per_sheet
    for row in rows:
        if used >= rows_per_sheet:
            number += 1
            sheet = _sheet(book, title if number == 1 else f"{title} {number}", style, columns)
            used = 1
        sheet.append([style.any(sheet, value) for value in row])
        used += 1
    if sheet is None:
        _sheet(book, title, style, columns)


def _sheet(book: Any, title: str, style: _Style, columns: Sequence[str]) -> Any:
    letters = import_optional("openpyxl.utils", "writing xlsx reports", "xlsx")
    sheet = book.create_sheet(title)
    sheet.freeze_panes = "A2"
    for place, name in enumerate(columns, 1):
        width = next((width for key, width in _WIDTHS.items() if key in name.split()), 16)
        sheet.column_dimensions[letters.get_column_letter(place)].width = width
    sheet.append([style.head(sheet, name) for name in columns])
    return sheet


def _summary(report: Report) -> Iterator[tuple[object, object]]:
    yield "verdict", report.verdict
    yield "partial", "yes: interrupted before everything was compared" if report.partial else "no"
    yield "scenario", report.scenario
    yield "golden", report.golden.path
    yield "mine", report.mine.path
    for verdict, count in report.counts.items():
        yield verdict.value, count
    for origin in report.origins:
        where = f"{origin.op} {origin.op_id}".strip()
        yield "error started at", f"{where}, token {origin.step}: {origin.evidence}"
        if origin.kind:
            yield "kind of bug", kind_text(origin)
    for problem in report.problems:
        yield f"{'missing' if problem.decides else 'note'} ({problem.side})", problem.text
    for name, value in report.options.items():
        yield f"option {name}", str(value)
    yield "started", report.started
    yield "finished", report.finished


def _columns(report: Report) -> list[str]:
    return [
        "token", "device", "process", "op", "id", "type", "tensor", "role", "verdict", "reason",
        *report.metrics,
        "golden op", "golden tensor",
        *_side_columns("golden"), *_side_columns("my"),
        "rule", "confidence", "why matched", "tolerance", "would pass",
        "worst index", "worst golden", "worst mine", "first not finite",
        "inherited", "introduced", "metrics without value", "golden path", "my path",
    ]  # fmt: skip


def _row(report: Report, item: Comparison) -> list[object]:
    record = item.record
    golden = item.golden
    worst = item.worst_values or (None, None)
    return [
        record.step, record.device, record.pid, record.op, record.op_id, record.op_type,
        record.name, record.role, item.verdict, why_not(item),
        *(item.values.get(name) for name in report.metrics),
        golden.op if golden else "", golden.name if golden else "",
        *_side_cells(golden, item.golden_view, item.golden_summary),
        *_side_cells(item.mine, item.my_view, item.my_summary),
        item.rule, item.confidence, item.why, _limits(item.tolerance), _limits(item.needed),
        index_text(item.worst), *worst, index_text(item.first_bad),
        item.inherited, item.introduced, missing_text(item.missing, report.metrics),
        path_text(golden), path_text(item.mine),
    ]  # fmt: skip


def _side_cells(
    record: TensorRecord | None, view: str, summary: SideSummary | None
) -> list[object]:
    cells: list[object] = [
        dtype_text(record.dtype) if record else "",
        shape_text(record.shape) if record else "",
        view,
    ]
    names = ("max", "min", "mean", "norm", "nan", "inf")
    return cells + [getattr(summary, name) if summary else None for name in names]


def _limits(limits: Any) -> str:
    return "; ".join(f"{name} {value:g}" for name, value in limits.items())


def _missing(report: Report) -> Iterator[tuple[object, ...]]:
    for reason, count, example in not_compared(report):
        yield reason, count, example.record.title, example.verdict
    for problem in report.problems:
        yield f"{problem.side}: {problem.text}", None, "", ""
