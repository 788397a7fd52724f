"""A summary in Markdown, for the page of a build and for merge requests.

It is written for people, in the language that is spoken now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ait_llm.language import translate
from ait_llm.report.page_words import say
from ait_llm.report.summary.record import TITLES, Finding, Summary
from ait_llm.report.wording import printable

_LISTED = 50  # of each kind: GitHub shows no page of more than 1 MiB
_LONGEST = 1000  # characters of a sentence, for the same reason


def markdown_lines(summary: Summary) -> list[str]:
    """The verdict, counts, findings by kind, what is missing, the files and the next command."""
    lines = [f"## {markdown_text(summary.title)}", "", markdown_text(translate(summary.about))]
    if summary.counts:
        lines += [
            "",
            *markdown_table((translate(summary.counted), translate("number")), _counts(summary)),
        ]
    for rule, title in TITLES.items():
        found = [each for each in summary.findings if each.rule == rule]
        if found:
            lines += ["", f"### {translate(title)}", "", *_findings(found)]
    if summary.lacking:
        lines += ["", f"### {say('Missing')}", ""]
        lines += [f"- {markdown_text(translate(text))}" for text in summary.lacking[:_LISTED]]
        lines += _more(summary.lacking)
    if summary.reports:
        names = ", ".join(f"`{markdown_text(name)}`" for name in summary.reports)
        lines += ["", f"{say('Reports')}{translate(': ')}{names}"]
    if summary.next:
        lines += [
            "",
            f"{translate('Next')}{translate(': ')}".rstrip(),
            "",
            "```",
            printable(summary.next).replace("```", "'''"),
            "```",
        ]
    return lines


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table whose cells are text already."""
    return [
        f"| {' | '.join(head)} |",
        f"|{' --- |' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def markdown_text(text: str) -> str:
    """Text that is shown as it is, also within a cell of a table or between backticks."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - 1]}…"
    return printable(text).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")


def _counts(summary: Summary) -> list[tuple[str, str]]:
    return [
        (markdown_text(translate(name)), f"{count:,}") for name, count in summary.counts.items()
    ]


def _findings(found: Sequence[Finding]) -> list[str]:
    with_source = any(each.source is not None for each in found)
    head = ("where", "what", "line") if with_source else ("where", "what")
    rows = []
    for each in found[:_LISTED]:
        place = f"{each.where} {translate(each.part)}".strip()
        cells = [markdown_text(place), markdown_text(translate(each.text))]
        if with_source:
            line = each.source
            cells.append("" if line is None else markdown_text(f"{line.file}:{line.line}"))
        rows.append(cells)
    return [*markdown_table([say(name) for name in head], rows), *_more(found)]


def _more(found: Sequence[object]) -> list[str]:
    more = say("and {0} more", f"{len(found) - _LISTED:,}")
    return ["", more] if len(found) > _LISTED else []
