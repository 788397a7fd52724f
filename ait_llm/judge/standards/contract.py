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
near a tie; the share of such elements is bounded. Where a tolerance was declared of an operator,
each element must be within it, and nothing else is asked.

Sources of the bounds are in :mod:`~ait_llm.judge.standards.rounding`. The variance of a slope is
that of weighted least squares, ``1 / sum(g**2 / deviation**2)``; equal exact values round alike, so
only distinct ones count as independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ait_llm.judge.standards.base import Judgement, Output, standards
from ait_llm.judge.standards.evaluations import REFUSALS
from ait_llm.judge.standards.exact import exact
from ait_llm.judge.standards.near import NearSums, near_sums
from ait_llm.judge.standards.rounding import (
    Limits,
    Permitted,
    limits_of,
    permitted_of,
    unit_of,
    walk_of,
    widest_limits_of,
)
from ait_llm.judge.standards.staged import staged_of

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
_SAMPLE, _FEW = 1 << 16, 1 << 12


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
    if computation.golden.tolerance is not None:
        return _within_declared(output, *computation.golden.tolerance)
    kernel = computation.golden.kernel(computation.params)
    if _computes_floats(output):
        # Scales and offsets, float32, of rows in 16 bits.
        ranges = kernel.by_rows and output.golden.dtype.itemsize == 4
        return _floats(output, max(roundings, int(ranges)))
    signed = output.golden.dtype.itemsize == 1 and output.golden.dtype.is_signed
    if kernel.quantises and signed and not kernel.moves:
        return _quantised(output, max(kernel.roundings, roundings))
    return exact(output)


def _within_declared(output: Output, rtol: float, atol: float) -> Judgement:
    """Judge by a tolerance that was declared of the operator."""
    golden, mine = output.golden.double(), output.mine.double()
    error = (mine - golden).abs()
    good = (mine == golden) | (mine.isnan() & golden.isnan())
    good |= golden.isfinite() & (error <= atol + rtol * golden.abs())
    if output.defined is not None:
        good |= ~output.defined
    limit = f"declared: error<={atol:g}+{rtol:g}*|golden|"
    if bool(good.all()):
        return Judgement(True, limit)
    bad = ~good
    reason = (
        f"{int(bad.sum())} of {bad.numel()} elements are further off than the declared tolerance, "
        f"by up to {float(error[bad].nan_to_num(float('inf')).max()):.3g}"
    )
    return Judgement(False, limit, reason, first_bad=int(bad.reshape(-1).int().argmax()))


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


def _floats(output: Output, roundings: int) -> Judgement:
    if not output.golden.numel():
        return Judgement(True, LIMIT)
    if output.computation.verdict_only:
        if _is_golden(output):
            return Judgement(True, LIMIT)
        if (near := _near(output)) is not None:
            return near
        if (nudged := _nudged(output, roundings)) is not None:
            return nudged
    limits = limits_of(output, roundings)
    judgement = _within(output, limits)
    if judgement.passed or not limits.is_least:
        return judgement
    return _within(output, widest_limits_of(output, roundings))


def _is_golden(output: Output) -> bool:
    """Whether the result has golden's bits."""
    import torch

    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    kind = kinds.get(output.golden.dtype.itemsize)
    if kind is None or output.golden.dtype != output.mine.dtype:
        return False
    golden, mine = (one.contiguous().view(kind) for one in (output.golden, output.mine))
    return torch.equal(golden, mine)


