"""The summary of a transplant."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from ait_llm.report.summary import Finding, Summary, Table, finding_order
from ait_llm.report.wording import counted
from ait_llm.transplanting.answer import Damage
from ait_llm.transplanting.result import Suspect, TransplantResult


def transplant_summary(result: TransplantResult, files: Sequence[Path]) -> Summary:
    """What the runs say to a build.

    Args:
        result: of the runs.
        files: that were written.
    """
    verdict = {0: "PASS", 1: "FAIL"}.get(result.code, "INCOMPLETE")
    counts = {
        "needed": len(result.needed),
        "not needed": len(result.suspects) - len(result.needed),
    }
    lacking = list(result.notes)
    if result.status not in ("found", "equal"):
        lacking.insert(0, result.reason)
    return Summary(
        "transplant",
        verdict,
        result.code,
        f"{counted(result.runs, 'run')} with golden's values in place of mine",
        counts,
        "differences",
        finding_order(_findings(result)),
        tuple(lacking),
        tuple(map(str, files)),
        "",
    )


def transplant_tables(result: TransplantResult) -> list[Table]:
    """The suspects, and the answer before and after, for the page."""
    head = ("operator", "value", "needed", "explains", "heals", "harms", "own error")
    rows = [
        (
            each.op,
            each.name,
            "yes" if each.needed else "no",
            percent(each.share),
            percent(each.heals),
            percent(each.harms),
            own_error(each),
        )
        for each in result.suspects
    ]
    told = (("as it is", result.before), ("needed healed", result.after))
    answers = [
        (name, *damage_cells(damage))
        for name, damage in (*told, ("all healed", result.floor))
        if damage is not None
    ]
    columns = ("answer", "error", "KL divergence", "other largest token")
    return [Table("Differences", head, rows), Table("Answer", columns, answers)]


def damage_cells(damage: Damage) -> tuple[str, str, str]:
    """The numbers of an answer: error, divergence, rows with another token."""
    error = f"{damage.error:.3g}" if math.isfinite(damage.error) else "not finite, or none"
    if damage.kl is None:
        return error, "", ""
    return error, f"{damage.kl:.3g}", f"{damage.flipped} of {damage.rows}"


def percent(share: float | None) -> str:
    """``0.983`` as ``98 %``; nothing for what is not known."""
    return "" if share is None else f"{100 * share:.0f} %"


def own_error(suspect: Suspect) -> str:
    """The error that it introduces."""
    return f"{suspect.introduced:.3g}" if math.isfinite(suspect.introduced) else "not finite"


def _findings(result: TransplantResult) -> Iterator[Finding]:
    for each in result.needed:
        share = percent(each.share)
        text = f"explains {share} of what is wrong with the answer" if share else "is needed"
        yield Finding("origin", "error", each.op, f"{each.name} {text}", each.name)
    if result.status in ("undecided", "failed"):
        yield Finding("not-checked", "warning", "the answer", result.reason)
