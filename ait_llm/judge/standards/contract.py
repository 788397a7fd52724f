"""What a correct kernel can be off by, derived from the operator's declared arithmetic.

An output passes if

1. every element is within its own bound (:mod:`ait_llm.judge.standards.rounding`), and
2. the errors of all elements together look like rounding: their root mean square, in units of the
   expected deviation of each, is about one at most; they have no common scale (the slope of the
   regression of the error on golden) and no common shift beyond what chance makes of independent
   errors.

The second part finds what the first cannot: a scale that is one percent off is within half a
spacing of bfloat16 for many elements, yet it shows in the mean of a thousand. Operators that move
data, and integers, must agree bit by bit. Quantised integers may be off by one where the value is
near a tie; the share of such elements is bounded.

Sources of the bounds are in :mod:`~ait_llm.judge.standards.rounding`. The variance of a slope is
that of weighted least squares, ``1 / sum(g**2 / deviation**2)``; equal exact values round alike, so
only distinct ones count as independent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ait_llm.judge.standards.base import Judgement, Output, standards
from ait_llm.judge.standards.exact import exact
from ait_llm.judge.standards.rounding import (
    Limits,
    Permitted,
    limits_of,
    permitted_of,
    unit_of,
    widest_limits_of,
)

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
# Of so many rows one has a range or an offset at a tie of 16 bits; then up to such a share of it
# is off by one. An offset below 512 has steps of half at most.
_ROWS = 500
_FALLEN = 0.55
# Where what is rounded on the way may change a result by more, errors do not add up as they do in
# sums, and have means of their own.
_LINEAR = 0.02
_USUAL = 4  # roundings of each input that any kernel in use gets by with
_SAMPLE = 1 << 16


@standards.register("contract")
def contract(output: Output) -> Judgement:
    """Judge by the bound of the operator's arithmetic."""
    return _judged(output, 0)


def usual(output: Output) -> Judgement:
    """The same for any kernel in use: fast ones round to their inputs' 16 bits on the way."""
    kernel = output.computation.golden.kernel(output.computation.params)
    return _judged(output, 0 if kernel.once else _USUAL)


def worst_element(output: Output) -> int:
    """Flat index of the element that is furthest beyond its bound, by what factor it is."""
    shape = output.golden.shape
    mine = output.mine.double()
    if output.defined is not None:
        mine = mine.where(output.defined, output.golden.double())
    if not _computes_floats(output):
        return int((mine - output.golden.double()).abs().nan_to_num_(0.0, 0.0, 0.0).argmax())
    permitted = permitted_of(output)
    factors = (mine - permitted.exact.reshape(shape)).abs() / permitted.bound.reshape(shape)
    return int(factors.nan_to_num_(0.0, 0.0, 0.0).argmax())


def _judged(output: Output, roundings: int) -> Judgement:
    computation = output.computation
    kernel = computation.golden.kernel(computation.params)
    if _computes_floats(output):
        # Scales and offsets, float32, of rows in 16 bits.
        ranges = kernel.by_rows and output.golden.dtype.itemsize == 4
        return _floats(output, max(roundings, int(ranges)))
    signed = output.golden.dtype.itemsize == 1 and output.golden.dtype.is_signed
    if kernel.quantises and signed and not kernel.moves:
        return _quantised(output, max(kernel.roundings, roundings))
    return exact(output)


def _computes_floats(output: Output) -> bool:
    kernel = output.computation.golden.kernel(output.computation.params)
    return output.golden.dtype.is_floating_point and not kernel.moves


def _quantised(output: Output, roundings: int) -> Judgement:
    import torch

    golden, mine = output.golden.to(torch.int64), output.mine.to(torch.int64)
    off = (mine - golden).abs()
    if output.defined is not None:
        off = off.masked_fill(~output.defined, 0)
    count = max(off.numel(), 1)
    share = int((off > 0).sum()) / count
    if output.computation.golden.kernel(output.computation.params).by_rows and off.dim():
        rows = (off > 0).reshape(-1, off.shape[-1]).double().mean(-1)
        share = float(rows.sum() - _fallen(rows).sum()) * off.shape[-1] / count
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


