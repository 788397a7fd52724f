"""Attention masks of two element types, each of which hides a place in its own way.

Masks are added and hide with the lowest value of their type. The attention of bf16 multiplies its
mask by -3e38 instead, which therefore holds 1 where a key is hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ait_llm.core import DType
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.match.shapes import Aligned, Shape
from ait_llm.match.value_views import Hidden
from ait_llm.program.describe import logical_shape

_ATTENTION = "Attention"
_LOOKED_AT = 1 << 16  # elements
_ADDED = 2.0**-5  # of the lowest number of float16: what scores may have added to it
# lowest finite values: (2 - 2**-mantissa bits) * 2**largest exponent
_LOWEST = {
    DType.FLOAT16: -65504.0,
    DType.BFLOAT16: -(2 - 2.0**-7) * 2.0**127,
    DType.FLOAT32: -(2 - 2.0**-23) * 2.0**127,
}


class Masks:
    """Aligns masks: -65504 of float16 and 1 of bf16 hide a place alike.

    Args:
        pairs: operations that belong together.
    """

    def __init__(self, pairs: Sequence[tuple[Operation, Operation]]) -> None:
        # a mask reaches its operation through the graphs around it, in the same shape
        self._shapes: set[tuple[int, Shape]] = set()
        for golden, mine in pairs:
            if mine.is_graph or _ATTENTION not in mine.type:
                continue
            for one, other in zip(golden.inputs, mine.inputs, strict=False):
                if hidden_values(one, other) is not None:
                    self._shapes.add((mine.op_id.parts[0], logical_shape(other)))

    def align(self, top: int, golden: Tensor, mine: Tensor) -> Aligned | None:
        """Views for two masks; None for anything else. Arguments as of ``Addresses.align``."""
        if not self._shapes or mine.role != "in":
            return None
        try:
            known = (top, logical_shape(mine)) in self._shapes
        except AitError:
            return None
        hidden = hidden_values(golden, mine) if known else None
        if hidden is None:
            return None
        return Aligned((Hidden(hidden[0]),), (Hidden(hidden[1]),), "hidden places of both masks")


def hidden_scores(golden: Array, mine: Array) -> tuple[Hidden, Hidden] | None:
    """Views for two masks, or scores that a mask was added to, which hide the same places.

    A place is hidden by minus infinity, or by the lowest number of a floating type, whatever type
    the values have by now. What is added to it is lost, but in float16 shows in the last digits.
    Beside such numbers any error of what is seen looks like nothing.

    Args:
        golden, mine: values of equal dims, after the views of their match.

    Returns:
        Views that hide the same places alike; None if the two do not hide the same places.
    """
    first, second = _hidden(golden), _hidden(mine)
    if first is None and second is None:
        return _unlimited(golden, mine)
    if first is None or second is None or not np.array_equal(first[1], second[1]):
        return None
    one, other = (
        Hidden(float(values[places].max()), below=True)
        for values, (_, places) in ((golden, first), (mine, second))
    )
    return one, other


def _unlimited(golden: Array, mine: Array) -> tuple[Hidden, Hidden] | None:
    """Views where both have the largest number of their own type at the same places: a limit."""
    largest = [-_LOWEST[kind] if (kind := _type_of(each)) else None for each in (golden, mine)]
    if largest[0] is None or largest[1] is None or golden.dtype == mine.dtype:
        return None
    places = golden == largest[0]
    if not places.any() or not np.array_equal(places, mine == largest[1]):
        return None
    return Hidden(largest[0], above=True), Hidden(largest[1], above=True)


def _type_of(values: Array) -> DType | None:
    return next((kind for kind in _LOWEST if values.dtype == kind.numpy_type), None)


def _hidden(values: Array) -> tuple[float, Array] | None:
    """With what the lowest values hide, and where; None if they are no mask's."""
    wide = values.astype(np.float64)
    places = wide <= _LOWEST[DType.FLOAT16] * (1 - _ADDED)
    found = wide[places]
    finite = found[np.isfinite(found)]
    if not found.size:
        return None
    if not finite.size:
        return -np.inf, places
    least, most = finite.min(), finite.max()
    for lowest in _LOWEST.values():
        nearest = lowest * (1 - _ADDED) if lowest == _LOWEST[DType.FLOAT16] else lowest
        if lowest <= least and most <= nearest:
            return lowest, places
    return None


def may_hide(lowest: float) -> bool:
    """True if the lowest number of a tensor is low enough to hide a place."""
    return lowest <= _LOWEST[DType.FLOAT16] * (1 - _ADDED)


def hidden_values(golden: Tensor, mine: Tensor) -> tuple[float, float] | None:
    """What hides a place on each side; None if the two do not hide the same places."""
    try:
        types = golden.dtype, mine.dtype
        shape = logical_shape(mine)
        if types[0] is types[1] or logical_shape(golden) != shape or len(shape) < 2:
            return None
        if not (_LOWEST.keys() >= set(types) and golden.has_data and mine.has_data):
            return None
        # attention also takes caches; the start of a mask hides something, that of a cache does not
        if not all(any(_ways(tensor.dtype, _start(tensor))) for tensor in (golden, mine)):
            return None
        first, second = (tensor.nd().astype(np.float64) for tensor in (golden, mine))
    except AitError:
        return None  # comparing it says what is wrong
    for one in _ways(types[0], first):
        for other in _ways(types[1], second):
            places = first == one
            if places.any() and np.array_equal(places, second == other):
                return one, other
    return None


def _start(tensor: Tensor) -> Array:
    """The first values of a tensor, without reading the rest of a large one."""
    return tensor.numpy(mmap=True).reshape(-1)[:_LOOKED_AT].astype(np.float64)


def _ways(dtype: DType, values: Array) -> Iterator[float]:
    """Values that hide a place in a mask of that type, as far as they occur."""
    if (values == _LOWEST[dtype]).any():
        yield _LOWEST[dtype]
    if dtype is DType.BFLOAT16 and np.isin(values, (0, 1)).all() and values.any():
        yield 1.0
