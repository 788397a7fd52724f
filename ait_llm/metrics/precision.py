"""What the metrics need to know of an element type: which of two is coarser, its pass limits."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ait_llm.core import DType

# Bits of the significand after the leading one.
SIGNIFICAND_BITS = {
    DType.FLOAT64: 52,
    DType.FLOAT32: 23,
    DType.FLOAT16: 10,
    DType.BFLOAT16: 7,
    DType.HIFLOAT8: 3,  # near 1, where it has most
    DType.FLOAT8_E4M3FN: 3,
    DType.FLOAT6_E2M3: 3,
    DType.FLOAT8_E5M2: 2,
    DType.FLOAT6_E3M2: 2,
    DType.FLOAT4_E1M2: 2,
    DType.FLOAT4_E2M1: 1,
    DType.FLOAT8_E8M0: 0,
}
# Smallest positive number; what is closer than this cannot be told apart near zero.
SMALLEST = {
    DType.FLOAT64: 2.0**-1074,
    DType.FLOAT32: 2.0**-149,
    DType.FLOAT16: 2.0**-24,
    DType.BFLOAT16: 2.0**-133,
    DType.HIFLOAT8: 2.0**-22,
    DType.FLOAT8_E4M3FN: 2.0**-9,
    DType.FLOAT6_E2M3: 2.0**-3,
    DType.FLOAT8_E5M2: 2.0**-16,
    DType.FLOAT6_E3M2: 2.0**-4,
    DType.FLOAT4_E1M2: 2.0**-2,
    DType.FLOAT4_E2M1: 2.0**-1,
    DType.FLOAT8_E8M0: 2.0**-127,
}
_COMPONENT = {
    DType.COMPLEX32: DType.FLOAT16,
    DType.COMPLEX64: DType.FLOAT32,
    DType.COMPLEX128: DType.FLOAT64,
}
_QUANTISED = frozenset({DType.INT8, DType.UINT8, DType.INT4})


@dataclass(frozen=True, slots=True)
class ElementLimit:
    """``abs(m - g) <= atol + rtol * abs(g)``, the limit that pass_rate counts against."""

    rtol: float
    atol: float


EXACT = ElementLimit(0.0, 0.0)
# fp16 to fp64 as in the table of torch.testing.assert_close. Narrower floats: rtol is one rounding
# of each side, 2 * 2**-(bits + 1), and atol the smallest number.
_ELEMENT_LIMITS = {
    DType.FLOAT64: ElementLimit(1e-7, 1e-7),
    DType.FLOAT32: ElementLimit(1.3e-6, 1e-5),
    DType.FLOAT16: ElementLimit(1e-3, 1e-5),
    DType.BFLOAT16: ElementLimit(1.6e-2, 1e-5),
}


def component(dtype: DType) -> DType:
    """The type of real and imaginary part; a real type itself."""
    return _COMPONENT.get(dtype, dtype)


@functools.cache
def coarser(golden: DType, mine: DType) -> DType | None:
    """The floating type with the shorter significand; None if no side is floating.

    A floating type is coarser than any integer: an exact integer can only be as good as the
    rounded number beside it. Complex types count as their parts.
    """
    floats = [side for side in map(component, (golden, mine)) if side in SIGNIFICAND_BITS]
    return min(floats, key=SIGNIFICAND_BITS.__getitem__, default=None)


def is_quantised(golden: DType, mine: DType) -> bool:
    """True for int8, uint8 or int4 on one side and a floating type on the other."""
    sides = component(golden), component(mine)
    return any(side in _QUANTISED for side in sides) and any(
        side in SIGNIFICAND_BITS for side in sides
    )


@functools.cache
def element_limit(golden: DType, mine: DType) -> ElementLimit:
    """The limit of pass_rate for a pair; integers and bools must be equal."""
    dtype = coarser(golden, mine)
    if dtype is None:
        return EXACT
    known = _ELEMENT_LIMITS.get(dtype)
    return known or ElementLimit(2.0 ** -SIGNIFICAND_BITS[dtype], SMALLEST[dtype])
