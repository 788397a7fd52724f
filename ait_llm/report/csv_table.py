"""The manual's csv: one row for each comparison, with its 22 columns.

Comparisons of compiled graphs have more behind them; see :data:`COMPILED_COLUMNS`.
"""

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
COMPILED_COLUMNS = (
    *("rank", "graph", "step", "call", "ge_op_name", "ge_op_type", "fused_from", "fx_node"),
    *("side", "index", "match_kind", "nan_count_golden", "nan_count_my", "suspect"),
)
"""Behind the others where compiled graphs were compared.

``step`` counts executions of the graph, ``call`` those of the operator within one of them;
``match_kind`` is ``Comparison.relation``, and ``suspect`` is 1 where an error starts.
"""


@writers.register("csv")
def write_csv(report: Report, path: Path) -> Sequence[Path]:
    """Write every comparison as a row; none is left out, whatever became of it."""
    with replacing(path) as file:
        table = csv.writer(file, lineterminator="\n")
        compiled = any(item.record.graph for item in report.comparisons)
        suspects = {origin.index for origin in report.origins}
        table.writerow((*COLUMNS, *COMPILED_COLUMNS) if compiled else COLUMNS)
        for data_id, item in enumerate(report.comparisons):
            cells = row(data_id, item)
            if compiled:
                cells += compiled_cells(item, suspect=data_id in suspects)
            table.writerow(cells)
    return (path,)


def compiled_cells(item: Comparison, *, suspect: bool) -> list[str]:
    """The cells of one comparison of compiled graphs, in the order of :data:`COMPILED_COLUMNS`."""
    record = item.record
    sides = [side for side in (item.mine, item.golden) if side is not None]
    node = next((side for side in sides if _is_fx(side)), None)
    operator = next((side for side in sides if not _is_fx(side)), None)
    counts = [
        "" if summary is None else str(summary.nan)
        for summary in (item.golden_summary, item.my_summary)
    ]
    return [
        "" if record.rank < 0 else str(record.rank),
        safe_cell(record.graph),
        "" if record.graph_step < 0 else str(record.graph_step),
        str(record.call),
        safe_cell(operator.op) if operator else "",
        safe_cell(operator.op_type) if operator else "",
        safe_cell(" + ".join(operator.parts)) if operator else "",
        safe_cell(node.op) if node else "",
        {"in": "input", "out": "output"}.get(record.role, record.role),
        str(record.index),
        item.relation,
        *counts,
        "1" if suspect else "0",
    ]


def _place(record: TensorRecord | None) -> str:
    """The file, and which tensor in it where a file of the graph engine holds several."""
    path = path_text(record)
    if record is None or not record.graph or _is_fx(record):
        return path
    return f"{path},{record.role}puts,{record.index}"


def _is_fx(record: TensorRecord) -> bool:
    """True for a tensor of an FX dump: each is a file of its own with the node's name."""
    return record.path.endswith(".npy")


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
    yield safe_cell(_place(record))
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
