"""What the comparison of a changed run with the plain one shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ait_llm.core.comparison import Comparison, Report, Verdict
from ait_llm.invariance.result import Flip, Outcome, State
from ait_llm.report.wording import counted

Answers: TypeAlias = Mapping[int, Sequence[Sequence[int]]]
"""Rows of tokens by the number of the call that gave them."""
_ERROR = "max_absolute_error"


def judged(name: str, report: Report, before: Answers, after: Answers) -> Outcome:
    """The outcome of a change.

    Args:
        name: of the change.
        report: the plain run as golden, the changed one as mine.
        before, after: answers without the change and with it.
    """
    flip = first_flip(before, after)
    origin = report.origins[0] if report.origins else None
    state, reason = _state(report, flip)
    return Outcome(
        name,
        state,
        reason,
        equal=state == "held" and flip is None and all(map(_is_equal, report.comparisons)),
        compared=report.compared,
        failed=report.counts[Verdict.FAIL],
        origin=origin,
        flip=flip,
    )


def first_flip(before: Answers, after: Answers) -> Flip | None:
    """The first token that differs between answers of the same calls; None if none does."""
    found: Flip | None = None
    count = 0
    for call in sorted(before.keys() & after.keys()):
        for row, (old, new) in enumerate(zip(before[call], after[call], strict=False)):
            places = range(max(len(old), len(new)))
            odd = [place for place in places if old[place : place + 1] != new[place : place + 1]]
            count += len(odd)
            if odd and found is None:
                at = odd[0]
                found = Flip(call, row, at, _at(old, at), _at(new, at), 0)
    if found is None:
        return None
    return Flip(found.call, found.row, found.place, found.before, found.after, count)


def _at(row: Sequence[int], place: int) -> int | None:
    return row[place] if place < len(row) else None


def _state(report: Report, flip: Flip | None) -> tuple[State, str]:
    if report.verdict is Verdict.FAIL:
        return "broken", _broken(report)
    if not report.complete:
        texts = [each.text for each in report.problems if each.decides]
        if report.missing:
            texts.append(f"{counted(report.missing, 'tensor')} could not be compared")
        return "undecided", "; ".join(texts) or "nothing was compared"
    parted = any("chose token" in each.text for each in report.problems)
    if flip is None or parted:
        texts = [each.text for each in report.problems]
        return "held", "; ".join(texts)
    if not _is_generated(report):
        return "held", "the largest logit is another one, and the logits agree within rounding"
    return "broken", (
        "every value that was compared agrees, and the answer is another one: it is chosen, or put "
        "together, by what is not captured"
    )


def _is_generated(report: Report) -> bool:
    """True where tokens were chosen from the logits: there is more than one step."""
    return len(report.passes) != 1


def _broken(report: Report) -> str:
    failed = report.counts[Verdict.FAIL]
    if report.origins:
        return report.origins[0].evidence
    return f"{counted(failed, 'tensor')} of {report.compared:,} differ beyond rounding"


def _is_equal(item: Comparison) -> bool:
    return item.golden is None or item.mine is None or item.values.get(_ERROR, 0.0) == 0.0
