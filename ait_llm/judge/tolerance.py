"""How far two correct sides may be apart.

Model of the error. Two correct implementations round the same tensors independently and sum in
float32 in their own order. One rounding to a type of unit roundoff u changes a value by at most
u of its size and by 0.42 u in the root mean square, values being spread evenly over binades; a
float32 sum of n terms adds about sqrt(n) roundings of its own. Independent errors add like a
random walk, so after k tensors on each of two sides the relative Euclidean distance is about

    sqrt(2 k) (0.42 u + sqrt(n) 2**-24).

A decoder layer rounds eleven tensors between its input and its output. The limits take 16 layers
(k = 176) and n = 4096, and round up. The walk is an upper estimate, because normalisation and the
residual stream forget part of it: the fp16 demos end at 0.4 (Llama, 2 layers) and 0.7 (BERT, 6
layers) of it, so that the limits should hold for twice to five times as many layers. The model is
that of ``hostatb.models.check``, without its factor of four, which would let an error of one per
cent pass; with 16 layers an epsilon of 0.01 instead of 1e-5, half a per cent, does not either.

A single element may be ``ELEMENT_FACTOR`` times the distance away, relative to its own size plus
the root mean square of its tensor: errors near a normal distribution reach six standard deviations
in a billion elements, and the elements of one tensor do not all have the same.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ait_llm.core import DType
from ait_llm.errors import UsageError
from ait_llm.metrics.precision import coarser, is_quantised

ELEMENT_FACTOR = 10.0

# By the model: fp64 1.3e-13, fp32 7.2e-5, fp16 3.9e-3, bf16 3.1e-2. Narrower types hold the result
# of a wider computation: one rounding on each side, 0.42 u sqrt(2), and a factor of two for values
# that are not spread evenly.
_DISTANCES: Mapping[DType, float] = {
    DType.FLOAT64: 1.5e-13,
    DType.FLOAT32: 7.5e-5,
    DType.FLOAT16: 4e-3,
    DType.BFLOAT16: 3.2e-2,
    DType.HIFLOAT8: 0.08,
    DType.FLOAT8_E4M3FN: 0.08,
    DType.FLOAT6_E2M3: 0.08,
    DType.FLOAT8_E5M2: 0.15,
    DType.FLOAT6_E3M2: 0.15,
    DType.FLOAT4_E1M2: 0.15,
    DType.FLOAT4_E2M1: 0.3,
    DType.FLOAT8_E8M0: 0.6,
}
# int8 against a float: a step is max / 127, its rounding step / sqrt(12) in the root mean square.
# With max = 10 rms, usual for activations, that is 0.023 for one operand; two operands and a few
# such operations in a row give 0.1.
_QUANTISED_DISTANCE = 0.1


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Limits of a verdict; None stands for the default of the element type.

    Attributes:
        relative_euclidean: largest relative Euclidean distance.
        max_element: largest ``abs(m - g) / (abs(g) + rms(g))`` of any element; if only
            ``relative_euclidean`` is given, ten times that.
        by_dtype: other limits where this is the coarser type of the pair.
    """

    relative_euclidean: float | None = None
    max_element: float | None = None
    by_dtype: Mapping[DType, Tolerance] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for value in (self.relative_euclidean, self.max_element):
            if value is not None and not 0 <= value < math.inf:
                raise UsageError(f"a tolerance must be a number from 0, not {value}")


# Two tensors farther apart than this have little more in common than any two of their size.
_FARTHEST = 0.7


def behind_steps(steps: float) -> Tolerance:
    """Limits of floating tensors of which one side alone was computed with quantised numbers.

    Args:
        steps: the error that rounding to the nearest steps adds up to, as a relative Euclidean
            distance. Weights that are chosen for their products, and activations that amplify,
            cost up to as much again; what int8 costs at one place is allowed anywhere.
    """
    return _behind(min(max(_QUANTISED_DISTANCE, 2 * steps), _FARTHEST))


