"""Summaries of a build: Markdown, GitHub's workflow commands, SARIF."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_builder import comparison, decoder_report, problems, record, report, unreadable

from ait_llm.core.comparison import Report, Verdict
from ait_llm.errors import UsageError
from ait_llm.language import speaking
from ait_llm.report.summary import Finding, SourceLine, Summary, annotate, write_summaries
from ait_llm.report.summary.markdown import markdown_lines
from ait_llm.report.summary.of_compare import compare_summary

LINE = SourceLine("/repo/src/model.py", 12, "forward")
FINDING = Finding("failed", "error", "a|b", "1 % <off>\n`here`", "outtensor0", LINE)
SUMMARY = Summary("compare", "FAIL", 1, "mine compared with golden", {"PASS": 3}, "tensors")


def of(value: Report, **more: Any) -> Summary:
    return compare_summary(value, value.exit_code(), [Path("out/report.csv")], "next one", **more)


def github(summary: Summary, **environment: str) -> list[str]:
    return annotate(summary, ("github",), environment)


def unescaped(text: str) -> str:
    """What GitHub makes of a message again."""
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, char)
    return text


def test_where_an_error_starts_is_told_with_its_line_and_not_each_tensor_after_it() -> None:
    value = decoder_report()
    operation = value.origins[0].op
    summary = of(value, lines={operation: LINE})
    (origin, missing) = summary.findings
    assert (origin.rule, origin.where, origin.part) == ("origin", operation, "step 0")
    assert "kind of bug: constant scale" in origin.text
    assert origin.source == LINE
    assert (missing.rule, missing.level) == ("not-checked", "warning")
    text = "\n".join(markdown_lines(summary))
    assert text.startswith("## ait llm compare: FAIL\n")
    assert "### Where an error starts" in text
    assert f"| {operation} step 0 |" in text
    assert "/repo/src/model.py:12 |" in text
    assert f"| FAIL | {value.counts[Verdict.FAIL]} |" in text
    assert "Reports: `out/report.csv`" in text
    assert text.endswith("```\nnext one\n```")


def test_markdown_is_in_the_language_of_the_messages() -> None:
    value = decoder_report()
    with speaking("zh"):
        lines = markdown_lines(of(value, lines={value.origins[0].op: LINE}))
    text = "\n".join(lines)
    assert lines[2].endswith("36 个张量")
    assert "| 张量 | 数量 |" in lines
    assert "### 误差的起点" in lines
    assert "| 位置 | 内容 | 行 |" in lines
    assert f"| {value.origins[0].op} 第 0 步 |" in text
    assert any(line.startswith("报告") and "`out/report.csv`" in line for line in lines)
    assert lines[-5].startswith("下一步")


def test_without_an_origin_each_operation_that_fails_is_a_finding() -> None:
    value = report(comparison(0.5), comparison(0.5), unreadable(), problems=problems())
    failed, error = of(value).findings
    assert (failed.rule, failed.where, failed.part) == (
        "failed",
        "LinearOperation_0",
        "outtensor0 step 0",
    )
    assert (error.rule, error.level) == ("not-computed", "warning")
    assert of(value).lacking == ("mine: process 42 on device 0: it did not finish its capture",)


def test_a_finding_is_the_same_in_a_run_with_other_process_ids_and_numbers() -> None:
    prints = []
    for pid, error in ((42, 0.5), (777, 0.25)):
        two = [record(pid=pid), record("LinearOperation_1", pid=pid + 1)]
        found = of(report(*(comparison(error, mine=one) for one in two)))
        prints.append([each.fingerprint("compare") for each in found.findings])
    assert prints[0] == prints[1]
    assert len(set(prints[0])) == 2


def test_a_workflow_command_is_one_line_whose_message_reads_as_before() -> None:
    found = github(replace(SUMMARY, findings=(FINDING,), lacking=("50 % is missing",)))
    (failed, lacking) = found
    match = re.fullmatch(r"::error file=(.*),line=12,title=(.*)::(.*)", failed)
    assert match is not None
    assert unescaped(match[1]) == LINE.file
    assert unescaped(match[2]) == "ait llm compare: a|b outtensor0"
    assert unescaped(match[3]) == r"1 % <off>\n`here`"
    assert lacking == "::warning title=ait llm compare::50 %25 is missing"


def test_a_file_of_the_workspace_is_named_from_there() -> None:
    (line,) = github(replace(SUMMARY, findings=(FINDING,)), GITHUB_WORKSPACE="/repo")
    assert line.startswith("::error file=src/model.py,line=12,")


def test_ten_annotations_of_a_level_are_shown_and_the_last_counts_the_others() -> None:
    many = tuple(replace(FINDING, where=f"op{number}") for number in range(30))
    found = github(replace(SUMMARY, findings=many))
    assert len(found) == 10
    assert found[-1].endswith("::and 21 more, see the summary and the reports")
    text = "\n".join(markdown_lines(replace(SUMMARY, findings=many * 3)))
    assert text.count("| op") == 50
    assert "and 40 more" in text


def test_the_page_of_a_step_is_added_to_where_a_step_is_and_was_asked_to(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n")
    assert annotate(SUMMARY, ("markdown", "sarif"), {"GITHUB_STEP_SUMMARY": str(page)}) == []
    assert page.read_text() == "before\n"
    assert github(SUMMARY) == []
    github(SUMMARY, GITHUB_STEP_SUMMARY=str(page))
    assert page.read_text() == "before\n" + "\n".join(markdown_lines(SUMMARY)) + "\n\n"


def test_a_page_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="GITHUB_STEP_SUMMARY, cannot be written"):
        github(SUMMARY, GITHUB_STEP_SUMMARY=str(tmp_path / "absent" / "page.md"))


def test_markdown_shows_names_as_they_are_and_no_control_characters() -> None:
    text = "\n".join(markdown_lines(replace(SUMMARY, findings=(FINDING,), about="\x1b[2J|")))
    assert r"| a\|b outtensor0 | 1 % &lt;off>\n'here' | /repo/src/model.py:12 |" in text
    assert "\x1b" not in text


def sarif_of(summary: Summary, folder: Path) -> dict[str, Any]:
    write_summaries(summary, [folder / "report.sarif"])
    content: dict[str, Any] = json.loads((folder / "report.sarif").read_text())
    return content


def check_sarif(log: dict[str, Any]) -> None:
    """What SARIF 2.1.0 requires of the objects that we write, and forbids."""
    assert set(log) <= {"$schema", "version", "runs"}
    assert log["version"] == "2.1.0"
    for run in log["runs"]:
        driver = run["tool"]["driver"]
        assert driver["name"]
        ids = [rule["id"] for rule in driver["rules"]]
        assert len(set(ids)) == len(ids)
        assert all(rule["shortDescription"]["text"] for rule in driver["rules"])
        assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
        for invocation in run["invocations"]:
            assert type(invocation["executionSuccessful"]) is bool
        for result in run["results"]:
            assert result["message"]["text"]
            assert result["level"] in ("none", "note", "warning", "error")
            assert ids[result["ruleIndex"]] == result["ruleId"]
            assert all(isinstance(v, str) for v in result["partialFingerprints"].values())
            for location in result["locations"]:
                place = location["physicalLocation"]
                assert place["region"]["startLine"] >= 1
                artifact = place["artifactLocation"]
                assert " " not in artifact["uri"]
                base = artifact.get("uriBaseId")
                assert base in run["originalUriBaseIds"] or artifact["uri"].startswith("file:///")


def test_sarif_has_the_findings_that_know_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", "/repo")
    elsewhere = SourceLine("/else where/kernel.py", 0)
    findings = (
        FINDING,
        replace(FINDING, source=None),
        replace(FINDING, rule="doubtful", level="notice", source=elsewhere),
    )
    log = sarif_of(replace(SUMMARY, findings=findings), tmp_path)
    check_sarif(log)
    (run,) = log["runs"]
    first, second = run["results"]
    (place,) = first["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "src/model.py", "uriBaseId": "SRCROOT"},
        "region": {"startLine": 12},
    }
    assert (first["level"], second["level"]) == ("error", "note")
    uri = second["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "file:///else%20where/kernel.py"
    assert run["properties"] == {"findingsWithoutSource": 1}
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 1}]
