"""What build servers read: JSON and JUnit XML."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.journal import as_record
from ait_llm.opcheck.outcome import Checked, OpcheckReport
from ait_llm.opcheck.reports.table import notes
from ait_llm.opcheck.reports.writing import writers
from ait_llm.report.files import replacing
from ait_llm.report.markup import legal_xml, quoted_xml
from ait_llm.report.stable_names import process_names, stable_texts
from ait_llm.report.wording import shape_text, short
from ait_llm.schemas import identity


@writers.register("json")
def write_json(report: OpcheckReport, path: Path) -> None:
    """Write everything for machines."""
    with replacing(path) as file:
        json.dump({**identity("opcheck-report"), **as_json(report)}, file, indent=1)
        file.write("\n")


def as_json(report: OpcheckReport) -> dict[str, object]:
    """The report in JSON types."""
    return {
        "verdict": report.verdict.value,
        "complete": report.complete,
        "partial": report.partial,
        "path": report.path,
        "standard": report.standard,
        "rerun": report.rerun,
        "started": report.started,
        "finished": report.finished,
        "counts": {verdict.value: count for verdict, count in report.counts.items()},
        "problems": [problem.text for problem in report.problems],
        "outputs": [as_record(item) for item in report.items],
    }


@writers.register("junit")
def write_junit(report: OpcheckReport, path: Path) -> None:
    """Write JUnit XML: a suite for each type of operator, a case for each output.

    FAIL is a failure, ERROR an error, SKIPPED a skipped case. What the dump lacks, and a check that
    was interrupted, is an error in a suite of its own. A case has the same name in every run.
    """
    elements = {Verdict.FAIL: "failure", Verdict.ERROR: "error", Verdict.SKIPPED: "skipped"}
    lacking = [problem.text for problem in report.problems if problem.decides]
    if report.partial:
        lacking.append("interrupted before everything was checked")
    counts = report.counts
    by_type = sorted(report.items, key=lambda item: item.op_type)
    processes = process_names((-1, item.device, item.pid) for item in report.items)
    with replacing(path) as file:
        file.write('<?xml version="1.0" encoding="UTF-8"?>\n')
        file.write(
            f'<testsuites name="ait llm opcheck" tests="{len(by_type) + len(lacking)}" '
            f'failures="{counts[Verdict.FAIL]}" errors="{counts[Verdict.ERROR] + len(lacking)}" '
            f'skipped="{counts[Verdict.SKIPPED]}">\n'
        )
        for name, group in groupby(by_type, key=lambda item: item.op_type):
            items = list(group)
            found = [item.verdict for item in items]
            file.write(
                f'  <testsuite name={quoted_xml(name)} tests="{len(items)}" '
                f'failures="{found.count(Verdict.FAIL)}" errors="{found.count(Verdict.ERROR)}" '
                f'skipped="{found.count(Verdict.SKIPPED)}">\n'
            )
            for item in items:
                case = f"{item.output or 'operator'} step {item.step}"
                if process := processes[item.device, item.pid]:
                    case += f" {process}"
                start = f"    <testcase classname={quoted_xml(item.op)} name={quoted_xml(case)}"
                element = elements.get(item.verdict)
                if element is None:
                    file.write(start + "/>\n")
                    continue
                file.write(
                    f"{start}>\n      <{element} message={quoted_xml(item.reason)}>"
                    f"{escape(legal_xml(_details(item)))}</{element}>\n    </testcase>\n"
                )
            file.write("  </testsuite>\n")
        if lacking:
            file.write(
                f'  <testsuite name="completeness" tests="{len(lacking)}" failures="0" '
                f'errors="{len(lacking)}" skipped="0">\n'
            )
            for name, text in zip(stable_texts(lacking), lacking, strict=True):
                file.write(
                    f'    <testcase classname="completeness" name={quoted_xml(name)}>'
                    f"<error message={quoted_xml(text)}/></testcase>\n"
                )
            file.write("  </testsuite>\n")
        file.write("</testsuites>\n")


def _details(item: Checked) -> str:
    lines = [f"tensors: {item.path}", f"parameters: {item.params}"]
    if item.dtype:
        lines.append(f"output: {item.dtype} {shape_text(item.shape)}")
    if item.limit:
        lines.append(f"standard: {item.standard} {item.limit}")
    if item.rate is not None:
        lines.append(f"within the relative error: {short(item.rate)}%")
    if item.max_relative is not None:
        lines.append(f"largest relative error: {short(item.max_relative)}")
    lines += [text for text in (notes(item),) if text]
    return "\n".join(lines)
