"""What a correct kernel can be off by, derived from the operator's declared arithmetic.

An output passes if

1. every element is within its own bound (:mod:`ait_llm.opcheck.standards.rounding`), and
2. the errors of all elements together look like rounding: their root mean square, in units of the
   expected deviation of each, is about one at most; they have no common scale (the slope of the
   regression of the error on golden) and no common shift beyond what chance makes of independent
   errors.

The second part finds what the first cannot: a scale that is one percent off is within half a
spacing of bfloat16 for many elements, yet it shows in the mean of a thousand. Operators that move
data, and integers, must agree bit by bit. Quantised integers may be off by one where the value is
near a tie; the share of such elements is bounded.

Sources of the bounds are in :mod:`~ait_llm.opcheck.standards.rounding`. The variance of a slope is
that of weighted least squares, ``1 / sum(g**2 / deviation**2)``; equal exact values round alike, so
only distinct ones count as independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ait_llm.opcheck.standards.base import Judgement, Output, standards
from ait_llm.opcheck.standards.exact import exact
from ait_llm.opcheck.standards.rounding import Permitted, permitted_of, unit_of

if TYPE_CHECKING:
    from torch import Tensor

LIMIT = "error<=bound of its arithmetic"
# Limits of the root mean square, and of slope and shift in their standard deviations.
_RMS = 1.15
_SIGMAS = 5.0
# Share of quantised numbers at a tie, as the ecosystem's checker bounds it, and steps of a
# quantised number per 16-bit rounding on the way.
_TIES = 0.001
_STEPS = 64
_SAMPLE = 1 << 16


@standards.register("contract")
def contract(output: Output) -> Judgement:
    """Judge by the bound of the operator's arithmetic."""
    computation = output.computation
    kernel = computation.golden.kernel(computation.params)
    if output.golden.dtype.is_floating_point and not kernel.moves:
        return _floats(output)
    signed = output.golden.dtype.itemsize == 1 and output.golden.dtype.is_signed
    if kernel.quantises and signed and not kernel.moves:
        return _quantised(output, kernel.roundings)
    return exact(output)


def _quantised(output: Output, roundings: int) -> Judgement:
    import torch

    golden, mine = output.golden.to(torch.int64), output.mine.to(torch.int64)
    off = (mine - golden).abs()
    if output.defined is not None:
        off = off.masked_fill(~output.defined, 0)
    count = max(off.numel(), 1)
    share = int((off > 0).sum()) / count
    ties = _TIES + roundings * unit_of(output.computation.inputs) * _STEPS
    permitted = min(1.0, ties + _SIGMAS * (ties / count) ** 0.5 + 1 / count)
    worst = float(off.max()) if off.numel() else 0.0
    values = {"largest": worst, "share": share, "permitted_share": permitted}
    limit = f"off by 1 at {permitted:.2g} of all"
    if worst <= 1 and share <= permitted:
        return Judgement(True, limit, values=values)
    reason = f"{share:.3g} of the quantised numbers differ, by up to {worst:g}"
    first = int((off > min(1, worst - 1)).reshape(-1).int().argmax())
    return Judgement(False, limit, reason, values, first)


@dataclass(frozen=True, slots=True)
class _Statistic:
    """One number over all elements, and the most that it may be."""

    name: str
    value: float
    permitted: float

    @property
    def is_kept(self) -> bool:
        return abs(self.value) <= self.permitted


