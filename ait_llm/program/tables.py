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


def rotary_tables(program: Program, layer: int) -> tuple[Value, Value] | None:
    """Cosines and sines among what a layer or a module within it is handed.

    The squares of two such tables add up to one number everywhere. The slowest angle, in the last
    column, is small, so the cosines are the larger ones there.

    Returns:
        None if there is no such pair, or more than one.
    """
    found: dict[tuple[int, int], tuple[Value, Value]] = {}
    for op in (layer, *program.members(layer)):
        inputs = [tensor for tensor in program.operations[op].inputs if is_float(tensor)]
        for first, second in combinations(inputs, 2):
            shape = shape_of(first)
            if not shape or shape != shape_of(second) or not 0 < size_of(first) <= _MOST:
                continue
            one, other = program.value(op, first), program.value(op, second)
            arrays = _array(first), _array(second)
            if one is None or other is None or arrays[0] is None or arrays[1] is None:
                continue
            if one is other or not _is_circle(arrays[0], arrays[1]):
                continue
            ends = [float(np.abs(array[..., -1]).mean()) for array in arrays if array is not None]
            pair = (one, other) if ends[0] > ends[1] else (other, one)
            found[pair[0].number, pair[1].number] = pair
    return next(iter(found.values())) if len(found) == 1 else None


def _array(tensor: Tensor) -> Array | None:
    try:
        return tensor.nd().astype(np.float64) if tensor.has_data else None
    except AitError:
        return None


def _is_circle(one: Array, other: Array) -> bool:
    squares = one * one + other * other
    mean = float(squares.mean())
    return 0 < mean < np.inf and bool(np.abs(squares / mean - 1).max() < _ROUNDING)
