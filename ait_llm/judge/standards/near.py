"""A first look at results of 16 bits: whether they are those of a kernel that only rounds once.

Most kernels add up in float32 and round at the end. Their results are known to be right from golden
before it rounds, which costs nothing beside golden itself: each element is half a spacing off, and
all together err as rounding does. Who passes this passes the contract, whatever else it permits;
who does not is judged by the whole of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ait_llm.errors import AitError
from ait_llm.judge.standards.rounding import FLOAT32_UNIT, OWN_ERRORS

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ait_llm.judge.standards.base import Output

_VARIANCE = 1 / 12  # of an error of half a spacing at most, in spacings
# What float32 adds to half a spacing: relative to it, and relative to the element.
HALF = 0.5 * (1 + 2.0**-8)
_MORE = OWN_ERRORS * FLOAT32_UNIT
_BLOCK = 1 << 16
_EXPONENT = 0xFF << 23  # of the bits of a float32
_WIDTH = 2  # bytes
_SQUARED = (1e-15, 1e15)  # between them squares and their sums are numbers of float32


@dataclass(slots=True)
class NearSums:
    """What all elements add up to; the first ones in units of the deviation of one rounding.

    Attributes:
        exact: the results before they were rounded.
        used: how many elements.
        squares, nearest, distance, weight, power, product: as the contract's sums. What the mean
            of all errors may owe to sums in float32 is left out: ``weight`` is 0.
        error, size, variance: as those, in their own units.
        worst: the element that is furthest off, in units of its bound.
    """

    exact: Tensor
    used: int
    squares: float = 0.0
    nearest: float = 0.0
    distance: float = 0.0
    weight: float = 0.0
    power: float = 0.0
    product: float = 0.0
    error: float = 0.0
    size: float = 0.0
    variance: float = 0.0
    worst: float = 0.0

    def samples(self, step: int) -> Tensor:
        """Every so many of the exact results."""
        return self.exact[::step]


def near_sums(output: Output) -> NearSums | None:
    """The sums of results that are as one rounding leaves them; None where one is not."""
    import torch

    if output.golden.dtype.itemsize != _WIDTH or output.defined is not None:
        return None
    exact = _unrounded(output)
    if exact is None or exact.dtype != torch.float32 or exact.shape != output.golden.shape:
        return None
    width = exact.shape[-1] if exact.dim() else 1
    rows = [one.reshape(-1, width) for one in (exact, output.golden, output.mine)]
    sums = NearSums(exact.reshape(-1), exact.numel())
    step = max(1, _BLOCK // width)
    for start in range(0, len(rows[0]), step):
        if not _add(sums, [part[start : start + step] for part in rows]):
            return None
    return sums


def _unrounded(output: Output) -> Tensor | None:
    from ait_llm.opcheck.golden.base import UNROUNDED

    try:
        return output.in_arithmetic(UNROUNDED)
    except (AitError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        return None


def _add(sums: NearSums, parts: Sequence[Tensor]) -> bool:
    """Add a block of rows; False where an element is further off, or is no number."""
    import torch

    exact, golden, mine = parts
    info = torch.finfo(golden.dtype)
    size = exact.abs()
    largest = float(size.max())
    if not largest < info.max / 2:
        return False
    given = mine.float()
    error = given - exact
    gap = gaps_of(size, golden.dtype)
    steps = error / gap
    worst = float(steps.abs().max()) / HALF
    if not worst <= 1:
        common = exact.square().mean(-1, keepdim=True).sqrt_()  # neighbours share their scale
        worst = float((error.abs() / (gap * HALF + (size + common) * _MORE)).max())
    if not worst <= 1:
        return False
    sums.worst = max(sums.worst, worst)
    squares = dot(steps, steps) / _VARIANCE
    sums.squares += squares
    if torch.equal(golden, mine):
        sums.nearest += squares
    else:
        own = golden.float()
        distance, weight = (given - own).div_(gap), exact / gap
        rest = (own - exact).div_(gap)
        sums.nearest += dot(rest, rest) / _VARIANCE
        sums.distance += float(distance.sum()) / _VARIANCE**0.5
        sums.product += dot(distance, weight) / _VARIANCE
        sums.power += dot(weight, weight) / _VARIANCE
    wide = not _SQUARED[0] < largest < _SQUARED[1]
    sums.error += dot(error, error, wide=wide)
    sums.size += dot(exact, exact, wide=wide)
    sums.variance += dot(gap, gap, wide=wide) * _VARIANCE
    return True


def gaps_of(size: Tensor, dtype: torch.dtype) -> Tensor:
    """Distance between neighbouring values of a type of 16 bits at each float32 size."""
    import torch

    info = torch.finfo(dtype)
    gap = size.clamp(min=info.smallest_normal).view(torch.int32).bitwise_and_(_EXPONENT)
    return gap.view(torch.float32).mul_(float(info.eps))


def dot(left: Tensor, right: Tensor, *, wide: bool = False) -> float:
    """The sum of products of a block, few enough for float32 to add up."""
    left, right = left.reshape(-1), right.reshape(-1)
    return float(left.double().dot(right.double()) if wide else left.dot(right))
