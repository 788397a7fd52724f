"""The manual's table: one row for each output, as csv or as a workbook."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from ait_llm.core.comparison import Verdict
from ait_llm.core.optional import import_optional
from ait_llm.errors import UsageError
from ait_llm.opcheck.element_errors import LEVELS
from ait_llm.opcheck.outcome import Checked, OpcheckReport
from ait_llm.opcheck.reports.writing import writers
from ait_llm.report.csv_table import number_cell, safe_cell
from ait_llm.report.files import replacing
from ait_llm.report.wording import absolute_text, index_text

_STATES = {
    Verdict.PASS: "execution successful",
    Verdict.FAIL: "execution successful",
    Verdict.ERROR: "execution failed",
    Verdict.SKIPPED: "addition failed",
}
_MANUAL = (
    "op_id",
    "op_name",
    "op_param(json)",
    "tensor_path",
    "out_tensor_id",
    "precision_standard",
    "excuted_information",  # so spelled
    "precision_result(%)",
    "max_rel_error",
)
_OPTIONAL = {
    "abs": ("abs_precision_result(%)", "max_abs_error"),
    "cos_sim": ("cosine_similarity",),
    "kl": ("kl_divergence",),
}
_RERUN = ("rerun_result", "rerun_precision_result(%)", "rerun_max_rel_error", "rerun_equals_dump")
_OURS = (
    *("result", "judged_by", "fail_reason", "note", "first_bad", "golden", "dumped", "step"),
    "process",
)
_NUMBERS = frozenset(
    {
        *("precision_result(%)", "max_rel_error", "abs_precision_result(%)", "max_abs_error"),
        *("cosine_similarity", "kl_divergence", "rerun_precision_result(%)"),
        *("rerun_max_rel_error", "golden", "dumped", "step"),
    }
)
_MAX_ROWS = 1_048_575  # of a sheet, by its format, without the header
_MAX_TEXT = 32_767  # characters of a cell, likewise
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def columns(report: OpcheckReport) -> list[str]:
    """The manual's columns, the optional ones that were asked for, then ours."""
    optional = [
        name for metric in _OPTIONAL if metric in report.metrics for name in _OPTIONAL[metric]
    ]
    return [*_MANUAL, *optional, *(_RERUN if report.rerun else ()), *_OURS]


def row(report: OpcheckReport, item: Checked) -> list[str]:
    """The cells of one output, in the order of :func:`columns`."""
    output = item.output.removeprefix("outtensor")
    cells = [
        item.op_id,
        safe_cell(item.op_type),
        safe_cell(item.params),
        safe_cell(absolute_text(item.path)),
        output,
        safe_cell(_level(item)),
        _STATES[item.verdict],
        number_cell(item.rate),
        number_cell(item.max_relative),
    ]
    if "abs" in report.metrics:
        cells += [number_cell(item.abs_rate), number_cell(item.max_absolute)]
    if "cos_sim" in report.metrics:
        cells.append("" if item.cosine is None else f"{item.cosine:.10f}")
    if "kl" in report.metrics:
        cells.append(number_cell(item.kl))
    if report.rerun:
        rerun = item.rerun
        cells += (
            [
                rerun.verdict.value,
                number_cell(rerun.rate),
                number_cell(rerun.max_relative),
                "" if rerun.same_as_dump is None else str(rerun.same_as_dump),
            ]
            if rerun
            else [""] * len(_RERUN)
        )
    return [
        *cells,
        item.verdict.value,
        safe_cell(f"{item.standard}: {item.limit}" if item.limit else ""),
        safe_cell(item.reason),
        safe_cell(notes(item)),
        index_text(item.first_bad),
        number_cell(item.golden_value),
        number_cell(item.mine_value),
        str(item.step),
        "" if item.pid < 0 else f"{item.device}_{item.pid}",
    ]


def _level(item: Checked) -> str:
    """What the manual demands of an output of this type, whatever judged it."""
    found = (level.text for dtype, level in LEVELS.items() if dtype.torch_name == item.dtype)
    return next(found, "")


def notes(item: Checked) -> str:
    """What a reader should know besides the reason."""
    cause = item.rerun.cause if item.rerun is not None else ""
    return "; ".join(filter(None, (item.note, "" if cause in item.reason else cause)))


@writers.register("csv")
def write_csv(report: OpcheckReport, path: Path) -> None:
    """Write the manual's table as csv."""
    with replacing(path) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(columns(report))
        table.writerows(row(report, item) for item in report.items)


@writers.register("xlsx")
def write_xlsx(report: OpcheckReport, path: Path) -> None:
    """Write the manual's workbook; what could not be checked is in a sheet of its own too.

    Raises:
        MissingDependencyError: openpyxl is not installed.
        UsageError: more rows than a sheet has.
    """
    openpyxl = import_optional("openpyxl", "writing xlsx reports", "xlsx")
    if len(report.items) > _MAX_ROWS:
        raise UsageError(f"{path}: {len(report.items)} rows do not fit a sheet; give --format csv")
    names = columns(report)
    book = openpyxl.Workbook(write_only=True)
    missing = (Verdict.ERROR, Verdict.SKIPPED)
    for title, items in (
        ("opcheck_result", report.items),
        ("addition_failed_cases", [i for i in report.items if i.verdict in missing]),
    ):
        sheet = book.create_sheet(title)
        sheet.append(names)
        for item in items:
            sheet.append([_cell(*cell) for cell in zip(names, row(report, item), strict=True)])
    with replacing(path, binary=True) as file:
        book.save(file)


def _cell(name: str, text: str) -> str | float:
    """Numbers as numbers where they are finite, all else as text that fits a cell."""
    if name in _NUMBERS and re.fullmatch(r"-?[0-9.]+(e[+-]?[0-9]+)?", text):
        return float(text)
    return _ILLEGAL.sub("?", text)[:_MAX_TEXT]