def _near(output: Output) -> Judgement | None:
    """The judgement of results that are as one rounding leaves them; None for all others."""
    sums = near_sums(output)
    if sums is None or sums.variance > (max(_LINEAR, _unit(output)) / _RMS) ** 2 * sums.size:
        return None
    statistics = _statistics(sums, max(1, sums.used), walk_of(1))
    if not all(one.is_kept for one in statistics):
        sample = sums.samples(max(1, sums.used // _SAMPLE))
        statistics = _statistics(sums, _distinct(sample, sums.used), walk_of(1))
    if not all(one.is_kept for one in statistics):
        return None
    values = {"worst": sums.worst, **_relative(sums), **_named(statistics)}
    return Judgement(True, LIMIT, values=values)


def _nudged(output: Output, roundings: int) -> Judgement | None:
    """The judgement of results that pass limits of one cheap sample; None for all others."""
    try:
        staged = staged_of(output, roundings)
    except REFUSALS:
        return None
    sums = None if staged is None else staged.sums()
    if staged is None or sums is None:
        return None
    values = {"worst": sums.worst, **_relative(sums)}
    if sums.variance > (max(_LINEAR, _unit(output)) / _RMS) ** 2 * sums.size:
        return Judgement(True, LIMIT, values=values)
    kernel = output.computation.golden.kernel(output.computation.params)
    most = max(1, sums.used // _width(output)) if kernel.shared else sums.used
    # Rows that err alike are few: few samples tell that more elements than that differ.
    sample = sums.samples(max(1, sums.used // (_FEW if kernel.shared else _SAMPLE)))
    independent = min(most, _distinct(sample, sums.used))
    statistics = _statistics(sums, independent, staged.common)
    if not all(one.is_kept for one in statistics):
        return None
    return Judgement(True, LIMIT, values=values | _named(statistics))


def _named(statistics: Sequence[_Statistic]) -> dict[str, float]:
    """Statistics and what they may be, by name."""
    return {one.name: one.value for one in statistics} | {
        f"permitted_{one.name}": one.permitted for one in statistics
    }


def _relative(sums: _Sums | NearSums) -> dict[str, float]:
    """Euclidean norms over that of the exact result: of the errors, and of those permitted."""
    if not sums.size:
        return {"error": 0.0, "permitted_error": 0.0}
    return {
        "error": (sums.error / sums.size) ** 0.5,
        "permitted_error": _RMS * (sums.variance / sums.size) ** 0.5,
    }


def _within(output: Output, limits: Limits) -> Judgement:
    import torch

    count = output.golden.numel()
    shape = limits.exact.shape
    mine, golden = output.mine.reshape(shape), output.golden.reshape(shape)
    defined = None if output.defined is None else output.defined.reshape(shape)
    sums = _Sums(max(1, count // _SAMPLE))
    for rows in limits.blocks():
        own = None if defined is None else defined[rows]
        _add(sums, limits.at(rows), mine[rows], golden[rows], own, rows.start * shape[1])
    values = {"worst": sums.worst, **_relative(sums)}
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
    statistics = []
    if sums.used and not limits.unknown:
        independent = _distinct(torch.cat(sums.samples), sums.used)
        if limits.shared:
            independent = min(independent, max(1, count // _width(output)))
        common = limits.walk + (limits.unit * limits.alike if limits.roundings else 0.0)
        statistics = _statistics(sums, independent, common)
    values |= _named(statistics)
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


def _statistics(sums: _Sums | NearSums, independent: int, common: float) -> list[_Statistic]:
    """Root mean square, slope and shift of the errors.

    Args:
        sums: of all elements.
        independent: how many of them err by chances of their own.
        common: relative error that all may have.
    """
    count = sums.used
    chance = _SIGMAS / independent**0.5
    rms, nearest = ((squares / count) ** 0.5 for squares in (sums.squares, sums.nearest))
    found = [
        # A square has twice the variance of its error.
        _Statistic("rms", rms, _RMS * max(nearest, (1 + 2**0.5 * chance) ** 0.5)),
        _Statistic("shift", sums.distance / count, chance + common * sums.weight / count),
    ]
    power = sums.power / count
    if power > 0:
        slope = sums.product / sums.power
        found.append(_Statistic("scale", slope, chance / power**0.5 + common))
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


def _distinct(sample: Tensor, count: int) -> int:
    """How many of so many values differ, estimated from a sample of a large tensor."""
    import torch

    different = torch.unique(sample).numel()
    return int(max(1, round(different / sample.numel() * count)))
