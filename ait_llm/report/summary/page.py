"""A summary as one HTML page that works offline, with the head and style of a comparison's."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ait_llm import __version__
from ait_llm.language import translate
from ait_llm.report.page_parts import embedded, filled, policy, resource, tag
from ait_llm.report.page_words import page_words, say
from ait_llm.report.summary.curves import Curve, curve
from ait_llm.report.summary.record import TITLES, Finding, Summary
from ait_llm.report.wording import printable

MAX_LINES = 5000  # of each table: a browser shows more of them slowly

_CLASSES = {"PASS": "pass", "FAIL": "fail", "INCOMPLETE": "skipped"}
_SENTENCES = ("what", "reason")  # columns of the tool's own sentences
_LEVELS = {"error": ("fail", "FAIL"), "warning": ("skipped", "SKIPPED"), "notice": ("pass", "")}


@dataclass(frozen=True, slots=True)
class Table:
    """More lines for the page, below the findings.

    Attributes:
        title: in English; translated where there is a translation.
        head: titles of the columns, the same.
        rows: cells as text; of a column called ``verdict`` a badge is made.
        curves: drawn above them.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    curves: Sequence[Curve] = ()


def summary_page(summary: Summary, tables: Sequence[Table] = ()) -> str:
    """The page as ASCII text, in the language that is spoken now.

    Args:
        summary: what a command found.
        tables: what else there is to show; its first :data:`MAX_LINES` lines each.
    """
    style = resource("style.css")
    script = resource("shared.js") + resource("summary.js")
    first = summary.findings[0] if summary.findings else None
    values = {
        "lang": tag(),
        "policy": policy(style, script),
        "title": f"{summary.verdict} - ait llm {summary.command}",
        "verdict": summary.verdict,
        "verdict_class": _CLASSES.get(summary.verdict, "error"),
        "sentence": translate(summary.about) if first is None else _sentence(first),
        "evidence": "" if first is None else translate(first.text),
        "next_title": say("next") if summary.next else "",
        "next": summary.next,
        "about": f"ait llm {summary.command}" if first is None else translate(summary.about),
        "footer": say("{0}. This page loads nothing and sends nothing.", f"ait-llm {__version__}"),
    }
    head, _, rest = resource("summary.html").partition("<!-- style -->")
    top, _, rest = rest.partition("<!-- tiles -->")
    middle, _, rest = rest.partition("<!-- cards -->")
    bottom, _, end = rest.partition("<!-- data and script -->")
    data = embedded({"words": page_words()})
    text = "".join(
        (
            filled(head, values),
            f"<style>{style}</style>",
            filled(top, values),
            *_tiles(summary),
            filled(middle, values),
            *_cards(summary, tables),
            filled(bottom, values),
            f'<script type="application/json" id="report">{data}</script>\n',
            f"<script>{script}</script>",
            end,
        )
    )
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _sentence(finding: Finding) -> str:
    return f"{translate(TITLES[finding.rule])}{translate(': ')}{finding.place}"


def _text(value: str) -> str:
    return html.escape(printable(value))


def _tiles(summary: Summary) -> Iterator[str]:
    for name, count in summary.counts.items():
        kind = f" is-{name.lower()}" if name in ("PASS", "FAIL", "SKIPPED", "ERROR") else ""
        label = _text(translate(name))
        yield f'<div class="tile{kind}"><b>{count:,}</b><span>{label}</span></div>'


def _cards(summary: Summary, tables: Sequence[Table]) -> Iterator[str]:
    for rule, title in TITLES.items():
        found = [each for each in summary.findings if each.rule == rule]
        if found:
            yield from _card(translate(title), len(found), _findings(summary.command, found))
    for number, table in enumerate(tables):
        if table.rows:
            drawn = [text for each in table.curves for text in curve(each)]
            lines = [*drawn, *_lines(table, f"table-{number}")]
            yield from _card(translate(table.title), len(table.rows), lines)
    if summary.lacking:
        items = [f"<li>{_text(translate(text))}</li>" for text in summary.lacking[:MAX_LINES]]
        yield from _card(say("Missing"), len(summary.lacking), ["<ul>", *items, "</ul>"])
    if summary.reports:
        items = [f"<li><code>{_text(name)}</code></li>" for name in summary.reports]
        yield from _card(say("Reports"), len(summary.reports), ["<ul>", *items, "</ul>"])


def _card(title: str, count: int, body: Sequence[str]) -> Iterator[str]:
    yield '<section class="card long"><div class="card-head">'
    yield f'<h2>{_text(title)}</h2><span class="muted">{count:,}</span></div>'
    yield f'<div class="scroll listed" role="group" aria-label="{_text(title)}" tabindex="0">'
    yield from body
    if count > MAX_LINES:
        yield f'<p class="hint">{_text(say("and {0} more", f"{count - MAX_LINES:,}"))}</p>'
    yield "</div></section>\n"


def _findings(command: str, found: Sequence[Finding]) -> list[str]:
    with_source = any(each.source is not None for each in found)
    head = ["", "where", "part", "what", *(["line"] if with_source else [])]
    lines = [_head(head)]
    for each in found[:MAX_LINES]:
        kind, word = _LEVELS[each.level]
        cells = [
            f'<span class="badge {kind}">{word}</span>' if word else "",
            _text(each.where),
            _text(translate(each.part)),
            _text(translate(each.text)),
        ]
        if with_source:
            line = each.source
            cells.append("" if line is None else _text(f"{line.file}:{line.line}"))
        name = f"{each.rule}-{each.fingerprint(command)}"
        lines.append(_line(cells, name))
    return [*lines, "</tbody></table>"]


def _lines(table: Table, name: str) -> list[str]:
    lines = [_head(table.head)]
    verdict = table.head.index("verdict") if "verdict" in table.head else -1
    for number, row in enumerate(table.rows[:MAX_LINES]):
        cells = [
            _text(translate(cell) if column in _SENTENCES else cell)
            for column, cell in zip(table.head, row, strict=True)
        ]
        if verdict >= 0:
            word = cells[verdict]
            cells[verdict] = f'<span class="badge {word.lower()}">{word}</span>'
        lines.append(_line(cells, f"{name}-{number}"))
    return [*lines, "</tbody></table>"]


def _head(names: Sequence[str]) -> str:
    cells = "".join(
        f'<th scope="col">{_text(say(name))}</th>' if name else "<td></td>" for name in names
    )
    return f"<table><thead><tr>{cells}</tr></thead><tbody>"


def _line(cells: Sequence[str], name: str) -> str:
    text = "".join(f"<td>{cell}</td>" for cell in cells)
    return f'<tr id="{html.escape(name)}">{text}</tr>'