def _fallen(rows: Tensor) -> Tensor:
    """The rows with most differences that may have fallen the other way, of shares ``[rows]``."""
    most = rows.sort(descending=True).values[: 1 + len(rows) // _ROWS]
    return most[most <= _FALLEN]


@dataclass(frozen=True, slots=True)
class _Statistic:
    """One number over all elements, and the most that it may be."""

    name: str
    value: float
    permitted: float

    @property
    def is_kept(self) -> bool:
        return abs(self.value) <= self.permitted


@dataclass(slots=True)
class _Sums:
    """What blocks of elements add up to.

    In units of each element's deviation: ``squares`` of errors; ``distance`` to the rounded result,
    which is zero for the best kernel whatever the values are; ``weight``, the size of the exact
    result, ``power``, its square, ``product`` with the distance, and ``nearest``, squares of the
    best kernel's errors: values that lie together round alike. In their own units the squares
    of ``error``, of the exact result (``size``) and of the deviations (``variance``).
    """

    sample_step: int
    bad: int = 0
    strange: int = 0
    first_bad: int | None = None
    worst: float = 0.0
    worst_at: int = 0
    used: int = 0
    squares: float = 0.0
    nearest: float = 0.0
    distance: float = 0.0
    weight: float = 0.0
    power: float = 0.0
    product: float = 0.0
    error: float = 0.0
    size: float = 0.0
    variance: float = 0.0
    samples: list[Tensor] = field(default_factory=list)

    def relative(self) -> dict[str, float]:
        """Euclidean norms over that of the exact result: of the errors, and of those permitted."""
        if not self.size:
            return {"error": 0.0, "permitted_error": 0.0}
        return {
            "error": (self.error / self.size) ** 0.5,
            "permitted_error": _RMS * (self.variance / self.size) ** 0.5,
        }


def _floats(output: Output, roundings: int) -> Judgement:
    if not output.golden.numel():
        return Judgement(True, LIMIT)
    limits = limits_of(output, roundings)
    judgement = _within(output, limits)
    if judgement.passed or not limits.is_least:
        return judgement
    return _within(output, widest_limits_of(output, roundings))


def _within(output: Output, limits: Limits) -> Judgement:
    count = output.golden.numel()
    shape = limits.exact.shape
    mine, golden = output.mine.reshape(shape), output.golden.reshape(shape)
    defined = None if output.defined is None else output.defined.reshape(shape)
    sums = _Sums(max(1, count // _SAMPLE))
    for rows in limits.blocks():
        own = None if defined is None else defined[rows]
        _add(sums, limits.at(rows), mine[rows], golden[rows], own, rows.start * shape[1])
    values = {"worst": sums.worst, **sums.relative()}
    if sums.bad:
        reason = (
            f"{sums.bad} of {count} elements are beyond their bound, by a factor of up to "
            f"{sums.worst:.3g}"
        )
        if sums.strange:
            reason = (
                f"{sums.strange} elements are not finite where golden is, or the other way round"
            )
        return Judgement(False, LIMIT, reason, values, sums.first_bad)
    share = max(_LINEAR, _unit(output)) / _RMS
    if sums.variance > share**2 * sums.size:  # also where the exact result is zero
        return Judgement(True, LIMIT, values=values)
    statistics = _statistics(sums, limits, _width(output))
    values |= {one.name: one.value for one in statistics}
    values |= {f"permitted_{one.name}": one.permitted for one in statistics}
    reasons = [_words(one) for one in statistics if not one.is_kept]
    if not reasons:
        return Judgement(True, LIMIT, values=values)
    return Judgement(False, LIMIT, "; ".join(reasons), values, sums.worst_at)


def _add(
    sums: _Sums,
    permitted: Permitted,
    mine: Tensor,
    golden: Tensor,
    defined: Tensor | None,
    start: int,
) -> None:
    """Add a block of elements, the first of which is number ``start`` of the output's."""
    exact, deviation = permitted.exact, permitted.deviation
    mine, rounded = mine.double(), exact.to(golden.dtype).double()
    error = mine - exact
    ratio = error.abs().div_(permitted.bound)
    inside = bool((ratio <= 1).all()) and bool(rounded.isfinite().all())
    if defined is not None or not inside:
        used = _look_closer(sums, permitted, mine, rounded, golden, defined, start)
        ratio = ratio.masked_fill_(~used, 0.0).nan_to_num_(0.0)
        exact, deviation, error = exact[used], deviation[used], error[used]
        mine, rounded = mine[used], rounded[used]
    worst = float(ratio.max())
    if worst > sums.worst:
        sums.worst, sums.worst_at = worst, start + int(ratio.argmax())
    distance = (mine - rounded).div_(deviation)
    sums.nearest += float((rounded - exact).div_(deviation).square_().sum())
    weight = exact / deviation
    sums.used += exact.numel()
    sums.error += float(error.square().sum())
    sums.size += float(exact.square().sum())
    sums.variance += float(deviation.square().sum())
    sums.squares += float(error.div_(deviation).square_().sum())
    sums.distance += float(distance.sum())
    sums.product += float(distance.mul_(weight).sum())
    sums.weight += float(weight.abs().sum())
    sums.power += float(weight.square_().sum())
    sums.samples.append(exact.reshape(-1)[:: sums.sample_step].clone())


def _look_closer(
    sums: _Sums,
    permitted: Permitted,
    mine: Tensor,
    rounded: Tensor,
    golden: Tensor,
    defined: Tensor | None,
    start: int,
) -> Tensor:
    """Count bad elements; where errors are known and those of rounding, bad ones included."""
    import torch

    exact, bound = permitted.exact, permitted.bound
    # Next to the largest number the exact result may round to infinity on one side only.
    largest = torch.finfo(golden.dtype).max
    edge = mine.isinf() & ((exact.abs() + bound) >= largest)
    edge &= torch.sign(mine) == torch.sign(exact)
    edge |= rounded.isinf() & ((mine - golden.double().clamp(-largest, largest)).abs() <= bound)
    within = (mine - exact).abs() <= bound
    # Golden itself rounds on the way where the kernel is known to.
    edge |= (mine == golden.double()) & ~within
    known = mine.isfinite() & exact.isfinite() & rounded.isfinite()
    good = (mine == rounded) | (mine.isnan() & golden.isnan()) | edge
    good |= known & within
    if defined is not None:
        good |= ~defined
        known &= defined
    bad = ~good
    count = int(bad.sum())
    if count and sums.first_bad is None:
        sums.first_bad = start + int(bad.reshape(-1).int().argmax())
    sums.bad += count
    sums.strange += int((bad & ~known).sum())
    return known & ~edge


def _words(statistic: _Statistic) -> str:
    what = {
        "rms": "the errors together are {0:.3g} times those of rounding, {1:.3g} is permitted",
        "scale": "all elements are {0:+.3g} off in proportion to golden, chance explains {1:.1g}",
        "shift": "all elements are off in one direction, by {0:+.3g} deviations where chance "
        "explains {1:.3g}",
    }[statistic.name]
    return what.format(statistic.value, statistic.permitted)


def _statistics(sums: _Sums, limits: Limits, width: int) -> list[_Statistic]:
    """Root mean square, slope and shift of the errors."""
    count = sums.used
    if not count or limits.unknown:
        return []
    independent = _distinct(sums)
    if limits.shared:
        independent = min(independent, max(1, limits.exact.numel() // width))
    chance = _SIGMAS / independent**0.5
    rms, nearest = ((squares / count) ** 0.5 for squares in (sums.squares, sums.nearest))
    found = [
        # A square has twice the variance of its error.
        _Statistic("rms", rms, _RMS * max(nearest, (1 + 2**0.5 * chance) ** 0.5)),
        _Statistic("shift", sums.distance / count, chance + limits.walk * sums.weight / count),
    ]
    power = sums.power / count
    if power > 0:
        slope = sums.product / sums.power
        found.append(_Statistic("scale", slope, chance / power**0.5 + limits.walk))
    return found


def _unit(output: Output) -> float:
    import torch

    return float(torch.finfo(output.golden.dtype).eps)


def _width(output: Output) -> int:
    """Elements of a row, or of one head of it where heads lie side by side."""
    width = int(output.golden.shape[-1]) if output.golden.dim() else 1
    heads = output.computation.params.get("headNum", 1)
    side_by_side = output.golden.dim() == 2 and isinstance(heads, int) and heads > 0
    return max(1, width // heads if side_by_side and width % heads == 0 else width)


def _distinct(sums: _Sums) -> int:
    """How many values differ, estimated from a sample of a large tensor."""
    import torch

    sample = torch.cat(sums.samples)
    different = torch.unique(sample).numel()
    return int(max(1, round(different / sample.numel() * sums.used)))
