"""The error ledger as a table, a sentence, and a part of the page."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from browser import Browser, needs_browser
from report_builder import comparison, record, report

from ait_llm.core.comparison import Report
from ait_llm.core.error_ledger import LedgerRow, ranked
from ait_llm.report import html_page, terminal_lines, write_ledger
from ait_llm.report.ledger_table import COLUMNS, ledger_path, ledger_sentence

ROWS = (
    LedgerRow("RmsNormOperation_2_0", "2_0", "RmsNormOperation", 0, 0, 7, "outtensor0", 1, 0,
              introduced=0.0, inherited=0.0, total=0.0, excess=0.5),
    LedgerRow("LinearOperation_2_1", "2_1", "LinearOperation", 0, 0, 7, "outtensor0", 2, 1,
              introduced=0.01, inherited=0.0, total=0.01, excess=38.0, reason="off"),
    LedgerRow("LinearOperation_3_1", "3_1", "LinearOperation", 0, 0, 7, "outtensor0", 3, 2,
              introduced=1e-5, inherited=0.02, total=0.02, excess=0.9),
    LedgerRow("=Odd_4", "4", "=Odd", 0, 0, 7, order=4, reason="there is no golden =Odd"),
)  # fmt: skip


def _report(*rows: LedgerRow) -> Report:
    items = [
        comparison(
            row.total or 0.0,
            mine=record(
                row.op, op_id=row.op_id, op_type=row.op_type, name=row.output, device=0, pid=7
            ),
        )
        for row in ROWS[:3]
    ]
    return replace(report(*items), ledger=rows)


def _table(tmp_path: Path, *rows: LedgerRow) -> list[dict[str, str]]:
    (path,) = write_ledger(_report(*rows), ledger_path(tmp_path / "new", "20260101000000"))
    assert path.name == "ait_cmp_ledger_20260101000000.csv"
    assert path.stat().st_mode & 0o777 == 0o640
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_worst_operator_comes_first_and_unknown_ones_last(tmp_path: Path) -> None:
    table = _table(tmp_path, *ROWS)
    assert [row["op_id"] for row in table] == ["2_1", "3_1", "2_0", "4"]
    assert [row["rank"] for row in table] == ["1", "2", "3", ""]
    assert [row["verdict"] for row in table] == ["FAIL", "PASS", "PASS", "SKIPPED"]


def test_a_row_holds_its_numbers_and_its_place_in_the_report(tmp_path: Path) -> None:
    row = _table(tmp_path, *ROWS)[0]
    assert tuple(row) == COLUMNS
    assert (row["introduced"], row["inherited"], row["total"], row["excess"]) == (
        *("0.01", "0.0"),
        *("0.01", "38.0"),
    )
    assert (row["data_id"], row["token_id"], row["layer"]) == ("1", "0", "2")


def test_names_are_no_formulas(tmp_path: Path) -> None:
    assert _table(tmp_path, *ROWS)[3]["op"] == "'=Odd_4"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"excess": 2.0}, {"excess": 1.5}),
        ({"excess": float("inf")}, {"excess": 1e9}),
        ({"excess": 2.0, "introduced": 0.2}, {"excess": 2.0, "introduced": 0.1}),
        ({"excess": 2.0, "order": 1}, {"excess": 2.0, "order": 2}),
    ],
)
def test_the_order_is_by_excess_then_size_then_execution(
    first: dict[str, float], second: dict[str, float]
) -> None:
    rows = [replace(ROWS[0], **each) for each in (second, first)]  # type: ignore[arg-type]
    assert ranked(rows) == rows[::-1]


def test_the_terminal_names_who_is_beyond_its_contract() -> None:
    lines = " ".join(" ".join(terminal_lines(_report(*ROWS))).split())
    assert (
        "of 3 operators, beyond their contract: LinearOperation_2_1 token 0 (introduces 0.01, 38 "
        "times what is allowed); 1 could not be computed again"
    ) in lines


def test_a_clean_ledger_is_told_as_such() -> None:
    sentence = ledger_sentence(_report(ROWS[0], ROWS[2]))
    assert sentence.endswith("none introduces more than its contract allows")
    assert ledger_sentence(_report()) == ""


@needs_browser
def test_the_page_draws_the_waterfall_and_the_ranking(tmp_path: Path, browser: Browser) -> None:
    page = tmp_path / "page.html"
    page.write_text(html_page.page(_report(*ROWS)))
    with browser.open(page) as tab:
        document = tab.document
        assert tab.console == []
    assert document.count('class="hit fall-group"') == 3
    assert document.count('<rect class="fall fall-fail"') == 2  # the operator, and the legend
    ranking = document[document.index('id="ranking"') :]
    assert ranking.index("LinearOperation_2_1") < ranking.index("LinearOperation_3_1")
    assert "38" in ranking
    assert 'id="ledger" aria-labelledby="ledger-title">' in document


@needs_browser
def test_without_a_ledger_the_page_has_no_such_part(tmp_path: Path, browser: Browser) -> None:
    page = tmp_path / "page.html"
    page.write_text(html_page.page(_report()))
    with browser.open(page) as tab:
        document = tab.document
        assert tab.console == []
    assert 'id="ledger" aria-labelledby="ledger-title" hidden' in document
