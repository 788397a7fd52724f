"""Whether an output is within what its operator's arithmetic permits, from limits on file.

The limits are those of ait-llm's standard ``contract`` for this very case: of each element the
largest error, and of all elements together the root mean square, the common scale and the common
shift of their errors. Operators that move data, and integers, must agree bit by bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

ROUNDING, STEPS, BITS = "rounding", "steps", "bits"
_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, eq=False)
class Limits:
    """What is permitted.

    Attributes:
        kind: ``rounding`` (floats), ``steps`` (quantised numbers may be off by one) or ``bits``.
        permitted: of all elements together: ``rms``, ``scale``, ``shift``, or ``share`` of the
            quantised numbers that may be off.
        exact: unrounded golden in float64; for ``rounding``.
        bound: largest error of each element in float64; for ``rounding``.
        deviation: standard deviation of a correct kernel's error, likewise.
        defined: true at elements that the operator defines; None for all.
        moves: the bits of a NaN count too.
    """

    kind: str
    permitted: Mapping[str, float]
    exact: Tensor | None = None
    bound: Tensor | None = None
    deviation: Tensor | None = None
    defined: Tensor | None = None
    moves: bool = False


@dataclass(frozen=True, eq=False)
class Found:
    """What an output shows.

    Attributes:
        check: what failed: ``shape``, ``dtype``, ``elements``, ``finite``, ``rms``, ``scale``,
            ``shift``, ``share`` or ``bits``; empty if it passed.
        text: the numbers, as a clause.
        bad: true at elements beyond their own limit; None if there is none.
        place: flat place of the first bad element, or of the worst where no single one is bad.
    """

    check: str
    text: str
    bad: Tensor | None = None
    place: int | None = None


def judge(mine: Tensor, golden: Tensor, limits: Limits) -> Found:
    """Judge an output; tensors are on the CPU.

    Args:
        mine: any shape with as many elements as golden.
        golden: rounded, in the output's type.
        limits: see :class:`Limits`.
    """
    if mine.numel() != golden.numel():
        return Found("shape", f"its shape is {list(mine.shape)}, golden's is {list(golden.shape)}")
    whole = not mine.is_floating_point() and not golden.is_floating_point()
    if mine.dtype != golden.dtype and not (whole and mine.itemsize == golden.itemsize):
        return Found("dtype", f"its data type is {mine.dtype}, golden's is {golden.dtype}")
    mine = mine.reshape(golden.shape)
    if not golden.numel():
        return Found("", "it is empty, as it should be")
    if limits.kind == ROUNDING:
        return _rounding(mine, golden, limits)
    if limits.kind == STEPS:
        return _steps(mine, golden, limits)
    different = _different_bits(mine, golden, limits.moves)
    if limits.defined is not None:
        different &= limits.defined
    count = int(different.sum())
    text = f"{count} of {golden.numel()} elements have other bits than golden"
    return Found("bits", text, different, _first(different)) if count else Found("", text)


def _first(bad: Tensor) -> int:
    return int(bad.reshape(-1).int().argmax())


def _different_bits(mine: Tensor, golden: Tensor, moves: bool) -> Tensor:
    if mine.dtype != golden.dtype:  # signed and unsigned, which hold the same numbers
        return mine.to(torch.int64) != golden.to(torch.int64)
    if not golden.is_floating_point():
        return mine != golden
    bits = _WHOLE[golden.itemsize]
    different = mine.contiguous().view(bits) != golden.contiguous().view(bits)
    return different if moves else different & ~(mine.isnan() & golden.isnan())


def _steps(mine: Tensor, golden: Tensor, limits: Limits) -> Found:
    off = (mine.to(torch.int64) - golden.to(torch.int64)).abs()
    if limits.defined is not None:
        off = off.masked_fill(~limits.defined, 0)
    worst, share = int(off.max()), float((off > 0).double().mean())
    permitted = limits.permitted["share"]
    text = (
        f"{share:.3g} of the quantised numbers differ, by up to {worst}; {permitted:.2g} may by 1"
    )
    if worst <= 1 and share <= permitted:
        return Found("", text)
    bad = off > min(1, worst - 1)
    return Found("share" if worst <= 1 else "elements", text, bad, _first(bad))


def _rounding(mine: Tensor, golden: Tensor, limits: Limits) -> Found:
    assert limits.exact is not None
    assert limits.bound is not None
    assert limits.deviation is not None
    exact, bound, deviation = limits.exact, limits.bound, limits.deviation
    found, rounded = mine.double(), exact.to(golden.dtype).double()
    # Next to the largest number the exact result may round to infinity on one side only.
    largest = torch.finfo(golden.dtype).max
    edge = found.isinf() & ((exact.abs() + bound) >= largest)
    edge &= torch.sign(found) == torch.sign(exact)
    nearest = golden.double().clamp(-largest, largest)
    edge |= rounded.isinf() & ((found - nearest).abs() <= bound)
    known = found.isfinite() & exact.isfinite() & rounded.isfinite()
    error = found - exact
    good = (found == rounded) | (found.isnan() & golden.isnan()) | edge
    good |= known & (error.abs() <= bound)
    if limits.defined is not None:
        good |= ~limits.defined
        known &= limits.defined
    bad, ratio = ~good, (error.abs() / bound).masked_fill(~known, 0.0).nan_to_num(0.0)
    count, strange = int(bad.sum()), int((bad & ~known).sum())
    if strange:
        text = f"{strange} elements are not finite where golden is, or the other way round"
        return Found("finite", text, bad, _first(bad))
    text = f"{count} of {golden.numel()} elements are beyond their bound"
    if count:
        text += f", by a factor of up to {float(ratio.max()):.3g}"
        return Found("elements", text, bad, _first(bad))
    used = known & ~edge
    together = _together(error[used], (found - rounded)[used], exact[used], deviation[used])
    for name, value in together.items():
        permitted = limits.permitted.get(name)
        if permitted is not None and abs(value) > permitted:
            text = (
                f"the errors of all elements have a {name} of {value:.3g}, beyond {permitted:.3g}"
            )
            return Found(name, text, None, int(ratio.argmax()))
    return Found("", text)


def _together(
    error: Tensor, distance: Tensor, exact: Tensor, deviation: Tensor
) -> dict[str, float]:
    """Root mean square, common scale and common shift of errors, in deviations of each."""
    if not error.numel():
        return {}
    distance, weight = distance / deviation, exact / deviation
    power = float(weight.square().sum())
    numbers = {
        "rms": float((error / deviation).square().mean().sqrt()),
        "shift": float(distance.mean()),
    }
    return numbers | ({"scale": float((distance * weight).sum()) / power} if power > 0 else {})
