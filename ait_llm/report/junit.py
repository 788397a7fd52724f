"""JUnit XML for continuous integration: a suite for each layer, a case for each comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from ait_llm.core.comparison import Comparison, Report, TensorRecord, Verdict
from ait_llm.report.files import replacing
from ait_llm.report.markup import legal_xml, quoted_xml
from ait_llm.report.operations import called_operations
from ait_llm.report.stable_names import process_names, stable_texts
from ait_llm.report.wording import index_text, kind_text, missing_text, short, why_not
from ait_llm.report.writing import writers

_ELEMENTS = {Verdict.FAIL: "failure", Verdict.ERROR: "error", Verdict.SKIPPED: "skipped"}


@writers.register("junit")
def write_junit(report: Report, path: Path) -> Sequence[Path]:
    """Write a test suite for each layer and a test case for each comparison.

    A verdict FAIL is a failure, ERROR an error, SKIPPED a skipped case. A problem of a whole side
    that makes the result incomplete is an error in a suite of its own. A case has the same name in
    every run.
    """
    operations = called_operations(report)
    names = [_process_names(report, mine=mine) for mine in (False, True)]
    counts = report.counts
    decisive = [problem for problem in report.problems if problem.decides]
    incomplete = len(decisive) + report.partial
    with replacing(path) as file:
        file.write('<?xml version="1.0" encoding="UTF-8"?>\n')
        file.write(
            f'<testsuites name="ait llm compare" tests="{len(report.comparisons) + incomplete}" '
            f'failures="{counts[Verdict.FAIL]}" errors="{counts[Verdict.ERROR] + incomplete}" '
            f'skipped="{counts[Verdict.SKIPPED]}">\n'
        )
        for layer, members in groupby(operations, key=lambda operation: operation.layer):
            cases = [
                (operation.record.op, index, report.comparisons[index])
                for operation in members
                for index in operation.indices
            ]
            found = Counter(item.verdict for *_, item in cases)
            file.write(
                f'  <testsuite name={quoted_xml(layer)} tests="{len(cases)}" '
                f'failures="{found[Verdict.FAIL]}" errors="{found[Verdict.ERROR]}" '
                f'skipped="{found[Verdict.SKIPPED]}">\n'
            )
            for op, index, item in cases:
                file.write(_case(report, op, index, item, names[item.mine is not None]))
            file.write("  </testsuite>\n")
        texts = [f"{problem.side}: {problem.text}" for problem in decisive]
        if report.partial:
            texts.append("interrupted before everything was compared")
        if texts:
            file.write(
                f'  <testsuite name="completeness" tests="{len(texts)}" failures="0" '
                f'errors="{len(texts)}" skipped="0">\n'
            )
            for name, text in zip(stable_texts(texts), texts, strict=True):
                file.write(
                    f'    <testcase classname="completeness" name={quoted_xml(name)}>'
                    f"<error message={quoted_xml(text)}/></testcase>\n"
                )
            file.write("  </testsuite>\n")
        file.write("</testsuites>\n")
    return (path,)


def _process_names(report: Report, *, mine: bool) -> Mapping[tuple[int, int], str]:
    """What the processes of one side are called."""
    sides = (item.mine if mine else item.golden for item in report.comparisons)
    return process_names((one.rank, one.device, one.pid) for one in sides if one is not None)


def _case(
    report: Report, op: str, index: int, item: Comparison, names: Mapping[tuple[int, int], str]
) -> str:
    record = item.record
    name = f"{record.name or record.op} token {record.step}"
    if record.call:
        name += f" call {record.call}"
    if process := names[record.device, record.pid]:
        name += f" {process}"
    if item.mine is None:
        name += " (golden)"
    start = f"    <testcase classname={quoted_xml(op)} name={quoted_xml(name)}"
    element = _ELEMENTS.get(item.verdict)
    if element is None:
        return start + "/>\n"
    details = (
        f">{_text(_details(report, index, item))}</{element}>" if element != "skipped" else "/>"
    )
    message = quoted_xml(why_not(item))
    return f"{start}>\n      <{element} message={message}{details}\n    </testcase>\n"


def _details(report: Report, index: int, item: Comparison) -> str:
    """The numbers of one comparison, one a line."""
    lines = [f"{side}: {record.path}" for side, record in _sides(item)]
    lines += [
        f"{name}: {short(item.values[name])}"
        + (f" (limit {short(item.tolerance[name])})" if name in item.tolerance else "")
        for name in report.metrics
        if name in item.values
    ]
    if item.worst is not None and item.worst_values is not None:
        golden, mine = item.worst_values
        lines.append(
            f"largest error at {index_text(item.worst)}: golden {short(golden)}, mine {short(mine)}"
        )
    for origin in report.origins:
        if origin.index == index and origin.kind:
            lines.append(f"the error starts here; kind of bug: {kind_text(origin)}")
    if missing := missing_text(item.missing, report.metrics):
        lines.append(missing)
    return "\n".join(lines)


def _sides(item: Comparison) -> list[tuple[str, TensorRecord]]:
    return [
        (side, record)
        for side, record in (("golden", item.golden), ("mine", item.mine))
        if record is not None
    ]


def _text(text: str) -> str:
    from xml.sax.saxutils import escape  # loads urllib, http and ssl

    return escape(legal_xml(text))
