"""Products that are called once for each expert, with the rows that the router sent to it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import groupby

from ait_llm.match.programs.groups import projections, widths_of
from ait_llm.match.programs.tokens import Tokens
from ait_llm.program.describe import shape_of
from ait_llm.program.flow import Value
from ait_llm.program.program import Program

_FEWEST = 2  # experts
_MATRIX = 2


class ExpertCalls:
    """The products of both sides that have rows of some tokens each.

    Args:
        left, right: the sides.
        tokens: alignment of their rows, None if unknown.
    """

    def __init__(self, left: Program, right: Program, tokens: Tokens | None) -> None:
        self._sides = left, right
        self._tokens = tokens

    def hold(self, op: int, right: Value) -> bool:
        """True if a left product is that of an expert, and a right value is of such a one, too.

        In passes of other sizes the router sent other tokens to it.
        """
        left, others = self._calls
        return op in left and any(use.op in others for use in right.uses)

    @cached_property
    def _calls(self) -> tuple[frozenset[int], frozenset[int]]:
        if self._tokens is None or self._tokens.left.count == self._tokens.right.count:
            return frozenset(), frozenset()
        left, right = self._sides
        ours = _expert_calls(left, self._tokens.left.count)
        return ours, _expert_calls(right, self._tokens.right.count) if ours else frozenset()


def _expert_calls(side: Program, tokens: int) -> frozenset[int]:
    """Operations that have rows of some tokens each, and together as many of every token."""
    return frozenset(op for calls in _stretches(side) if _are_of(calls, tokens) for op in calls)


def _stretches(side: Program) -> Iterator[dict[int, int]]:
    """The rows of projections of equal widths that follow one another, by operation."""
    for _, units in groupby(projections(side.units), widths_of):
        rows = {}
        for unit in units:
            inputs = side.operations[unit.op].inputs
            shape = shape_of(inputs[0]) if inputs else None
            if shape is not None and len(shape) > 1:
                rows[unit.op] = shape[0] if len(shape) == _MATRIX else shape[0] * shape[1]
        yield rows


def _are_of(rows: dict[int, int], tokens: int) -> bool:
    """True for rows that a router may have sent: of a token at most one to each expert."""
    if len(rows) < _FEWEST or not tokens or max(rows.values()) > tokens:
        return False
    return min(rows.values()) < tokens and sum(rows.values()) % tokens == 0