def _floats(output: Output) -> Judgement:
    import torch

    if not output.golden.numel():
        return Judgement(True, LIMIT)
    permitted = permitted_of(output)
    mine, golden = output.mine.double(), output.golden.double()
    rounded = permitted.exact.to(output.golden.dtype).double()
    same = (mine == rounded) | (mine.isnan() & golden.isnan())
    error = (mine - permitted.exact).abs()
    # Next to the largest number the exact result may round to infinity on one side only.
    largest = torch.finfo(output.golden.dtype).max
    edge = mine.isinf() & ((permitted.exact.abs() + permitted.bound) >= largest)
    edge &= torch.sign(mine) == torch.sign(permitted.exact)
    edge |= rounded.isinf() & ((mine - golden.clamp(-largest, largest)).abs() <= permitted.bound)
    known = mine.isfinite() & permitted.exact.isfinite() & rounded.isfinite()
    good = same | edge | (known & (error <= permitted.bound))
    if output.defined is not None:
        good |= ~output.defined
        known &= output.defined
    ratio = torch.where(known, error / permitted.bound, 0.0).nan_to_num(0.0)
    values = {"worst": float(ratio.max())}
    if not bool(good.all()):
        bad = ~good
        count, first = int(bad.sum()), int(bad.reshape(-1).int().argmax())
        strange = int((bad & ~known).sum())
        if strange:
            reason = f"{strange} elements are not finite where golden is, or the other way round"
        else:
            reason = (
                f"{count} of {bad.numel()} elements are beyond their bound, by a factor of up to "
                f"{values['worst']:.3g}"
            )
        return Judgement(False, LIMIT, reason, values, first)
    statistics = _statistics(permitted, mine, rounded, known & ~edge, _width(output))
    values |= {one.name: one.value for one in statistics}
    values |= {f"permitted_{one.name}": one.permitted for one in statistics}
    reasons = [_words(one) for one in statistics if not one.is_kept]
    if not reasons:
        return Judgement(True, LIMIT, values=values)
    return Judgement(False, LIMIT, "; ".join(reasons), values, int(ratio.argmax()))


def _words(statistic: _Statistic) -> str:
    what = {
        "rms": "the errors together are {0:.3g} times those of rounding, {1:.3g} is permitted",
        "scale": "all elements are {0:+.3g} off in proportion to golden, chance explains {1:.1g}",
        "shift": "all elements are off in one direction, by {0:+.3g} deviations where chance "
        "explains {1:.3g}",
    }[statistic.name]
    return what.format(statistic.value, statistic.permitted)


def _statistics(
    permitted: Permitted, mine: Tensor, rounded: Tensor, use: Tensor, width: int
) -> list[_Statistic]:
    """Root mean square, slope and shift of the errors of the elements to use.

    Slope and shift are taken of the distance to the rounded result, which is zero for the best
    kernel whatever the values are.
    """
    exact, deviation = permitted.exact[use], permitted.deviation[use]
    count = exact.numel()
    if not count:
        return []
    error, distance = (mine[use] - exact) / deviation, (mine[use] - rounded[use]) / deviation
    independent = _distinct(exact)
    if permitted.shared:
        independent = min(independent, max(1, mine.numel() // width))
    chance = _SIGMAS / independent**0.5
    weights = exact / deviation
    power = float(weights.square().mean())
    found = [
        # A square has twice the variance of its error.
        _Statistic("rms", float(error.square().mean().sqrt()), _RMS * (1 + 2**0.5 * chance) ** 0.5),
        _Statistic(
            "shift",
            float(distance.mean()),
            chance + permitted.walk * float(weights.abs().mean()),
        ),
    ]
    if power > 0:
        slope = float((distance * weights).mean()) / power
        found.append(_Statistic("scale", slope, chance / power**0.5 + permitted.walk))
    return found


def _width(output: Output) -> int:
    """Elements of a row, or of one head of it where heads lie side by side."""
    width = int(output.golden.shape[-1]) if output.golden.dim() else 1
    heads = output.computation.params.get("headNum", 1)
    side_by_side = output.golden.dim() == 2 and isinstance(heads, int) and heads > 0
    return max(1, width // heads if side_by_side and width % heads == 0 else width)


def _distinct(exact: Tensor) -> int:
    """How many values differ, estimated from a part of a large tensor."""
    count = exact.numel()
    step = max(1, count // _SAMPLE)
    sample = exact[::step]
    different = len(set(sample.tolist()))
    return max(1, round(different / sample.numel() * count))
