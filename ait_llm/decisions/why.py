"""Which errors changed the choice of a token, and whether they are more than rounding.

Mine with the share ``1 - a`` of every own error taken away is golden at ``a = 0`` and mine at
``a = 1``. The margin of two logits changes along ``a`` by the gradient times the errors, so that
the integral over it gives each error its part, and the parts add up to the whole change. Three
points of Gauss and Legendre are exact for a polynomial of the fifth degree. Where they do not add
up, as behind a router that chooses other experts, and where there are no gradients, parts are
measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ait_llm.decisions.choices import Choice, margins_in
from ait_llm.decisions.measured import MeasuredParts, Part
from ait_llm.decisions.result import Cause, Contribution, Decision
from ait_llm.dump.patches import Patches
from ait_llm.transplanting.patched import PatchedProgram
from ait_llm.transplanting.search import Found

MOST = 4
"""Choices whose change is told apart by its causes."""
_NO_SUSPECT = "values differ by more than rounding, and the own error of none of them does"
_POINTS = ((0.5 - math.sqrt(0.15), 5 / 18), (0.5, 4 / 9), (0.5 + math.sqrt(0.15), 5 / 18))


@dataclass
class Reasons:
    """Runs mine to learn why it chose otherwise.

    Attributes:
        side: mine, compared.
        tell: is told before each run what it is.
        runs: of mine so far.
    """

    side: PatchedProgram
    tell: Callable[[str], None]
    runs: int = 0
    _is_healed: bool = False

    @cached_property
    def suspects(self) -> Sequence[Found]:
        """Own errors that are more than rounding.

        Raises:
            OtherPassesError: mine makes other passes each time it runs.
        """
        self.runs += 1
        return self.side.suspects(self.tell)

    def parts(self, choices: Sequence[Choice]) -> list[Decision]:
        """The decisions of these choices with what each error did to them.

        Raises:
            OtherPassesError: mine makes other passes each time it runs.
        """
        errors = self._in_order()
        gradients = [
            [sum(parts.get(key, 0.0) for key in each.patches) for each in errors] if parts else []
            for parts in self._gradients(choices)
        ]
        if not self.suspects and not all(gradients):
            return [each.decision for each in choices]
        measured = MeasuredParts(
            gradients,
            [each.decision.change for each in choices],
            lambda count: self._with_first(count, errors, choices),
            len(errors),
            len(self.side.rounded),
        )
        found = measured.find()
        return [
            _with_parts(choice.decision, parts, errors, set(map(id, self.suspects)))
            for choice, parts in zip(choices, found, strict=True)
        ]

    def _in_order(self) -> list[Found]:
        """All errors as they are computed, roundings first."""
        places = {place.key: number for number, place in enumerate(self.side.found)}
        some = [
            sorted(each, key=lambda each: min(places[key] for key in each.patches))
            for each in (self.side.rounded, self.suspects)
        ]
        return [*some[0], *some[1]]

    def _with_first(
        self, count: int, errors: Sequence[Found], choices: Sequence[Choice]
    ) -> list[float | None]:
        """The change of each margin with the first errors alone."""
        if count == len(self.side.rounded):
            margins = self._healed(choices)
        else:
            self.tell(f"the first {count} of {len(errors)} errors alone")
            margins = self._without(errors[count:], count, choices)
        return [
            None if margin is None else margin - choice.decision.golden_margin
            for choice, margin in zip(choices, margins, strict=True)
        ]

    def causes(self, choices: Sequence[Choice]) -> list[tuple[Cause, str]]:
        """Why each of these choices is another one; where that is known, in one sentence.

        Raises:
            OtherPassesError: mine makes other passes each time it runs.
        """
        if not choices:
            return []
        # where the judge of comparisons finds nothing, it is rounding, however large some parts are
        if not self.side.differs:
            return [("rounding", "nothing differs by more than rounding")] * len(choices)
        if not self.suspects:
            return [("undecided", _NO_SUSPECT)] * len(choices)
        margins = self._healed(choices)
        return [_cause(each.decision, left) for each, left in zip(choices, margins, strict=True)]

    def _gradients(self, choices: Sequence[Choice]) -> list[dict[str, float]]:
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
            self.runs += 1
            self.side.run(self.side.folder / plan.plan.stem, plan)
            if not any(plan.changes):
                why = next(iter(plan.refused.values()), "its modules are not seen")
                self.side.notes.append(
                    f"parts are measured, if at all: there are no gradients: {why}"
                )
                return [{} for _ in choices]
            for parts, changes in zip(total, plan.changes, strict=True):
                for key, change in changes.items():
                    parts[key] = parts.get(key, 0.0) - weight * change
        return total

    def _healed(self, choices: Sequence[Choice]) -> list[float | None]:
        """The margins with golden's values where mine differs by more than rounding."""
        if not self._is_healed:
            self.tell("golden's values where it differs by more than rounding")
            self._is_healed = True
            return self._without(self.suspects, 0, choices)
        assert self.side.answer is not None
        return margins_in(self.side.answer, self.side.folder / "run0", choices)

    def _without(
        self, healed: Sequence[Found], number: int, choices: Sequence[Choice]
    ) -> list[float | None]:
        assert self.side.answer is not None
        self.runs += 1
        self.side.damage(healed, number)
        return margins_in(self.side.answer, self.side.folder / f"run{number}", choices)


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
    decision: Decision, parts: Sequence[Part], errors: Sequence[Found], suspects: set[int]
) -> Decision:
    """The decision with what each error did to it."""
    found = []
    for part in parts:
        several = errors[part.first : part.last + 1]
        first, last = several[0].suspect, several[-1].suspect
        found.append(
            Contribution(
                first.op,
                first.op_type,
                first.name,
                part.change,
                all(id(each) not in suspects for each in several),
                part.measured,
                last.op if len(several) > 1 else "",
            )
        )
    return replace(
        decision,
        contributions=tuple(sorted(found, key=lambda each: -abs(each.change))),
        explained=math.fsum(each.change for each in found),
    )
