"""A report as a data frame, as a line and as a small table of HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ait_llm.core import frames
from ait_llm.core.frames import FLAG, MAYBE_WHOLE, REAL, SIZES, TEXT, WHOLE

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from ait_llm.core.comparison import Comparison, Report, TensorRecord

_FIELDS = {
    "step": WHOLE,
    "rank": MAYBE_WHOLE,
    "op": TEXT,
    "op_type": TEXT,
    "tensor": TEXT,
    "role": TEXT,
    "golden_op": TEXT,
    "golden_tensor": TEXT,
    "verdict": TEXT,
    "reason": TEXT,
    "comparable": FLAG,
    "origin": FLAG,
    "dtype": TEXT,
    "golden_dtype": TEXT,
    "shape": SIZES,
    "golden_shape": SIZES,
    "limit": REAL,
    "inherited": REAL,
    "introduced": REAL,
    "path": TEXT,
    "golden_path": TEXT,
}
_LIMIT = "relative_euclidean_distance"


def frame_of(report: Report) -> pandas.DataFrame:
    """One row for each comparison, in the order of the report; see ``Report.to_pandas``.

    Raises:
        MissingDependencyError: pandas is not installed.
    """
    return frames.to_pandas(_rows(report), _columns(report), "a report")


def arrow_of(report: Report) -> pyarrow.Table:
    """The same as a table of Arrow.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """
    return frames.to_arrow(_rows(report), _columns(report), "a report")


def _columns(report: Report) -> frames.Columns:
    return _FIELDS | dict.fromkeys(report.metrics, REAL)


def _rows(report: Report) -> Iterator[dict[str, Any]]:
    origins = {origin.index for origin in report.origins}
    for place, item in enumerate(report.comparisons):
        yield _row(item, report.metrics, is_origin=place in origins)


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
    return frames.html_table({"verdict": _verdict(report)} | _facts(report))


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
