"""How far one rounding, or a sum in another order, may bring two tensors apart."""

from __future__ import annotations

import math

from ait_llm.core import DType
from ait_llm.core.comparison import Comparison, TensorRecord
from ait_llm.judge.pairs import DISTANCE

_ROUNDING = {DType.FLOAT16: 2.0**-11, DType.BFLOAT16: 2.0**-8}
_FLOAT32_SUMS = 2.0**-20


def rounding_of(record: TensorRecord) -> float:
    """Relative error of one rounding to the type of a tensor, or of sums in float32."""
    return _ROUNDING.get(record.dtype, _FLOAT32_SUMS) if record.dtype else _FLOAT32_SUMS


def is_of_sums(item: Comparison) -> bool:
    """True if two float32 tensors differ by no more than sums in another order do.

    Then mine is as right as golden, whatever is computed of the values that are told of it.
    """
    types = {each.dtype for each in (item.golden, item.mine) if each is not None}
    return types == {DType.FLOAT32} and item.values.get(DISTANCE, math.inf) <= _FLOAT32_SUMS
