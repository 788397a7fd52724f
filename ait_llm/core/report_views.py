"""A report as a data frame, as a line and as a small table of HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ait_llm.core.optional import import_optional

if TYPE_CHECKING:
    import pandas

    from ait_llm.core.comparison import Comparison, Report, TensorRecord

_FIELDS = {
    "step": "int64",
    "rank": "Int64",
    "op": "object",
    "op_type": "object",
    "tensor": "object",
    "role": "object",
    "golden_op": "object",
    "golden_tensor": "object",
    "verdict": "object",
    "reason": "object",
    "comparable": "bool",
    "origin": "bool",
    "dtype": "object",
    "golden_dtype": "object",
    "shape": "object",
    "golden_shape": "object",
    "limit": "float64",
    "inherited": "float64",
    "introduced": "float64",
    "path": "object",
    "golden_path": "object",
}
_LIMIT = "relative_euclidean_distance"


def frame_of(report: Report) -> pandas.DataFrame:
    """One row for each comparison, in the order of the report; see ``Report.to_pandas``.

    Raises:
        MissingDependencyError: pandas is not installed.
    """
    library: Any = import_optional("pandas", "a data frame of a report")
    origins = {origin.index for origin in report.origins}
    rows = [
        _row(item, report.metrics, is_origin=place in origins)
        for place, item in enumerate(report.comparisons)
    ]
    kinds = _FIELDS | dict.fromkeys(report.metrics, "float64")
    found: pandas.DataFrame = library.DataFrame(rows, columns=list(kinds)).astype(kinds)
    return found


def _row(item: Comparison, metrics: Sequence[str], *, is_origin: bool) -> dict[str, Any]:
    record, golden, mine = item.record, item.golden, item.mine
    return {
        "step": record.step,
        "rank": None if record.rank < 0 else record.rank,
        "op": mine.op if mine else "",
        "op_type": record.op_type,
        "tensor": mine.name if mine else "",
        "role": record.role,
        "golden_op": golden.op if golden else "",
        "golden_tensor": golden.name if golden else "",
        "verdict": item.verdict.value,
        "reason": item.reason,
        "comparable": item.comparable,
        "origin": is_origin,
        "dtype": _type(mine),
        "golden_dtype": _type(golden),
        "shape": mine.shape if mine else None,
        "golden_shape": golden.shape if golden else None,
        "limit": item.tolerance.get(_LIMIT),
        "inherited": item.inherited,
        "introduced": item.introduced,
        "path": mine.path if mine else "",
        "golden_path": golden.path if golden else "",
        **{name: item.values.get(name) for name in metrics},
    }


def _type(record: TensorRecord | None) -> str:
    return record.dtype.label if record and record.dtype is not None else ""


def line_of(report: Report) -> str:
    """``<Report FAIL: 3 of 120 compared tensors fail, started at root.model.norm>``."""
    return f"<Report {_verdict(report)}: {'; '.join(_facts(report).values())}>"


def html_of(report: Report) -> str:
    """The same as a table."""
    cells = {"verdict": _verdict(report)} | _facts(report)
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in cells.items()
    )
    return f"<table>{rows}</table>"


def _verdict(report: Report) -> str:
    return report.verdict.value if report.verdict.value != "SKIPPED" else "INCOMPLETE"


def _facts(report: Report) -> dict[str, str]:
    failed = sum(1 for item in report.comparisons if item.verdict.value == "FAIL")
    found = {"compared": f"{failed} of {report.compared} compared tensors fail"}
    if report.missing:
        found["missing"] = f"{report.missing} tensors were not compared"
    problems = [problem.text for problem in report.problems if problem.decides]
    if problems:
        found["problem"] = problems[0]
    if report.origins:
        origin = report.origins[0]
        sure = "" if origin.certain else f" or one of {len(origin.candidates)} others"
        found["started"] = f"started at {origin.op}{sure}"
        found["why"] = origin.evidence
    return found
