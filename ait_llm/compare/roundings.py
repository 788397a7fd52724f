"""How far one rounding, or a sum in another order, may bring two tensors apart."""

from __future__ import annotations

import math

from ait_llm.core import DType
from ait_llm.core.comparison import Comparison, TensorRecord
from ait_llm.judge.pairs import DISTANCE

_ROUNDING = {DType.FLOAT16: 2.0**-11, DType.BFLOAT16: 2.0**-8}
_FLOAT32_SUMS = 2.0**-20
_WEIGHED = 4.0  # by what a healthy mean or square root of rounded values weighs their error
_FLIPS = 2.0  # small tensors have few elements that could be moved, and some are large


def rounding_of(record: TensorRecord) -> float:
    """Relative error of one rounding to the type of a tensor, or of sums in float32."""
    return _ROUNDING.get(record.dtype, _FLOAT32_SUMS) if record.dtype else _FLOAT32_SUMS


def is_coarse(item: Comparison) -> bool:
    """True for a comparison of values of 16 bits on either side."""
    return any(each is not None and each.dtype in _ROUNDING for each in (item.golden, item.mine))


def noise_of(item: Comparison, given: float = 0.0, *, of_coarse: bool = False) -> float:
    """Relative error that roundings alone may add to what came in.

    Sums in another order are off by as much in float32. Rounded to 16 bits afterwards, an error
    ``e`` of that kind, or one that came in, moves about ``e / u`` of the elements to a neighbour,
    that is ``sqrt(e * u)`` altogether, where ``u`` is the rounding of the type. Float32 values
    between such have no rounding of their own, but weigh what came in otherwise: a square root, or
    a product with one.

    Args:
        item: a comparison of two tensors.
        given: relative error of what they were computed from.
        of_coarse: the run rounds to 16 bits elsewhere.
    """
    records = [each for each in (item.golden, item.mine) if each is not None]
    rounding = max(map(rounding_of, records))
    if rounding == _FLOAT32_SUMS:
        return _WEIGHED * given if of_coarse and given > rounding else rounding
    if len({each.dtype for each in records}) > 1:
        return rounding
    return min(rounding, _FLIPS * math.sqrt(rounding * max(given, _FLOAT32_SUMS)))


def is_of_sums(item: Comparison) -> bool:
    """True if two tensors of a type differ by no more than float32 sums in another order do.

    Then mine is as right as golden, whatever is computed of the values that are told of it.
    """
    types = {each.dtype for each in (item.golden, item.mine) if each is not None}
    if len(types) != 1 or not types <= {DType.FLOAT32, *_ROUNDING}:
        return False
    return item.values.get(DISTANCE, math.inf) <= noise_of(item)
