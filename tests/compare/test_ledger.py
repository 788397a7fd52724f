"""Introduced, inherited and total error of operators, against NumPy in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graph_dumps import GraphDump

from ait_llm.compare import compare, ledger
from ait_llm.core.comparison import Report
from ait_llm.core.error_ledger import LedgerRow, ranked
from ait_llm.report import read_jsonl, write_reports


def _report(folder: Path, scale: tuple[float, float], **options: object) -> Report:
    golden, mine = (GraphDump(folder / side / "ait_dump") for side in ("golden", "mine"))
    mine.scale = scale
    golden.write()
    mine.write()
    return compare(golden.root, mine.root, jobs=1, **options)  # type: ignore[arg-type]


def _row(report: Report, op_id: str) -> LedgerRow:
    (row,) = (row for row in report.ledger if row.op_id == op_id)
    return row


def test_the_three_errors_are_those_of_the_definition(tmp_path: Path) -> None:
    report = _report(tmp_path, (1.01, 1.02), ledger=True)
    graph = GraphDump(tmp_path, scale=(1.01, 1.02))
    golden, mine = graph.golden(), graph.mine()
    right = mine["0_1"].astype(np.float64) @ graph.weights[1].astype(np.float64).T
    size = np.linalg.norm(golden["1_0"])
    row = _row(report, "1_0")
    assert row.introduced == pytest.approx(np.linalg.norm(mine["1_0"] - right) / size, rel=1e-3)
    inherited = np.linalg.norm(right - golden["1_0"]) / size
    assert row.inherited == pytest.approx(inherited, rel=1e-3)
    total = np.linalg.norm(mine["1_0"] - golden["1_0"]) / size
    assert row.total == pytest.approx(total, rel=1e-3)


def test_an_operator_that_is_right_introduces_nothing(tmp_path: Path) -> None:
    report = _report(tmp_path, (1.01, 1.0), ledger=True)
    for op_id in ("0_1", "1_0", "1_1"):
        row = _row(report, op_id)
        assert row.introduced is not None
        assert row.introduced < 1e-6
        assert not row.is_beyond
        assert row.inherited is not None
        assert row.inherited > 1e-3


def test_operators_are_ranked_by_what_their_contract_allows(tmp_path: Path) -> None:
    report = _report(tmp_path, (1.001, 1.1), ledger=True)
    order = ranked(report.ledger)
    assert [row.op_id for row in order[:2]] == ["1_0", "0_0"]
    assert [row.is_beyond for row in order] == [True, True, False, False]


def test_clean_runs_blame_nobody(tmp_path: Path) -> None:
    report = _report(tmp_path, (1.0, 1.0), ledger=True)
    assert len(report.ledger) == 4
    assert not any(row.is_beyond for row in report.ledger)


def test_comparisons_get_the_errors_of_the_ledger(tmp_path: Path) -> None:
    report = _report(tmp_path, (1.0, 1.01), ledger=True)
    for row in report.ledger:
        assert row.index is not None
        item = report.comparisons[row.index]
        assert item.mine is not None
        assert (item.mine.op_id, item.mine.name) == (row.op_id, row.output)
    row = _row(report, "0_1")
    assert row.index is not None
    shown = report.comparisons[row.index]
    assert (shown.inherited, shown.introduced) == (row.inherited, row.introduced)


def test_small_dumps_have_a_ledger_without_being_asked(tmp_path: Path) -> None:
    assert len(_report(tmp_path, (1.0, 1.0), ledger=None).ledger) == 4


def test_a_large_dump_has_none_and_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "AUTOMATIC_OPERATORS", 3)
    report = _report(tmp_path, (1.0, 1.0), ledger=None)
    assert report.ledger == ()
    (problem,) = report.problems
    assert "4 operators" in problem.text
    assert "--ledger does so" in problem.text
    assert report.exit_code() == 0


def test_an_operator_that_cannot_be_computed_says_why(tmp_path: Path) -> None:
    golden, mine = (GraphDump(tmp_path / side, linear="Secret") for side in ("golden", "mine"))
    golden.write()
    mine.write()
    report = compare(golden.root, mine.root, ledger=True, jobs=1)
    assert _row(report, "0_0").reason == "there is no golden Secret"
    assert not _row(report, "0_0").is_known


def test_an_output_that_is_not_finite_is_infinitely_far_off(tmp_path: Path) -> None:
    report = _report(tmp_path, (float("inf"), 1.0), ledger=True)
    row = ranked(report.ledger)[0]
    assert (row.op_id, row.introduced, row.excess) == ("0_0", float("inf"), float("inf"))


def test_the_ledger_survives_the_jsonl_report(tmp_path: Path) -> None:
    report = _report(tmp_path, (float("inf"), 1.01), ledger=True)
    (path,) = write_reports(report, ["jsonl"], tmp_path / "report")
    again = read_jsonl(path)
    assert [row.op_id for row in again.ledger] == [row.op_id for row in report.ledger]
    assert [row.excess for row in again.ledger] == [row.excess for row in report.ledger]
