"""What one tensor holds that it should not: NaN, infinities, values at the end of their type."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ait_llm.core import DType
from ait_llm.core.kernels import ELEMENTS, native_kernels
from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.formats import measure
from ait_llm.formats.elements import Array

# Types whose largest value is an overflow. Quantisation to narrower ones fills their range on
# purpose: the largest value of a row becomes the largest number there is.
SATURATING = (DType.FLOAT64, DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16)
State = Literal["values", "statistics", "unread", "exempt"]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Reading:
    """What was found in one tensor.

    Attributes:
        state: ``values`` or ``statistics`` say what was read, ``unread`` that nothing could be,
            ``exempt`` that there is nothing to find, as in whole numbers.
        elements: how many elements the tensor has.
        nan, inf, saturated: how many are NaN, infinite, or finite and at the end of their type.
        counted: False if the counts are lower bounds, which is all that extremes can tell.
        first: place of the first of them; None where only statistics are known.
        lowest_only: all of them are -Inf or the lowest value of the type, as in masks.
        mask: besides them there are zeros, or zeros and ones, and nothing else.
        narrow: int8 elements at an end of their range; they are no error.
        reason: why nothing was read.
    """

    state: State
    elements: int = 0
    nan: int = 0
    inf: int = 0
    saturated: int = 0
    counted: bool = True
    first: tuple[int, ...] | None = None
    lowest_only: bool = False
    mask: bool = False
    narrow: int = 0
    reason: str = ""

    @property
    def bad(self) -> int:
        """How many elements are not what numbers should be."""
        return self.nan + self.inf + self.saturated

    @property
    def may_hide(self) -> bool:
        """True if all may be -Inf or the lowest value; statistics do not tell the sign of Inf."""
        return self.lowest_only or (self.state == "statistics" and self.nan == 0)

    @property
    def mark(self) -> tuple[int, int, int, int]:
        """What tensors of the same values agree in, whatever their shape."""
        return (self.elements, self.nan, self.inf, self.saturated)


def read(tensor: Tensor) -> Reading:
    """Look at one tensor; what is wrong with its file is a reason, not an error."""
    try:
        dtype, shape = tensor.dtype, tensor.shape
        elements = math.prod(shape)
        if elements == 0:
            return Reading("exempt")
        if dtype is DType.INT8 and tensor.has_data:
            narrow = np.isin(tensor.numpy(mmap=True), (-128, 127))
            return Reading("exempt", elements, narrow=int(narrow.sum()))
        if not (dtype.is_floating or dtype.label.startswith("complex")):
            return Reading("exempt", elements)
        if tensor.has_data:
            return _of_values(_real(tensor.numpy(mmap=True)), dtype, shape)
        return _of_statistics(tensor, dtype, elements)
    except (AitError, OSError, ValueError, TypeError) as error:
        return Reading("unread", reason=str(error))


def flags(tensor: Tensor) -> Flags:
    """For each element of a tensor with values whether it is NaN, infinite or saturated.

    Raises:
        AitError: the values cannot be read.
    """
    array = _real(tensor.numpy(mmap=True))
    bad: Flags = ~np.isfinite(array) | _saturated(array, tensor.dtype)
    if bad.ndim > len(tensor.shape):
        bad = np.asarray(bad.any(axis=-1))
    return bad


def _real(array: Array) -> Array:
    """Real numbers; those of a complex tensor lie along a further axis."""
    if array.dtype.kind != "c":
        return array
    return np.stack((array.real, array.imag), axis=-1)


def _of_values(array: Array, dtype: DType, shape: tuple[int, ...]) -> Reading:
    elements = math.prod(shape)
    low, high, nan, inf = _extremes(array)
    end = _end(dtype)
    saturated = end is not None and (low <= -end or high >= end)
    if not (nan or inf or saturated):
        return Reading("values", elements)
    ends = _saturated(array, dtype)
    bad = ~np.isfinite(array) | ends
    place = np.unravel_index(int(bad.reshape(-1).argmax()), bad.shape)
    lowest_only = nan == 0 and bool((array[bad] < 0).all())
    return Reading(
        "values",
        elements,
        nan,
        inf,
        int(ends.sum()),
        first=tuple(int(i) for i in place[: len(shape)]),
        lowest_only=lowest_only,
        mask=lowest_only and not bad.all() and bool(((array == 0) | (array == 1) | bad).all()),
    )


def _extremes(array: Array) -> tuple[float, float, int, int]:
    """Lowest and highest finite element, and the counts of NaN and infinities."""
    kernels = native_kernels()
    code = ELEMENTS.get(array.dtype.name)
    if kernels is not None and code is not None:
        whole = np.ascontiguousarray(array)
        high, low, _, _, nan, inf = kernels.statistics(code, whole.ctypes.data, whole.size)
        return low, high, int(nan), int(inf)
    found = measure(array)
    low = math.nan if found.min is None else found.min
    return low, math.nan if found.max is None else found.max, found.nan or 0, found.inf or 0


def _saturated(array: Array, dtype: DType) -> Flags:
    end = _end(dtype)
    if end is None:
        return np.zeros(array.shape, np.bool_)
    limit: Any = array.dtype.type(end)
    return np.asarray((array == limit) | (array == -limit))


def _end(dtype: DType) -> float | None:
    """The largest finite value, for types in which it means an overflow."""
    if dtype not in SATURATING or dtype.numpy_type is None:
        return None
    return float(ml_dtypes.finfo(dtype.numpy_type).max)  # type: ignore[no-untyped-call]


def _of_statistics(tensor: Tensor, dtype: DType, elements: int) -> Reading:
    found = tensor.statistics
    numbers = () if found is None else (found.min, found.max, found.mean, found.l2norm)
    if found is None or (all(n is None for n in numbers) and found.nan is None):
        return Reading("unread", elements, reason="neither values nor statistics were saved")
    counted = found.nan is not None and found.inf is not None
    low, high = (math.nan if n is None else n for n in (found.min, found.max))
    nan, inf = found.nan or 0, found.inf or 0
    if not counted:
        # These tools let NaN and infinities into the extremes.
        nan = max(nan, int(any(n is not None and math.isnan(n) for n in (found.min, found.max))))
        inf = max(inf, int(math.isinf(low)) + int(math.isinf(high) and elements > 1))
        inf = max(inf, int(math.isinf(high)))
    end = _end(dtype)
    ends = [n for n in (low, high) if end is not None and math.isfinite(n) and abs(n) >= end]
    # The sign of an infinity is known where extremes show it, else that of a mask is taken.
    plain = low in (0, 1) or (end is not None and low == -end)
    mask = nan == 0 and bool(inf or ends) and high in (0, 1) and (plain or math.isinf(low))
    lowest_only = mask or (nan == 0 and math.isinf(low) and math.isfinite(high) and not counted)
    if ends and not inf and nan == 0 and end is not None and high < end:
        lowest_only = True
    return Reading(
        "statistics",
        elements,
        nan,
        inf,
        len(ends),
        counted=counted and not ends,
        lowest_only=lowest_only,
        mask=mask,
    )
