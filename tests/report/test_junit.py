"""JUnit XML that continuous integration systems read."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_builder import (
    comparison,
    decoder_report,
    not_finite,
    problems,
    record,
    report,
    unreadable,
)

from ait_llm.core.comparison import Problem, Report, Verdict
from ait_llm.report.junit import write_junit


def parsed(value: Report, folder: Path) -> ElementTree.Element:
    (path,) = write_junit(value, folder / "report.junit.xml")
    return ElementTree.parse(path).getroot()


def test_every_comparison_is_one_case_and_the_totals_agree(tmp_path: Path) -> None:
    value = decoder_report(layers=3, steps=2)
    root = parsed(value, tmp_path)
    cases = root.findall("testsuite/testcase")
    assert len(cases) == len(value.comparisons) == int(root.attrib["tests"])
    for attribute, element, verdict in (
        ("failures", "failure", Verdict.FAIL),
        ("errors", "error", Verdict.ERROR),
        ("skipped", "skipped", Verdict.SKIPPED),
    ):
        found = root.findall(f"testsuite/testcase/{element}")
        assert len(found) == value.counts[verdict] == int(root.attrib[attribute])
        assert sum(int(suite.attrib[attribute]) for suite in root) == len(found)
    assert len({(case.attrib["classname"], case.attrib["name"]) for case in cases}) == len(cases)


def test_cases_are_grouped_by_layer_and_named_by_operation(tmp_path: Path) -> None:
    root = parsed(decoder_report(layers=2), tmp_path)
    assert [suite.attrib["name"] for suite in root] == ["2", "3"]
    case = root.find("testsuite/testcase")
    assert case is not None
    assert case.attrib == {
        "classname": "RmsNormOperation_2_0_0_0",
        "name": "intensor0 token 0",
    }


def names_of(value: Report, folder: Path) -> list[tuple[str, str]]:
    cases = parsed(value, folder).iter("testcase")
    return [(case.attrib["classname"], case.attrib["name"]) for case in cases]


def of_two_processes(first: int, second: int, *, ranks: bool, devices: bool) -> Report:
    """A pair and a tensor without a partner of each of two processes."""
    items = []
    for place, pid in enumerate((first, second)):
        mine = record(pid=pid, device=place if devices else 0, rank=place if ranks else -1)
        items.append(comparison(mine=mine))
        items.append(comparison(golden=mine, mine=None, verdict=Verdict.SKIPPED))
    text = f"process {second} on device 0: {'/tmp/run'}{second}/ait_dump/1.bin ends early"
    return report(*items, problems=[Problem("mine", text)], partial=True)


@pytest.mark.parametrize(
    ("ranks", "devices", "called"),
    [(True, True, "rank 1"), (False, True, "device 1"), (False, False, "process 1")],
)
def test_names_are_the_same_in_a_run_with_other_process_ids(
    tmp_path: Path, ranks: bool, devices: bool, called: str
) -> None:
    (tmp_path / "again").mkdir()
    first = names_of(of_two_processes(41, 4242, ranks=ranks, devices=devices), tmp_path)
    again = of_two_processes(7001, 70022, ranks=ranks, devices=devices)
    assert names_of(again, tmp_path / "again") == first
    assert len(set(first)) == len(first) == 6
    assert first[2] == ("LinearOperation_0", f"outtensor0 token 0 {called}")


def test_a_failure_says_which_limit_was_missed_and_where(tmp_path: Path) -> None:
    root = parsed(report(comparison(0.25)), tmp_path)
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.attrib["message"] == "relative Euclidean distance 0.25 exceeds 0.01"
    assert failure.text is not None
    assert "largest error at [3, 17]: golden 1.25, mine 2.25" in failure.text
    assert "kl_divergence: not a distribution" in failure.text


def test_the_case_where_the_error_starts_says_what_kind_of_bug(tmp_path: Path) -> None:
    value = decoder_report()
    texts = [failure.text or "" for failure in parsed(value, tmp_path).iter("failure")]
    told = [text for text in texts if "the error starts here; kind of bug: constant scale" in text]
    assert len(told) == len({origin.index for origin in value.origins})


def test_errors_and_what_is_missing_are_errors(tmp_path: Path) -> None:
    root = parsed(report(unreadable(), not_finite(), problems=problems(), partial=True), tmp_path)
    messages = [error.attrib["message"] for error in root.iter("error")]
    assert messages == [
        unreadable().reason,
        "mine: process 42 on device 0: it did not finish its capture",
        "interrupted before everything was compared",
    ]
    assert int(root.attrib["errors"]) == 3
    assert int(root.attrib["tests"]) == len(root.findall("testsuite/testcase")) == 4


def test_an_empty_report_is_an_empty_suite(tmp_path: Path) -> None:
    assert parsed(report(), tmp_path).attrib["tests"] == "0"


@settings(max_examples=50)
@given(st.text(st.characters(exclude_categories=[]), min_size=1))
def test_any_name_gives_well_formed_xml(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    item = comparison(0.5, mine=record(text, name=text, path=text), reason=text)
    root = parsed(report(item), tmp_path_factory.getbasetemp())
    assert len(root.findall("testsuite/testcase/failure")) == 1
