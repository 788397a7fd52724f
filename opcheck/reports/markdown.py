"""A summary in Markdown, for the page of a build."""

from __future__ import annotations

from pathlib import Path

from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.reports.writing import writers
from ait_llm.report.files import replacing
from ait_llm.report.wording import counted, printable

_LISTED = 50  # of each verdict


@writers.register("markdown")
def write_markdown(report: OpcheckReport, path: Path) -> None:
    """Write a summary for the page of a build: counts, failures, what was not checked."""
    with replacing(path) as file:
        file.write("\n".join(markdown_lines(report)) + "\n")


def markdown_lines(report: OpcheckReport) -> list[str]:
    """The summary, a line each."""
    counts = report.counts
    lines = [
        f"## opcheck: {report.verdict.value}",
        "",
        f"{counted(report.operators, 'operator')} of `{_md(report.path)}`, standard "
        f"`{report.standard}`{f', run again with {report.rerun}' if report.rerun else ''}",
        "",
        "| verdict | outputs |",
        "| --- | ---: |",
        *(f"| {verdict.value} | {counts[verdict]} |" for verdict in Verdict),
    ]
    for verdict, title in (
        (Verdict.FAIL, "Failed"),
        (Verdict.ERROR, "Could not be computed"),
        (Verdict.SKIPPED, "Not checked"),
    ):
        items = [item for item in report.items if item.verdict is verdict]
        if items:
            lines += [
                "",
                f"### {title}",
                "",
                "| operator | output | reason |",
                "| --- | --- | --- |",
            ]
            lines += [
                f"| {_md(item.op)} | {item.output} | {_md(item.reason)} |"
                for item in items[:_LISTED]
            ]
            if len(items) > _LISTED:
                lines += ["", f"and {len(items) - _LISTED} more"]
    if report.problems or report.partial:
        lines += ["", "### The dump is incomplete", ""]
        lines += [f"- {_md(problem.text)}" for problem in report.problems]
        lines += ["- the check was interrupted"] if report.partial else []
    return lines


def _md(text: str) -> str:
    return printable(text).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
