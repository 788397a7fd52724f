"""The report as lines of text: the verdict, where the error started, the worst, what is missing."""

from __future__ import annotations

import heapq
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from ait_llm.core.comparison import Comparison, Origin, Report, Side, Verdict
from ait_llm.report.alike import wrong_as_the_origin
from ait_llm.report.baseline.changes import Against
from ait_llm.report.ledger_table import ledger_sentence
from ait_llm.report.operations import (
    called_operations,
    error_of,
    has_operations,
    not_compared,
    severity,
)
from ait_llm.report.wording import (
    counted,
    dtype_text,
    headline,
    index_text,
    kind_text,
    printable,
    shape_text,
    short,
    why_not,
)

WIDTH = 100
MANY = 5  # of the worst, of reasons, of origins: enough to see a pattern

_COLOURS = {
    Verdict.PASS: "\x1b[1;32m",
    Verdict.FAIL: "\x1b[1;31m",
    Verdict.SKIPPED: "\x1b[1;33m",
    Verdict.ERROR: "\x1b[1;35m",
}
_RESET = "\x1b[0m"

Row = tuple[str, str]  # a name, empty to continue the one above, and a text


def terminal_lines(
    report: Report,
    files: Sequence[Path] = (),
    next_command: str = "",
    *,
    colour: bool = False,
    width: int = WIDTH,
    strict: bool = False,
    against: Against | None = None,
    code: int = 0,
) -> list[str]:
    """What a user reads first, at most ``width`` columns where no single word is longer.

    Args:
        report: what was found.
        files: reports that were written.
        next_command: what to run now, empty if nothing.
        colour: with ANSI colours.
        width: columns of the terminal.
        strict: what only one of the programs makes counts as missing.
        against: the same held against a baseline.
        code: what the command ends with, where there is a baseline.
    """
    rows = list(_rows(report))
    rows += [] if against is None else against.lines()
    rows += [("report" if place == 0 else "", str(path)) for place, path in enumerate(files)]
    if next_command:
        rows.append(("next", next_command))
    name_width = max((len(name) for name, _ in rows), default=0)
    lines = [_title(report, colour, strict, None if against is None else code)]
    for name, text in rows:
        prefix = f"  {name:<{name_width}}  "
        if name in ("report", "next") or (not name and text.startswith("/")):
            lines.append(prefix + printable(text))  # to be copied: never broken
            continue
        lines += textwrap.wrap(
            printable(text),
            width,
            initial_indent=prefix,
            subsequent_indent=" " * len(prefix) + "  ",
            break_long_words=False,
            break_on_hyphens=False,
        ) or [prefix.rstrip()]
    return lines


def _title(report: Report, colour: bool, strict: bool, code: int | None) -> str:
    verdict = report.verdict
    if strict and verdict is Verdict.PASS and report.not_comparable:
        verdict = Verdict.SKIPPED  # as the exit code says
    word = "INCOMPLETE" if verdict is Verdict.SKIPPED else verdict.value
    end = ""
    if code is not None:  # with a baseline
        own = word
        verdict = {0: Verdict.PASS, 1: Verdict.FAIL}.get(code, Verdict.SKIPPED)
        word = "INCOMPLETE" if verdict is Verdict.SKIPPED else verdict.value
        end = " against the baseline" + ("" if own == word else f", {own} on its own")
    if colour:
        word = f"{_COLOURS[verdict]}{word}{_RESET}"
    if code is None and verdict is Verdict.SKIPPED and report.compared:
        end = "; all that could be compared passed"
    if report.partial:
        end = " (interrupted: this is a part of the result)"
    return f"ait llm compare: {word}{end}"


def _rows(report: Report) -> Iterator[Row]:
    yield "compared", _compared(report)
    if len(report.comparisons) == 1:
        yield from _single(report, report.comparisons[0])
    else:
        yield from _origins(report)
        if sentence := ledger_sentence(report):
            yield "ledger", sentence
        yield from _worst(report)
    yield from _not_compared(report)
    yield "golden", _side(report.golden)
    yield "mine", _side(report.mine)


