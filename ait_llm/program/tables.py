"""Cosines and sines of the rotary positions, told by what they are."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.program.describe import is_float, shape_of, size_of
from ait_llm.program.flow import Value
from ait_llm.program.program import Program

_MOST = 1 << 22  # elements; tables of one pass are small
_ROUNDING = 0.02  # of bfloat16, squared and summed


class RotaryTables:
    """Cosines and sines of a program, which its layers mostly share.

    Args:
        program: with modules.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._pairs: dict[tuple[int, int], tuple[Value, Value] | None] = {}

    def of(self, layer: int) -> tuple[Value, Value] | None:
        """Cosines and sines among what a layer or a module within it is handed.

        Returns:
            None if there is no such pair, or more than one.
        """
        found: dict[tuple[int, int], tuple[Value, Value]] = {}
        for op in (layer, *self._program.members(layer)):
            inputs = [tensor for tensor in self._program.operations[op].inputs if is_float(tensor)]
            for first, second in combinations(inputs, 2):
                shape = shape_of(first)
                if not shape or shape != shape_of(second) or not 0 < size_of(first) <= _MOST:
                    continue
                pair = self._pair(op, first, second)
                if pair is not None:
                    found[pair[0].number, pair[1].number] = pair
        return next(iter(found.values())) if len(found) == 1 else None

    def _pair(self, op: int, first: Tensor, second: Tensor) -> tuple[Value, Value] | None:
        """Two values as cosines and sines, if they are such."""
        one, other = self._program.value(op, first), self._program.value(op, second)
        if one is None or other is None or one is other:
            return None
        key = one.number, other.number
        if key not in self._pairs:
            cosines = _cosines(first, second)
            known = None if cosines is None else (one, other) if cosines is first else (other, one)
            self._pairs[key] = known
        return self._pairs[key]


def _cosines(first: Tensor, second: Tensor) -> Tensor | None:
    """The cosines of two tables; None if they are no cosines and sines of the same angles.

    The squares of two such tables add up to one number everywhere. The slowest angle, in the last
    column, is small, so the cosines are the larger ones there.
    """
    one, other = _array(first), _array(second)
    if one is None or other is None or not _is_circle(one, other):
        return None
    return first if np.abs(one[..., -1]).mean() > np.abs(other[..., -1]).mean() else second


def _array(tensor: Tensor) -> Array | None:
    try:
        return tensor.nd().astype(np.float64) if tensor.has_data else None
    except AitError:
        return None


def _is_circle(one: Array, other: Array) -> bool:
    squares = one * one + other * other
    mean = float(squares.mean())
    return 0 < mean < np.inf and bool(np.abs(squares / mean - 1).max() < _ROUNDING)
