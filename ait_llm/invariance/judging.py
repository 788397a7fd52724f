"""What the comparison of a changed run with the plain one shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ait_llm.compare.parting import CHOSE
from ait_llm.core.comparison import Comparison, Report, Verdict
from ait_llm.invariance.result import Answer, Flip, Outcome, State
from ait_llm.report.wording import counted

Answers: TypeAlias = Mapping[int, Answer]
"""By the number of the call that gave them, from 0."""
_ERROR = "max_absolute_error"
_BY_ROUNDING = "the largest logit is another one, and the logits agree within rounding"
_NOT_CAPTURED = (
    "every value that was compared agrees, and the answer is another one: it is put together by "
    "what is not captured"
)
_BEHIND = "a token changes behind the steps that were looked at; -er all looks at every one"


def judged(name: str, report: Report, before: Answers, after: Answers) -> Outcome:
    """The outcome of a change.

    Args:
        name: of the change.
        report: the plain run as golden, the changed one as mine.
        before, after: answers without the change and with it.
    """
    flip = first_flip(before, after)
    origin = report.origins[0] if report.origins else None
    state, reason = _state(report, flip, before)
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
        for row, (old, new) in enumerate(
            zip(before[call].tokens, after[call].tokens, strict=False)
        ):
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


def _state(report: Report, flip: Flip | None, before: Answers) -> tuple[State, str]:
    if report.verdict is Verdict.FAIL:
        return "broken", _broken(report)
    if not report.complete:
        texts = [each.text for each in report.problems if each.decides]
        if report.missing:
            texts.append(f"{counted(report.missing, 'tensor')} could not be compared")
        return "undecided", "; ".join(texts) or "nothing was compared"
    if flip is None or any(CHOSE in each.text for each in report.problems):
        return "held", "; ".join(each.text for each in report.problems)
    return _of_flip(report, flip, before)


def _of_flip(report: Report, flip: Flip, before: Answers) -> tuple[State, str]:
    """What a token says that changes while all values agree.

    It was chosen from logits that agree within rounding, unless the model went on with the token
    that it had without the change.
    """
    answer = before[flip.call]
    own = flip.place - answer.prompt if answer.generated else 0
    step = own + sum(each.steps for call, each in before.items() if call < flip.call)
    compared = {golden for golden, _ in report.passes}
    if own < 0 or step not in compared:
        return "undecided", _BEHIND
    goes_on = answer.generated and own + 1 < answer.steps and step + 1 in compared
    return ("broken", _NOT_CAPTURED) if goes_on else ("held", _BY_ROUNDING)


def _broken(report: Report) -> str:
    failed = report.counts[Verdict.FAIL]
    if report.origins:
        return report.origins[0].evidence
    return f"{counted(failed, 'tensor')} of {report.compared:,} differ beyond rounding"


def _is_equal(item: Comparison) -> bool:
    return item.golden is None or item.mine is None or item.values.get(_ERROR, 0.0) == 0.0