def _side(side: Side) -> str:
    details = [side.kind]
    if len(side.processes) > 1:
        details.append(f"{len(side.processes)} processes")
    if side.steps:
        first, last = min(side.steps), max(side.steps)
        details.append(f"token {first}" if first == last else f"tokens {first}-{last}")
    return f"{side.path} ({', '.join(filter(None, details))})"


def _compared(report: Report) -> str:
    counts = report.counts
    total = len(report.comparisons)
    if not report.comparisons:
        return "nothing: neither side offers a tensor that could be compared"
    if not report.compared:
        return f"nothing: none of {counted(total, 'tensor')} could be compared"
    parts = [
        f"{counts[verdict]:,} {verdict.value}"
        for verdict in (Verdict.PASS, Verdict.FAIL)
        if counts[verdict]
    ]
    what = counted(total, "tensor")
    if report.compared < total:
        what = f"{report.compared:,} of {what}"
    if total > 1:
        what += f" in {counted(len(called_operations(report)), 'operation')}"
    return f"{what}: {', '.join(parts)}"


def _single(report: Report, item: Comparison) -> Iterator[Row]:
    """All numbers of the only pair."""
    yield "verdict", f"{item.verdict.value}{_because(item)}"
    for name, record, view in (
        ("golden", item.golden, item.golden_view),
        ("mine", item.mine, item.my_view),
    ):
        if record is not None:
            text = f"{dtype_text(record.dtype) or 'unreadable'} {shape_text(record.shape)}"
            yield "", f"{name}: {text}{f', taken {view}' if view else ''}"
    for name in report.metrics:
        value = item.values.get(name)
        text = f"{value:.8g}" if value is not None else f"n/a, {item.missing.get(name, 'unknown')}"
        limit = f" (limit {short(item.tolerance[name])})" if name in item.tolerance else ""
        yield "", f"{name} {text}{limit}"
    for name, applied in item.tolerance.items():
        if name not in report.metrics and name in item.needed:
            yield "", f"{name} {short(item.needed[name])} (limit {short(applied)})"
    if (text := _worst_element(item)) != "":
        yield "", text


def _because(item: Comparison) -> str:
    reason = why_not(item)
    return f": {reason}" if reason else ""


def _origins(report: Report) -> Iterator[Row]:
    if not report.origins:
        if report.counts[Verdict.FAIL] and has_operations(report):
            yield (
                "started",
                "unknown: no operation was found whose outputs fail while its inputs pass",
            )
        return
    first = report.origins[0]
    many = len(report.mine.processes) > 1
    yield "started", _origin(first, many)
    if first.parts:
        yield "", f"fused from: {' + '.join(first.parts)}"
    if first.golden_op:
        yield "", f"golden counterpart: {first.golden_op}"
    if first.evidence:
        yield "", first.evidence
    if first.kind:
        yield "", f"kind of bug: {kind_text(first)}"
    if first.index is not None and first.index < len(report.comparisons):
        item = report.comparisons[first.index]
        record = item.record  # of a graph around the operation where only that was compared
        name, reason = record.name if record.op == first.op else record.title, why_not(item)
        said = first.evidence and first.evidence in reason
        yield "", f"shown by {name}" if said else f"{name}: {reason}"
        if (text := _worst_element(item)) != "":
            yield "", text
    parts = (
        (first.inherited, "inherited from its inputs"),
        (first.introduced, "introduced by itself"),
    )
    known = [f"{short(value)} {text}" for value, text in parts if value is not None]
    if known:
        yield "", f"relative error: {', '.join(known)}"
    if not first.certain and first.candidates:
        names = ", ".join(first.candidates[:MANY])
        more = len(first.candidates) - MANY
        yield "", f"or at: {names}{f' and {more} more' if more > 0 else ''}"
    others = report.origins[1:]
    for origin in others[: MANY - 1]:
        yield "", f"also at {_origin(origin, many)}"
    if len(others) >= MANY:
        yield "", f"and at {counted(len(others) - MANY + 1, 'more place')} (all in the reports)"
    if alike := wrong_as_the_origin(report):
        rest = f" and {len(alike) - MANY} more" if len(alike) > MANY else ""
        names = f"{', '.join(alike[:MANY])}{rest}"
        yield "", f"wrong by themselves, too (their inputs agree to the last bit): {names}"


