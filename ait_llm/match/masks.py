"""Attention masks of two element types, each of which hides a place in its own way.

Masks are added and hide with the lowest value of their type. The attention of bf16 multiplies its
mask by -3e38 instead, which therefore holds 1 where a key is hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ait_llm.core import DType
from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.match.operators import Placed
from ait_llm.match.shapes import Aligned, Shape
from ait_llm.match.views import Hidden
from ait_llm.program.describe import logical_shape

_ATTENTION = "Attention"
_LOOKED_AT = 1 << 16  # elements
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

    def __init__(self, pairs: Sequence[tuple[Placed, Placed]]) -> None:
        # a mask reaches its operation through the graphs around it, in the same shape
        self._shapes: set[tuple[int, Shape]] = set()
        for golden, mine in pairs:
            if mine.operation.is_graph or _ATTENTION not in mine.operation.type:
                continue
            for one, other in zip(golden.operation.inputs, mine.operation.inputs, strict=False):
                if _hidden_values(one, other) is not None:
                    top = mine.operation.op_id.parts[0]
                    self._shapes.add((top, logical_shape(other)))

    def align(self, golden: tuple[Placed, Tensor], mine: tuple[Placed, Tensor]) -> Aligned | None:
        """Views for two masks; None for anything else."""
        tensor = mine[1]
        if not self._shapes or tensor.role != "in":
            return None
        try:
            known = (mine[0].operation.op_id.parts[0], logical_shape(tensor)) in self._shapes
        except AitError:
            return None
        hidden = _hidden_values(golden[1], tensor) if known else None
        if hidden is None:
            return None
        return Aligned((Hidden(hidden[0]),), (Hidden(hidden[1]),), "hidden places of both masks")


def _hidden_values(golden: Tensor, mine: Tensor) -> tuple[float, float] | None:
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
