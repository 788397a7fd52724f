"""The report as one HTML page that works offline and loads nothing.

Everything from a dump is data: it reaches the page as JSON and is shown as text. The page's own
style and script are the only ones that its content security policy lets run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ait_llm.core.comparison import Origin, Report, Verdict
from ait_llm.language import translate
from ait_llm.report.files import replacing
from ait_llm.report.next_command import next_command
from ait_llm.report.operations import has_operations
from ait_llm.report.page_data import page_data
from ait_llm.report.page_parts import embedded, filled, policy, resource, tag
from ait_llm.report.page_words import say
from ait_llm.report.writing import writers

SCRIPTS = (
    "shared.js", "data.js", "elements.js", "charts.js", "curve.js", "heat_map.js", "tree.js",
    "closeup.js", "details.js", "table.js", "programs.js", "graph_data.js", "graph_layout.js",
    "graph.js", "graph_view.js", "ledger.js", "link.js", "main.js",
)  # fmt: skip


@writers.register("html")
def write_html(report: Report, path: Path) -> Sequence[Path]:
    """Write the page."""
    with replacing(path) as file:
        file.write(page(report))
    return (path,)


def page(report: Report) -> str:
    """The page as ASCII text."""
    style = resource("style.css")
    script = "\n".join(map(resource, SCRIPTS))
    head, _, rest = resource("page.html").partition("<!-- style -->")
    body, _, end = rest.partition("<!-- data and script -->")
    kind = _kind(report.origins[0]) if report.origins else ""
    following = next_command(report)
    values = {
        "lang": tag(),
        "policy": policy(style, script),
        "title": f"{report.verdict.value} - ait llm compare",
        "verdict": "INCOMPLETE" if report.verdict is Verdict.SKIPPED else report.verdict.value,
        "verdict_class": report.verdict.value.lower(),
        "sentence": _sentence(report),
        "evidence": translate(report.origins[0].evidence) if report.origins else "",
        "kind": say("Kind of bug: {0}", kind) if kind else "",
        "next_title": say("next") if following else "",
        "next": following,
        "golden": report.golden.path,
        "mine": report.mine.path,
        "about": _about(report),
    }
    text = "".join(
        (
            filled(head, values),
            f"<style>{style}</style>",
            filled(body, values),
            f'<script type="application/json" id="report">{embedded(page_data(report))}</script>\n',
            f"<script>{script}</script>",
            end,
        )
    )
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _sentence(report: Report) -> str:
    """The origin in one sentence, or what else the verdict means."""
    if report.origins:
        first = report.origins[0]
        starts = "The error starts at {0} (token {1})"
        if not first.certain:
            starts = "The error probably starts at {0} (token {1})"
        other = first.golden_op if first.golden_op != first.op else ""  # the same name is no news
        golden = say(", which answers {0}", other) if other else ""
        return say(starts, first.op, first.step) + golden
    counts = report.counts
    if failed := counts[Verdict.FAIL]:
        text = say("{0} tensor fails" if failed == 1 else "{0} tensors fail", f"{failed:,}")
        if has_operations(report):
            text += say("; no operator was found whose outputs fail while its inputs pass")
        return text
    if report.verdict is Verdict.PASS:
        return say("Everything was compared and every tensor is within its limits")
    if not report.compared:
        return say("Nothing could be compared")
    return say("What was compared is within its limits, but something could not be compared")


def _kind(origin: Origin) -> str:
    why = translate(origin.kind_evidence)
    return translate(origin.kind) + (say(" ({0})", why) if why else "")


def _about(report: Report) -> str:
    finished = report.finished or report.started
    return " · ".join(filter(None, (say("comparison {0}", report.scenario), finished)))