def _origin(origin: Origin, with_process: bool) -> str:
    kind = f"{origin.op_type}, " if origin.op_type and origin.op_type not in origin.op else ""
    ids = f"id {origin.op_id}, " if origin.op_id else ""
    process = f", process {origin.device}_{origin.pid}" if with_process else ""
    return f"{origin.op} ({kind}{ids}token {origin.step}{process})"


def _worst_element(item: Comparison) -> str:
    texts = []
    if item.first_bad is not None:
        place = index_text(item.first_bad)
        texts.append(f"first element that differs where one is not finite: {place}")
    if item.worst is not None and item.worst_values is not None:
        golden, mine = item.worst_values
        if golden != mine or not texts:
            place = index_text(item.worst)
            texts.append(f"largest error at {place}: golden {short(golden)}, mine {short(mine)}")
    return "; ".join(texts)


def _worst(report: Report) -> Iterator[Row]:
    failed = [
        (index, item)
        for index, item in enumerate(report.comparisons)
        if item.verdict is Verdict.FAIL
    ]
    if not failed:
        return
    metric = headline(report.metrics)
    # Outputs only where there are any: an input repeats the output that it is.
    chosen = [(index, item) for index, item in failed if item.record.role != "in"] or failed
    worst = heapq.nsmallest(MANY, chosen, key=lambda pair: (-severity(pair[1], metric), pair[0]))
    yield "worst", f"by {metric}, of {counted(len(chosen), 'tensor')}"
    for _, item in worst:
        value = error_of(item, metric)
        step = f"token {item.record.step}  " if item.record.role in ("in", "out") else ""
        number = "-" if value is None else short(value)
        if item.first_bad is not None:  # which metrics leave out
            number = "NaN, Inf"
        text = f"{number:<9}  {step}{item.record.title}"
        if value is None or item.first_bad is not None:
            text += f": {why_not(item)}"
        elif item.inherited is not None and item.introduced is not None:
            text += f" ({short(item.inherited)} inherited)"
        yield "", text


def _not_comparable(report: Report) -> Iterator[Row]:
    """How many tensors decide nothing, by the reason for it."""
    skipped = [each for each in report.with_verdict(Verdict.SKIPPED) if not each.comparable]
    chosen, parts, doubtful = report.left_out, report.without_parts, report.doubtful
    name = "incomparable"
    if len(skipped) > chosen + parts + doubtful:
        what = counted(len(skipped) - chosen - parts - doubtful, "tensor")
        yield name, f"{what} that only one of the two programs makes (in the reports)"
        name = ""
    if chosen:
        what = counted(chosen, "tensor")
        yield name, f"{what} that follow from another choice of tokens or experts (in the reports)"
        name = ""
    if doubtful:
        what = counted(doubtful, "tensor")
        yield name, f"{what} that differ, and that several of the other program may answer"
        name = ""
    if parts:
        what = counted(parts, "tensor")
        yield name, f"{what} in parts, of which there are no statistics (in the reports)"


def _not_compared(report: Report) -> Iterator[Row]:
    groups = not_compared(report)
    for place, (reason, count, example) in enumerate(groups[:MANY]):
        name = "not compared" if place == 0 else ""
        instance = example.record.title
        which = f"{instance}: " if count == 1 else f"{counted(count, 'tensor')}: "
        more = "" if count == 1 else f" (such as {instance})"
        yield name, f"{which}{reason}{more}"
    if len(groups) > MANY:
        rest = sum(count for _, count, _ in groups[MANY:])
        yield "", f"and {counted(rest, 'tensor')} for {len(groups) - MANY} more reasons"
    yield from _not_comparable(report)
    problems = report.problems
    for problem in problems[: 2 * MANY]:
        yield ("missing" if problem.decides else "note"), f"{problem.side}: {problem.text}"
    if len(problems) > 2 * MANY:
        yield "", f"and {counted(len(problems) - 2 * MANY, 'more problem')} (all in the reports)"
