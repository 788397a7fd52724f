"""The manual's csv: one row for each comparison, with exactly its 22 columns."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from ait_llm.core.comparison import Comparison, Report, SideSummary, TensorRecord, Verdict
from ait_llm.report.files import replacing
from ait_llm.report.wording import (
    dtype_text,
    missing_text,
    path_text,
    printable,
    shape_text,
    why_not,
)
from ait_llm.report.writing import writers

METRICS = (
    "cosine_similarity",
    "max_relative_error",
    "mean_relative_error",
    "max_absolute_error",
    "mean_absolute_error",
    "kl_divergence",
    "relative_euclidean_distance",
)


def _side(name: str) -> tuple[str, ...]:
    data = ("data_path", "dtype", "shape", "max_value", "min_value", "mean_value")
    return tuple(f"{name}_{what}" for what in data)


COLUMNS = ("token_id", "data_id", *_side("golden"), *_side("my"), *METRICS, "cmp_fail_reason")


@writers.register("csv")
def write_csv(report: Report, path: Path) -> Sequence[Path]:
    """Write every comparison as a row; none is left out, whatever became of it."""
    with replacing(path) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for data_id, item in enumerate(report.comparisons):
            table.writerow(row(data_id, item))
    return (path,)


def row(data_id: int, item: Comparison) -> list[str]:
    """The cells of one comparison, in the order of :data:`COLUMNS`."""
    return [
        str(item.record.step),
        str(data_id),
        *_cells(item.golden, item.golden_summary),
        *_cells(item.mine, item.my_summary),
        *(number_cell(item.values.get(name)) for name in METRICS),
        safe_cell(fail_reason(item)),
    ]


def fail_reason(item: Comparison) -> str:
    """``FAIL: why``; for a PASS only why a metric of this table has no value."""
    texts = [] if item.verdict is Verdict.PASS else [f"{item.verdict.value}: {why_not(item)}"]
    missing = missing_text(item.missing, METRICS)
    # A pair without numbers has said why already.
    if missing and item.verdict in (Verdict.PASS, Verdict.FAIL):
        texts.append(missing)
    return "; ".join(texts)


def _cells(record: TensorRecord | None, summary: SideSummary | None) -> Iterator[str]:
    yield safe_cell(path_text(record))
    yield dtype_text(record.dtype) if record else ""
    yield shape_text(record.shape) if record else ""
    for name in ("max", "min", "mean"):
        yield number_cell(getattr(summary, name) if summary else None)


def number_cell(value: float | None) -> str:
    """The shortest text that reads back as the same number; empty for NaN and None."""
    return "" if value is None or math.isnan(value) else repr(float(value))


def safe_cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula: names in a dump are not to be trusted."""
    if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        text = "'" + text
    return printable(text)  # a line end in a name would make two rows of one