@functools.cache
def _behind(distance: float) -> Tolerance:
    return Tolerance(
        by_dtype={dtype: Tolerance(max(distance, own)) for dtype, own in _DISTANCES.items()}
    )


# Nothing is computed with weights before they are compared: 16 bits may have been rounded to once
# on each side; float32 may hold sums of a merged adapter or a table.
WEIGHTS = Tolerance(
    by_dtype={
        DType.FLOAT32: Tolerance(1e-6),
        DType.FLOAT16: Tolerance(2.0**-10),
        DType.BFLOAT16: Tolerance(2.0**-7),
    }
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one pair is judged by.

    Attributes:
        relative_euclidean, max_element: as in :class:`Tolerance`.
        dtype: the type that decided them, None for integers.
        exact: True if every element must be equal.
    """

    relative_euclidean: float
    max_element: float
    dtype: DType | None
    exact: bool


def tolerance_for(golden: DType, mine: DType, tolerance: Tolerance | None = None) -> Limits:
    """The limits for a pair of logical types, with what the user set.

    The coarser type decides. Integers and bools must be equal unless a tolerance is set for them,
    by name or for all types.
    """
    return _default_limits(golden, mine) if tolerance is None else _limits(golden, mine, tolerance)


@functools.cache
def _default_limits(golden: DType, mine: DType) -> Limits:
    return _limits(golden, mine, Tolerance())


def _limits(golden: DType, mine: DType, chosen: Tolerance) -> Limits:
    dtype = coarser(golden, mine)
    deciding = dtype or (golden if golden.bits <= mine.bits else mine)
    if dtype is None:
        default = 0.0
    elif is_quantised(golden, mine):
        default = max(_QUANTISED_DISTANCE, _DISTANCES[dtype])
    else:
        default = _DISTANCES[dtype]
    if chosen.by_dtype:
        sides = (deciding, golden, mine) if is_quantised(golden, mine) else (deciding,)
        named = [chosen.by_dtype[side] for side in sides if side in chosen.by_dtype]
        # For a quantised pair the integer's own limit is the more specific one.
        chosen = named[-1] if named else replace(chosen, by_dtype={})
    distance = default if chosen.relative_euclidean is None else chosen.relative_euclidean
    element = ELEMENT_FACTOR * distance if chosen.max_element is None else chosen.max_element
    exact = dtype is None and distance == 0 and element == 0
    return Limits(distance, element, dtype, exact)


_SHORT_NAMES = {
    "fp64": DType.FLOAT64,
    "fp32": DType.FLOAT32,
    "fp16": DType.FLOAT16,
    "bf16": DType.BFLOAT16,
    "fp8": DType.FLOAT8_E4M3FN,
}


def parse_tolerance(text: str) -> Tolerance:
    """``1e-3`` for every type, or ``fp16=1e-3,bf16=2e-2`` by type, or both separated by commas.

    The number is the largest relative Euclidean distance; the limit of a single element is ten
    times that.

    Raises:
        UsageError: not a number, or an unknown type.
    """
    general: float | None = None
    by_dtype: dict[DType, Tolerance] = {}
    for part in (piece.strip() for piece in text.split(",")):
        name, equals, number = part.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise UsageError(
                f"--tolerance {text}: {number or part!r} is not a number; "
                "write 1e-3, or fp16=1e-3,bf16=2e-2"
            ) from None
        if not equals:
            general = value
            continue
        by_dtype[_dtype_named(name.strip(), text)] = Tolerance(value)
    return Tolerance(general, by_dtype=by_dtype)


def _dtype_named(name: str, text: str) -> DType:
    short = _SHORT_NAMES.get(name.lower())
    if short is not None:
        return short
    try:
        return DType.from_label(name)
    except ValueError:
        raise UsageError(
            f"--tolerance {text}: unknown type {name!r}; known: "
            f"{', '.join([*_SHORT_NAMES, *(d.label for d in DType if d.bits)])}"
        ) from None
