"""How coarsely both sides of a match had been rounded on their way."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ait_llm.core import DType
from ait_llm.match.model import PROGRAMS, Match, Source, Unmatched
from ait_llm.program.adapters import program_of
from ait_llm.program.lineage import Lineage, coarsest, lineage
from ait_llm.program.one_pass import Pass
from ait_llm.program.program import Program

# Two runs of equal steps have the same weights; one of them may show more products before a value.
_SAME_GRID = 1.5


class Lineages:
    """What the tensors of two programs went through.

    Args:
        golden, mine: the programs.
        in_same_steps: one has as real numbers what the other keeps in few bits.
    """

    def __init__(self, golden: Program, mine: Program, *, in_same_steps: bool = False) -> None:
        self._sides = golden, mine
        self._found = tuple(
            lineage(each.flow, of_weights=not in_same_steps) for each in self._sides
        )

    def of(self, golden: Source, mine: Source) -> tuple[float, DType | None]:
        """How far numbers in few bits may have brought two tensors apart, and the coarsest type."""
        first, second = self._of(0, golden), self._of(1, mine)
        fine, coarse = sorted((first.steps, second.steps))
        steps = math.hypot(fine, coarse) if fine * _SAME_GRID < coarse else 0.0
        return steps, coarsest(first.dtype, second.dtype)

    def _of(self, side: int, source: Source) -> Lineage:
        if source.parameter:
            return Lineage(source.record.dtype, 0.0)
        program = self._sides[side]
        value = program.value(source.order - program.run.first_order, source.tensor)
        return Lineage(None, 0.0) if value is None else self._found[side][value.number]


def with_lineages(
    found: Sequence[Match | Unmatched], golden: Pass, mine: Pass
) -> Iterator[Match | Unmatched]:
    """What matchers found that know nothing of programs, such as the mapping of the user."""
    programs = None
    if any(map(_is_open, found)):
        programs = program_of(golden), program_of(mine)
    if programs is None or programs[0] is None or programs[1] is None:
        yield from found
        return
    lineages = Lineages(programs[0], programs[1])
    for each in found:
        if isinstance(each, Match) and _is_open(each):
            steps, rounded_to = lineages.of(each.golden, each.mine)
            yield replace(each, steps=steps, rounded_to=rounded_to)
        else:
            yield each


def _is_open(each: Match | Unmatched) -> bool:
    return isinstance(each, Match) and each.rule != PROGRAMS
