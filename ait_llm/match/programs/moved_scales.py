"""Products of one formula whose programs multiply by its number in other places.

Attention scales its queries, its queries and keys by the root of the scale, or its scores. What
lies between these places is another multiple on each side, with no counterpart; what goes in and
what comes out has one.
"""

from __future__ import annotations

import math
from functools import cached_property

from ait_llm.match.programs.backward import Backward
from ait_llm.match.programs.multiples import behind, sources
from ait_llm.program.flow import Value
from ait_llm.program.program import Program
from ait_llm.program.roles import Role

_PRODUCTS = frozenset({"mm", "bmm", "matmul"})
_MOVED = "what a product reads or gives that is scaled in another place"
_ROUNDING = 1e-6  # of numbers in float32, multiplied twice or thrice


class MovedScales(Backward):
    """Links around products that are scaled in another place."""

    @cached_property
    def _products(self) -> list[int]:
        right = self._right
        return [op for op, role in enumerate(right.roles) if _is_product(right, op, role)]

    def _moves_scale(self, op: int, other: int) -> bool:
        """True if two products are multiplied by one number, but not in the same places."""
        if not _is_product(self._left, op, self._left.roles[op]):
            return False
        ours, theirs = _scales(self._left, op), _scales(self._right, other)
        return not _are_equal(ours[0], theirs[0]) and _are_equal(math.prod(ours), math.prod(theirs))

    def _pair_moved_scale(self, op: int) -> bool:
        """Pair a product with the only one that reads multiples of the same values."""
        if op in self._pairs or not _is_product(self._left, op, self._left.roles[op]):
            return False
        place = self._place_of(op)
        fits = [
            other
            for other in self._products
            if other not in self._taken
            and (place is None or place in self._right.flow.ancestors(other))
            and self._fits(op, other)
            and self._read_the_same(op, other)
            and self._moves_scale(op, other)
        ]
        if len(fits) != 1:
            return False
        self._pairs[op] = fits[0]
        self._taken[fits[0]] = op
        self._scaled_apart.add(op)
        self._links.add_unit(op, fits[0])
        ours, theirs = _result(self._left, op), _result(self._right, fits[0])
        if ours is not None and theirs is not None:
            ends = behind(self._left, ours)[0], behind(self._right, theirs)[0]
            self._link_if_open(*ends, _MOVED)
        return True

    def _read_the_same(self, op: int, other: int) -> bool:
        """True if all that two products read goes back to values that answer each other."""
        ours, theirs = self._sources(self._left, op), self._sources(self._right, other)
        return len(ours) == len(theirs) and all(map(self._have_one_source, ours, theirs))

    def _have_one_source(self, mine: Value, their: Value) -> bool:
        right = {value.number for value, _ in sources(self._right, their)}
        return any(
            partner.number in right
            for value, _ in sources(self._left, mine)
            for partner in self._partners(value)
        )


def _is_product(side: Program, op: int, role: Role) -> bool:
    return role is Role.OPERATOR and side.kind(op) in _PRODUCTS


def _result(side: Program, op: int) -> Value | None:
    return side.value(op, side.operations[op].outputs[0]) if side.operations[op].outputs else None


def _scales(side: Program, op: int) -> tuple[float, float]:
    """By what a product is multiplied before it is made, and behind that."""
    read = (side.value(op, tensor) for tensor in side.operations[op].inputs)
    first = math.prod(_scale(side, value) for value in read if value is not None)
    made = _result(side, op)
    return first, 1.0 if made is None else behind(side, made)[1]


def _scale(side: Program, value: Value) -> float:
    return [factor for _, factor in sources(side, value)][-1]


def _are_equal(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_ROUNDING)
