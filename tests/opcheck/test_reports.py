"""The files that a check writes."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from ait_llm.core.comparison import Problem, Verdict
from ait_llm.errors import UnknownNameError
from ait_llm.opcheck.outcome import Checked, OpcheckReport, Rerun
from ait_llm.opcheck.reports import free_stem, write_reports

PASS = Checked(
    "0_1",
    "LinearOperation",
    Verdict.PASS,
    "outtensor0",
    note="a note",
    device=0,
    pid=42,
    params='{"hasBias":false}',
    path="/dump/0_LinearOperation",
    standard="classic",
    limit="99.9%(error<0.001)",
    rate=100.0,
    max_relative=0.0005,
    abs_rate=100.0,
    max_absolute=0.25,
    cosine=0.99999,
    kl=0.0,
)
FAIL = replace(
    PASS,
    op_id="2",
    verdict=Verdict.FAIL,
    reason="50% | <bad>",
    rate=50.0,
    max_relative=float("inf"),
    first_bad=(0, 3),
    golden_value=1.5,
    mine_value=float("nan"),
    rerun=Rerun("torch_atb", Verdict.PASS, False, "stale", 100.0, 0.0),
)
SKIPPED = Checked("3", "=cmd()Operation", Verdict.SKIPPED, reason="no golden", pid=42, device=0)
ERROR = Checked("4", "RopeOperation", Verdict.ERROR, reason="damaged\x07 file", pid=42, device=0)
REPORT = OpcheckReport(
    "/dump",
    [PASS, FAIL, SKIPPED, ERROR],
    [Problem("mine", "process 42 was killed")],
    metrics=("abs", "cos_sim", "kl"),
    rerun="torch_atb",
)


def rows(report: OpcheckReport, folder: Path) -> list[dict[str, str]]:
    (path,) = write_reports(report, ["csv"], folder, "out")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_has_the_manuals_columns_first(tmp_path: Path) -> None:
    bare = replace(REPORT, metrics=(), rerun="")
    assert list(rows(bare, tmp_path)[0]) == [
        *("op_id", "op_name", "op_param(json)", "tensor_path", "out_tensor_id"),
        *("precision_standard", "excuted_information", "precision_result(%)", "max_rel_error"),
        *("result", "judged_by", "fail_reason", "note", "first_bad", "golden", "dumped", "step"),
        "process",
    ]
    assert list(rows(REPORT, tmp_path)[0])[9:17] == [
        *("abs_precision_result(%)", "max_abs_error", "cosine_similarity", "kl_divergence"),
        *("rerun_result", "rerun_precision_result(%)", "rerun_max_rel_error", "rerun_equals_dump"),
    ]


def test_the_manuals_level_is_in_the_table_whatever_judged(tmp_path: Path) -> None:
    item = replace(PASS, standard="contract", limit="error<=bound", dtype="bfloat16")
    (row,) = rows(replace(REPORT, items=[item]), tmp_path)
    assert row["precision_standard"] == "99.6%(error<0.004)"
    assert row["judged_by"] == "contract: error<=bound"


def test_the_table_says_what_was_not_checked_and_holds_no_formula(tmp_path: Path) -> None:
    good, bad, skipped, error = rows(REPORT, tmp_path)
    assert (good["precision_result(%)"], good["cosine_similarity"]) == ("100.0", "0.9999900000")
    assert (good["excuted_information"], good["out_tensor_id"]) == ("execution successful", "0")
    assert (bad["max_rel_error"], bad["dumped"], bad["first_bad"]) == ("inf", "", "[0, 3]")
    assert (bad["rerun_result"], bad["rerun_equals_dump"], bad["note"]) == (
        "PASS",
        "False",
        "a note; stale",
    )
    assert skipped["op_name"] == "'=cmd()Operation"
    assert (skipped["excuted_information"], skipped["precision_result(%)"]) == (
        "addition failed",
        "",
    )
    assert error["excuted_information"] == "execution failed"


def test_the_workbook_keeps_ids_as_text_and_numbers_as_numbers(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    (path,) = write_reports(REPORT, ["xlsx"], tmp_path, "out")
    book = openpyxl.load_workbook(path)
    assert book.sheetnames == ["opcheck_result", "addition_failed_cases"]
    sheet = list(book["opcheck_result"].values)
    assert sheet[2][0] == "2"
    assert sheet[1][7] == 100.0
    assert [row[0] for row in book["addition_failed_cases"].values] == ["op_id", "3", "4"]


def test_junit_counts_failures_errors_and_skipped_cases(tmp_path: Path) -> None:
    (path,) = write_reports(REPORT, ["junit"], tmp_path, "out")
    root = ET.parse(path).getroot()
    assert path.name == "out.junit.xml"
    counts = {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "5", "failures": "1", "errors": "2", "skipped": "1"}
    assert len(root.findall(".//testcase")) == 5
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.get("message") == "50% | <bad>"
    assert root.find(".//testsuite[@name='completeness']/testcase/error") is not None


def test_cases_are_called_the_same_in_a_run_with_other_process_ids(tmp_path: Path) -> None:
    found = []
    for name, pid in (("first", 42), ("again", 9001)):
        items = [replace(item, pid=pid) for item in REPORT.items]
        items += [replace(PASS, device=1, pid=pid + 1)]
        problems = [Problem("mine", f"process {pid} was killed")] * 2
        report = replace(REPORT, items=items, problems=problems)
        (path,) = write_reports(report, ["junit"], tmp_path, name)
        cases = ET.parse(path).getroot().iter("testcase")
        found.append([(case.get("classname"), case.get("name")) for case in cases])
    assert found[0] == found[1]
    assert len(set(found[0])) == len(found[0]) == 7
    assert ("LinearOperation_0_1", "outtensor0 step 0 device 1") in found[0]


def test_json_has_everything_and_no_number_that_json_lacks(tmp_path: Path) -> None:
    (path,) = write_reports(REPORT, ["json"], tmp_path, "out")
    data = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert (data["verdict"], data["complete"]) == ("FAIL", False)
    assert data["counts"] == {"PASS": 1, "FAIL": 1, "SKIPPED": 1, "ERROR": 1}
    assert data["outputs"][1]["max_relative"] == "inf"
    assert data["problems"] == ["process 42 was killed"]


def test_markdown_lists_failures_and_what_was_not_checked(tmp_path: Path) -> None:
    (path,) = write_reports(REPORT, ["markdown"], tmp_path, "out")
    text = path.read_text()
    assert text.startswith("## ait llm opcheck: FAIL\n")
    assert "| LinearOperation_2 outtensor0 step 0 | 50% \\| &lt;bad> |" in text
    assert "### Not checked" in text
    assert "- process 42 was killed" in text
    assert "\x07" not in text


@pytest.mark.parametrize(
    ("items", "fail_on", "allow_skip", "code"),
    [
        ([PASS], "fail", False, 0),
        ([PASS, FAIL], "fail", False, 1),
        ([PASS, FAIL], "never", False, 0),
        ([PASS, ERROR], "fail", False, 3),
        ([PASS, ERROR], "error", True, 1),
        ([PASS, SKIPPED], "error", False, 3),
        ([PASS, SKIPPED], "skipped", False, 1),
        ([PASS, SKIPPED], "fail", True, 0),
        ([SKIPPED], "fail", True, 3),
        ([], "fail", True, 3),
    ],
)
def test_exit_codes(items: list[Checked], fail_on: str, allow_skip: bool, code: int) -> None:
    report = OpcheckReport("/dump", items)
    assert report.exit_code(fail_on=fail_on, allow_skip=allow_skip) == code  # type: ignore[arg-type]
    assert replace(report, partial=True).exit_code(allow_skip=True) in (1, 3)


def test_unknown_formats_write_nothing_and_names_do_not_collide(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="known: csv, html, json, junit, markdown, xlsx"):
        write_reports(REPORT, ["csv", "nonsense"], tmp_path / "new", "out")
    assert not (tmp_path / "new").exists()
    first = free_stem(tmp_path)
    (tmp_path / f"{first}.csv").touch()
    assert free_stem(tmp_path) != first
