"""The workbook: three sheets, every row, text that stays text."""

from __future__ import annotations

import gc
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from report_builder import comparison, decoder_report, not_finite, record, report, unreadable

from ait_llm.core.comparison import Report, Verdict
from ait_llm.errors import MissingDependencyError
from ait_llm.report.workbooks import workbook
from ait_llm.report.xlsx import MAX_TEXT, write_xlsx

openpyxl = pytest.importorskip("openpyxl")


def opened(value: Report, folder: Path, **options: Any) -> Any:
    (path,) = write_xlsx(value, folder / "report.xlsx", **options)
    return openpyxl.load_workbook(path)


def table(sheet: Any) -> list[dict[str, Any]]:
    head, *rows = sheet.iter_rows(values_only=True)
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_the_sheets_tell_summary_comparisons_and_what_is_missing(tmp_path: Path) -> None:
    value = decoder_report()
    book = opened(value, tmp_path)
    assert book.sheetnames == ["summary", "comparisons", "not compared"]
    summary = {row["what"]: row["value"] for row in table(book["summary"])}
    assert summary["verdict"] == "FAIL"
    assert summary["FAIL"] == value.counts[Verdict.FAIL]
    assert summary["error started at"].startswith("SelfAttentionOperation_3_0_2 3_0_2, token 0")
    assert summary["kind of bug"] == "constant scale (every element is 1.31 times too large)"
    rows = table(book["comparisons"])
    assert len(rows) == len(value.comparisons)
    assert [row["op"] for row in rows] == [item.record.op for item in value.comparisons]
    missing = table(book["not compared"])
    assert missing[0]["count"] == value.counts[Verdict.SKIPPED]


def test_numbers_are_numbers_and_verdicts_have_colours(tmp_path: Path) -> None:
    book = opened(report(comparison(), comparison(0.5), unreadable(), not_finite()), tmp_path)
    rows = table(book["comparisons"])
    assert rows[1]["relative_euclidean_distance"] == 0.5
    assert rows[1]["would pass"] == "relative_euclidean_distance 0.5; max_element_error 0.0625"
    assert rows[2]["relative_euclidean_distance"] is None
    assert rows[3]["max_absolute_error"] == "inf"
    assert rows[3]["mean_absolute_error"] is None
    column = list(rows[0]).index("verdict") + 1
    colours = [book["comparisons"].cell(row, column).fill.start_color.rgb for row in (2, 3, 4)]
    assert len(set(colours)) == 3


def test_comparisons_go_on_in_another_sheet_where_one_is_full(tmp_path: Path) -> None:
    value = decoder_report()
    book = opened(value, tmp_path, rows_per_sheet=15)
    sheets = [name for name in book.sheetnames if name.startswith("comparisons")]
    assert sheets == ["comparisons", "comparisons 2", "comparisons 3"]
    rows = [row for name in sheets for row in table(book[name])]
    assert [row["tensor"] for row in rows] == [item.record.name for item in value.comparisons]


def test_text_from_a_dump_is_never_a_formula_or_a_broken_file(tmp_path: Path) -> None:
    names = ["=1+1", "#REF!", "a\x00b\x1b[31m", "half \ud800", "x" * (MAX_TEXT + 5), "\ufffe"]
    book = opened(report(*(comparison(mine=record(name)) for name in names)), tmp_path)
    sheet = book["comparisons"]
    column = [cell.value for cell in sheet[1]].index("op") + 1
    cells = [sheet.cell(row, column) for row in range(2, 2 + len(names))]
    assert {cell.data_type for cell in cells} == {"s"}
    assert cells[0].value == "=1+1"
    assert cells[2].value == "a\\x00b\\x1b[31m"
    assert len(cells[4].value) == MAX_TEXT


def test_the_file_is_not_for_everybody(tmp_path: Path) -> None:
    (path,) = write_xlsx(report(), tmp_path / "report.xlsx")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_without_openpyxl_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'ait-llm\[xlsx\]'"):
        write_xlsx(report(), tmp_path / "report.xlsx")
    assert not list(tmp_path.iterdir())


def test_a_workbook_that_fails_half_way_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        _interrupted(tmp_path)
    gc.collect()
    assert (list(tmp_path.iterdir()), told) == ([], [])


def _interrupted(folder: Path) -> None:
    with workbook(folder / "report.xlsx") as book:
        book.create_sheet("rows").append(["a row"])
        assert list(folder.glob("openpyxl.*"))
        raise KeyboardInterrupt
