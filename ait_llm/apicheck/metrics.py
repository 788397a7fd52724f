"""Errors of one output against golden, in float64.

Definitions follow the tables of the ecosystem's API accuracy check. Golden is computed in more bits
than the device has. Where golden, rounded to the device's type, is not finite, that is what the
device must have; a difference there counts as infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ait_llm.judge.api_limits import limits_of
from ait_llm.judge.standards.rounding import spacing

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Elements at a time, so that copies in float64 stay in the processor's cache.
_BLOCK = 1 << 17
_ZERO = 2.0**-52  # an output that is smaller everywhere has no direction


@dataclass(frozen=True, slots=True)
class Metrics:
    """Errors of one output; None where one is not defined for its type.

    Attributes:
        cosine: of the angle between both, over finite elements; None for single elements and where
            both are zero.
        max_absolute: largest ``|m - g|``.
        hundredth, thousandth, ten_thousandth: share of elements with ``|m - g| / |g|`` below 0.01,
            0.001 and 0.0001. A golden 0 has no error or an infinite one.
        unequal: share of elements that differ from golden rounded to their type.
        balance: ``|#greater - #less| / size``, against golden rounded to their type.
        rmse: root of the mean square error of normal elements: finite, and golden not small.
        small_share: share of the small golden values with an error beyond the benchmark's.
        max_relative, mean_relative: of ``|m - g| / (|g| + eps)`` over normal elements.
        nonfinite_share: share of the elements that are not finite on a side and differ.
        relative_share, absolute_share: of normal elements beyond ``rtol``, and of small ones
            beyond ``atol``, of the absolute threshold.
        max_ulp, mean_ulp: errors in units of the last place of the device's type at golden.
        ulp_share: share of elements that are more units off than their type permits.
        strange: number of elements that are not finite on a side and differ.
        is_one_zero: one side is zero everywhere and the other is not.
    """

    cosine: float | None = None
    max_absolute: float | None = None
    hundredth: float | None = None
    thousandth: float | None = None
    ten_thousandth: float | None = None
    unequal: float | None = None
    balance: float | None = None
    rmse: float | None = None
    small_share: float | None = None
    max_relative: float | None = None
    mean_relative: float | None = None
    nonfinite_share: float | None = None
    relative_share: float | None = None
    absolute_share: float | None = None
    max_ulp: float | None = None
    mean_ulp: float | None = None
    ulp_share: float | None = None
    strange: int = 0
    is_one_zero: bool = False


def measure_integers(golden: Tensor, mine: Tensor) -> Metrics:
    """Share of unequal elements, and the largest difference.

    Args:
        golden, mine: of integers or booleans, in one shape, not empty.
    """
    import torch

    unequal = float((golden != mine).double().mean())
    if golden.dtype == torch.bool or unequal == 0:
        return Metrics(unequal=unequal, max_absolute=unequal and 1.0)
    # Python's integers hold the difference of any two 64-bit numbers.
    differing = golden != mine
    pairs = zip(golden[differing].tolist(), mine[differing].tolist(), strict=True)
    return Metrics(unequal=unequal, max_absolute=float(max(abs(g - m) for g, m in pairs)))


def measure_floats(golden: Tensor, mine: Tensor) -> Metrics:
    """All errors of an output of floats.

    Args:
        golden, mine: on the CPU, in one shape, not empty, of any floating type.
    """
    import torch

    g, m = golden.detach().reshape(-1), mine.detach().reshape(-1)
    sums = _Sums(m.dtype, torch.finfo(g.dtype).eps)
    blocks = [slice(start, start + _BLOCK) for start in range(0, g.numel(), _BLOCK)]
    for block in blocks:
        sums.find_sizes(*_rounded(g[block], m[block]))
    for block in blocks:
        sums.add(g[block].double(), *_rounded(g[block], m[block]))
    return sums.metrics()


def _rounded(golden: Tensor, mine: Tensor) -> tuple[Tensor, Tensor]:
    """Golden rounded to the type of mine, and mine, both in float64."""
    return golden.to(mine.dtype).double(), mine.double()


class _Sums:
    """Sums over the blocks of one output.

    Args:
        dtype: of the device's output.
        eps: the machine epsilon of golden's type, what relative errors add to their divisor.
    """

    def __init__(self, dtype: torch.dtype, eps: float) -> None:
        self.dtype = dtype
        self.limits = limits_of(str(dtype))
        # a device that computes in bfloat16 is measured with its own epsilon
        self.eps = 2.0**-8 if str(dtype) == "torch.bfloat16" else eps
        self.size = 0
        self.golden_size = self.mine_size = 0.0
        self.dot = self.golden_square = self.mine_square = 0.0
        self.max_absolute = self.max_relative = self.max_ulp = 0.0
        self.sum_relative = self.sum_square = self.sum_ulp = 0.0
        self.within = [0, 0, 0]
        self.unequal = self.greater = self.less = 0
        self.normal = self.small = self.nonfinite = self.strange = 0
        self.small_bad = self.relative_bad = self.absolute_bad = self.far = 0

    def find_sizes(self, rounded: Tensor, mine: Tensor) -> None:
        """The largest element of both sides, by which they are divided before squares are taken."""
        finite = rounded.isfinite() & mine.isfinite()
        for name, values in (("golden_size", rounded), ("mine_size", mine)):
            largest = float(values.abs().masked_fill_(~finite, 0.0).amax())
            setattr(self, name, max(getattr(self, name), largest))

    def add(self, golden: Tensor, rounded: Tensor, mine: Tensor) -> None:
        """One block."""
        same = (mine == rounded) | (mine.isnan() & rounded.isnan())
        finite = mine.isfinite() & rounded.isfinite()
        strange = ~finite & ~same
        error = (mine - golden).abs().masked_fill_(~finite, 0.0).masked_fill_(strange, math.inf)
        size = golden.abs().masked_fill_(~finite, 1.0)
        self.size += golden.numel()
        self.unequal += int((~same).sum())
        self.strange += int(strange.sum())
        self.nonfinite += int((~finite).sum())
        self.greater += int((finite & (mine > rounded)).sum())
        self.less += int((finite & (mine < rounded)).sum())
        self.max_absolute = max(self.max_absolute, float(error.amax()))
        self._add_angle(golden, mine, finite)
        # what golden's own rounding makes zero is no error
        plain = (error / size).masked_fill_((error == 0) | (same & (rounded == 0)), 0.0)
        for index, bound in enumerate((0.01, 0.001, 0.0001)):
            self.within[index] += int((plain < bound).sum())
        self._add_parts(error, size, finite)
        units = error / spacing(golden.nan_to_num(0.0), self.dtype)
        self.max_ulp = max(self.max_ulp, float(units.amax()))
        self.sum_ulp += float(units.sum())
        self.far += int((units > self.limits.far).sum())

    def _add_angle(self, golden: Tensor, mine: Tensor, finite: Tensor) -> None:
        g = golden.masked_fill(~finite, 0.0).div_(self.golden_size or 1.0)
        m = mine.masked_fill(~finite, 0.0).div_(self.mine_size or 1.0)
        self.dot += float((g * m).sum())
        self.golden_square += float(g.square_().sum())
        self.mine_square += float(m.square_().sum())

    def _add_parts(self, error: Tensor, size: Tensor, finite: Tensor) -> None:
        small = finite & (size <= self.limits.small)
        normal = finite & ~small
        self.small += int(small.sum())
        self.normal += int(normal.sum())
        self.small_bad += int((small & (error > self.limits.small_atol)).sum())
        self.absolute_bad += int((small & (error > self.limits.atol)).sum())
        relative = (error / (size + self.eps)).masked_fill_(~normal, 0.0)
        self.relative_bad += int((relative > self.limits.rtol).sum())
        self.max_relative = max(self.max_relative, float(relative.amax()))
        self.sum_relative += float(relative.sum())
        self.sum_square += float(error.masked_fill(~normal, 0.0).square_().sum())

    def metrics(self) -> Metrics:
        """What all blocks come to."""
        zeros = (self.golden_size <= _ZERO, self.mine_size <= _ZERO)
        norms = math.sqrt(self.golden_square) * math.sqrt(self.mine_square)
        has_angle = self.size > 1 and not any(zeros) and norms > 0
        return Metrics(
            cosine=max(-1.0, min(1.0, self.dot / norms)) if has_angle else None,
            max_absolute=self.max_absolute,
            hundredth=self.within[0] / self.size,
            thousandth=self.within[1] / self.size,
            ten_thousandth=self.within[2] / self.size,
            unequal=self.unequal / self.size,
            balance=abs(self.greater - self.less) / self.size,
            rmse=math.sqrt(_share(self.sum_square, self.normal)),
            small_share=_share(self.small_bad, self.small),
            max_relative=self.max_relative,
            mean_relative=_share(self.sum_relative, self.normal),
            nonfinite_share=_share(self.strange, self.nonfinite),
            relative_share=_share(self.relative_bad, self.normal),
            absolute_share=_share(self.absolute_bad, self.small),
            max_ulp=self.max_ulp,
            mean_ulp=self.sum_ulp / self.size,
            ulp_share=self.far / self.size,
            strange=self.strange,
            is_one_zero=self.size > 1 and zeros[0] != zeros[1],
        )


def _share(part: float, whole: int) -> float:
    return part / whole if whole else 0.0
