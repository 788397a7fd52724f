"""docs/vendor-suites.md, written from results on record."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vendor.hostatb_page import DOCS, RECORD, write_sentences
from vendor.outcome import Disagreement, Outcome, Side

if TYPE_CHECKING:
    from vendor.suites import Suite

PAGE = DOCS / "vendor-suites.md"
_HEAD = """# The vendor's own suites

Written by `scripts/vendor_suites --write`; do not edit it. The vendor's public sources have suites
of their own for the operators of the acceleration library. They run here from a checkout, as they
are, against the golden operators and hostatb, so that a definition that is wrong here does not
stay unseen because tests and self-test share it. Nothing of them is in this repository.

A disagreement is *ours* until something else has been shown; for those of the *vendor* and of
*another chip* the page says what shows it.
"""


def write_page(
    suites: Sequence[Suite], found: Mapping[str, Outcome], checkouts: Mapping[str, Path | None]
) -> None:
    """Put results on record, in the place of older ones of the same suites, and write the page."""
    record: dict[str, Any] = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    for suite in suites:
        checkout = checkouts[suite.source]
        if suite.name in found and checkout is not None:
            record[suite.name] = {"commit": _commit(checkout)} | found[suite.name].record()
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(as_page(suites, record), encoding="utf-8")
    write_sentences()


def as_page(suites: Sequence[Suite], record: Mapping[str, Any]) -> str:
    """The whole page."""
    known = [suite for suite in suites if suite.name in record]
    outcomes = {suite.name: Outcome.recorded(record[suite.name]) for suite in known}
    lines = [_HEAD, "| suite | agree | of the vendor | of another chip | ours | not compared |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for suite in known:
        lines.append(f"| {suite.title} | {_summary(outcomes[suite.name])} |")
    for suite in known:
        lines += ["", *_section(suite, outcomes[suite.name], record[suite.name]["commit"])]
    return "\n".join(lines) + "\n"


def _summary(outcome: Outcome) -> str:
    agreed = sum(outcome.agreed.values())
    compared = agreed + len(outcome.disagreed)
    percent = f" ({100 * agreed / compared:.1f} %)" if compared else ""
    sides = [sum(each.side is side for each in outcome.disagreed) for side in Side]
    skipped = sum(sum(reasons.values()) for reasons in outcome.skipped.values())
    return " | ".join([f"{agreed} of {compared}{percent}", *map(str, sides), str(skipped)])


def _section(suite: Suite, outcome: Outcome, commit: str) -> Iterator[str]:
    yield f"## {suite.title}\n\n{suite.about}\n\nCommit of the checkout: `{commit}`."
    yield "\n| operator | agree | differ | not compared |\n| --- | --- | --- | --- |"
    for name in outcome.operators:
        differ = sum(each.operator == name for each in outcome.disagreed)
        reasons = outcome.skipped.get(name, {})
        skipped = "; ".join(f"{count}: {reason}" for reason, count in sorted(reasons.items()))
        yield f"| {name} | {outcome.agreed.get(name, 0)} | {differ} | {_cell(skipped)} |"
    if outcome.disagreed:
        yield "\n### Every disagreement\n"
        yield "| operator | cases | difference | of | what shows it |"
        yield "| --- | --- | --- | --- | --- |"
    for _, group in groupby(sorted(outcome.disagreed, key=_kind), _kind):
        same = list(group)
        cases = ", ".join(each.case for each in same)
        one = same[0]
        words = (one.operator, cases, one.what, one.side.value, one.why)
        yield f"| {' | '.join(map(_cell, words))} |"


def _kind(each: Disagreement) -> tuple[str, str, str, str]:
    """What shares a line; where something is shown, one example is enough of the difference."""
    return (each.side.value, each.operator, each.why, "" if each.why else each.what)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "--short=10", "HEAD"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.stdout.strip() or "unknown"
