"""Which errors changed the choice of a token, and whether they are more than rounding.

Mine with the share ``1 - a`` of every own error taken away is golden at ``a = 0`` and mine at
``a = 1``. The margin of two logits changes along ``a`` by the gradient times the errors, so that
the integral over it gives each error its part, and the parts add up to the whole change. Three
points of Gauss and Legendre are exact for a polynomial of the fifth degree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ait_llm.decisions.choices import Choice, margins_in
from ait_llm.decisions.result import Cause, Contribution, Decision
from ait_llm.dump.patches import Patches
from ait_llm.transplanting.patched import PatchedProgram
from ait_llm.transplanting.search import Found

MOST = 4
"""Choices whose change is told apart by its causes."""
_NO_SUSPECT = "values differ by more than rounding, and the own error of none of them does"
_POINTS = ((0.5 - math.sqrt(0.15), 5 / 18), (0.5, 4 / 9), (0.5 + math.sqrt(0.15), 5 / 18))


@dataclass(slots=True)
class Reasons:
    """Runs mine to learn why it chose otherwise.

    Attributes:
        side: mine, compared, with its own errors known.
        suspects: those that are more than rounding.
        tell: is told before each run what it is.
        runs: of mine so far.
    """

    side: PatchedProgram
    suspects: Sequence[Found]
    tell: Callable[[str], None]
    runs: int = 0

    def parts(self, choices: Sequence[Choice]) -> list[Decision]:
        """The decisions of these choices with what each error did to them."""
        return [
            _with_parts(choice.decision, changes, self.suspects, self.side.rounded)
            for choice, changes in zip(choices, self._parts(choices), strict=True)
        ]

    def causes(self, choices: Sequence[Choice]) -> list[tuple[Cause, str]]:
        """Why each of these choices is another one; where that is known, in one sentence."""
        answer = self.side.answer
        if not choices:
            return []
        # where the judge of comparisons finds nothing, it is rounding, however large some parts are
        if answer is None or not self.side.differs:
            return [("rounding", "nothing differs by more than rounding")] * len(choices)
        if not self.suspects:
            return [("undecided", _NO_SUSPECT)] * len(choices)
        margins = margins_in(answer, self._healed(), choices)
        return [_cause(each.decision, left) for each, left in zip(choices, margins, strict=True)]

    def _parts(self, choices: Sequence[Choice]) -> list[dict[str, float]]:
        """The change of each margin by place; empty where it cannot be computed."""
        errors = [*self.suspects, *self.side.rounded]
        places = {
            key: patch for each in errors for key, patch in each.patches.items() if patch.adds
        }
        total: list[dict[str, float]] = [{} for _ in choices]
        for share, weight in _POINTS if places else ():
            self.tell(f"gradients with {share:.0%} of its own errors")
            plan = Patches(
                self.side.plans / f"gradients_{share:.2f}.json",
                {key: replace(patch, scale=1 - share) for key, patch in places.items()},
                frozenset(),
                [choice.margin for choice in choices],
            )
            outcome = self._run(plan)
            if not any(outcome.changes):
                why = next(iter(outcome.refused.values()), "its modules are not seen")
                self.side.notes.append(f"what each error contributes is not known: {why}")
                return [{} for _ in choices]
            for parts, changes in zip(total, outcome.changes, strict=True):
                for key, change in changes.items():
                    parts[key] = parts.get(key, 0.0) - weight * change
        return total

    def _run(self, plan: Patches) -> Patches:
        self.runs += 1
        plan.write()
        self.side.runner.run(self.side.folder / plan.plan.stem, plan.plan)
        return plan.outcome()

    def _healed(self) -> Path:
        self.tell("golden's values where it differs by more than rounding")
        self.runs += 1
        self.side.damage(self.suspects, 0)
        return self.side.folder / "run0"


def _cause(decision: Decision, left: float | None) -> tuple[Cause, str]:
    """Why another token was chosen.

    Args:
        decision: the choice.
        left: its margin where golden's values are in place of all that differs by more than
            rounding; None where there is no such answer.
    """
    if left is None:
        return "undecided", "with golden's values where mine differs it gives no such answer"
    rounded, by_mine = left - decision.golden_margin, decision.mine_margin - left
    told = (
        f"what differs by more than rounding changes the margin by {by_mine:.3g}, "
        f"rounding by {rounded:.3g}"
    )
    is_mine = left >= 0 and abs(by_mine) >= abs(rounded)
    return ("difference" if is_mine else "rounding"), told


def _with_parts(
    decision: Decision,
    changes: dict[str, float],
    suspects: Sequence[Found],
    rounded: Sequence[Found],
) -> Decision:
    """The decision with what each error did to it."""
    if not changes:
        return decision
    found = []
    for some, within in ((suspects, False), (rounded, True)):
        for each in some:
            part = sum(changes.get(key, 0.0) for key in each.patches)
            one = each.suspect
            found.append(Contribution(one.op, one.op_type, one.name, part, within))
    explained = math.fsum(each.change for each in found)
    return replace(
        decision,
        contributions=tuple(sorted(found, key=lambda each: -abs(each.change))),
        explained=explained,
    )
