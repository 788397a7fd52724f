"""What ``ait llm transplant`` says, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ait_llm.cli.dump_text import table
from ait_llm.cli.numbers import counted, ranges
from ait_llm.transplanting.answer import Damage
from ait_llm.transplanting.result import Suspect, TransplantResult
from ait_llm.transplanting.summary import damage_cells, own_error, percent

_SHOWN = 5  # of the suspects that are not needed
_SECONDS = 90  # above, times are told in minutes


def describe_result(result: TransplantResult, files: Sequence[Path]) -> str:
    """The differences that matter, and what they do."""
    lines: list[tuple[str, str]] = []
    for each in result.needed:
        lines += _needed(each)
    if result.status != "found" and result.reason:
        lines.append(("reason", result.reason))
    lines += _answers(result)
    others = [each for each in result.suspects if not each.needed]
    for number, each in enumerate(others[:_SHOWN]):
        lines.append(("others" if not number else "", _other(each)))
    if len(others) > _SHOWN:
        lines.append(("", f"… and {len(others) - _SHOWN} more"))
    lines += [("note", text) for text in result.notes]
    if result.places:
        lines.append(("looked at", f"{counted(result.places, 'value')} that both have"))
    lines.append(("cost", f"{counted(result.runs, 'run')}, {_time(result.seconds)}"))
    if files:
        lines.append(("files", ", ".join(map(str, files))))
    return table(f"ait llm transplant: {_verdict(result)}", lines)


def _verdict(result: TransplantResult) -> str:
    if result.status == "found":
        count = len(result.needed)
        return f"FAIL: golden's value at {counted(count, 'place')} heals the answer"
    if result.status == "equal":
        return "PASS: the answer is golden's within rounding"
    return "the program failed" if result.status == "failed" else "INCOMPLETE"


def _needed(suspect: Suspect) -> Iterator[tuple[str, str]]:
    yield "heals", f"{suspect.op} ({suspect.op_type}), {suspect.name}, step {ranges(suspect.steps)}"
    yield "", f"own error {own_error(suspect)}; {_explains(suspect)}"


def _explains(suspect: Suspect) -> str:
    if suspect.share is None:
        return "what it explains was not measured"
    told = f"explains {percent(suspect.share)} of the damage"
    parts = []
    if suspect.heals is not None:
        parts.append(f"{percent(suspect.heals)} goes with it alone")
    if suspect.harms is not None:
        parts.append(f"{percent(suspect.harms)} comes from it alone")
    return f"{told}: {', '.join(parts)}"


def _other(suspect: Suspect) -> str:
    told = f"{suspect.op} {suspect.name}: own error {own_error(suspect)}"
    if suspect.share is None:
        return told
    return f"{told}, explains {percent(suspect.share)} of the damage"


def _answers(result: TransplantResult) -> Iterator[tuple[str, str]]:
    floor = result.floor if result.floor != result.after else None
    told = (("answer", "as it is", result.before), ("", "healed", result.after))
    for label, name, damage in (*told, ("", "all differences healed", floor)):
        if damage is not None:
            yield label, f"{name}: {_damage(damage)}"


def _damage(damage: Damage) -> str:
    error, divergence, flipped = damage_cells(damage)
    if not divergence:
        return f"error {error}"
    return f"error {error}, KL divergence {divergence}, another token is the largest in {flipped}"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _SECONDS else f"{seconds / 60:.1f} min"
