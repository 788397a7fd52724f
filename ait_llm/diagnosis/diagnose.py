"""From the residual of a guilty operation to the kind of its bug."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ait_llm.core import DType
from ait_llm.diagnosis.amounts import amounts
from ait_llm.diagnosis.call import Call
from ait_llm.diagnosis.changed_inputs import read_wrongly
from ait_llm.diagnosis.changed_params import parameters
from ait_llm.diagnosis.kinds import Diagnosis, Kind
from ait_llm.diagnosis.orders import orders
from ait_llm.diagnosis.places import confinement, places
from ait_llm.diagnosis.reductions import reductions
from ait_llm.diagnosis.residual import Array, Hypothesis, Residual, round_to
from ait_llm.errors import AitError
from ait_llm.judge.real_parts import real_parts
from ait_llm.judge.standards.rounding import terms_of, unit_of
from ait_llm.opcheck.cases import REFUSALS

if TYPE_CHECKING:
    from torch import Tensor

# A named kind explains at least this share of the energy, and leaves at most that share of the
# bits, or nothing but rounding. The energy of a few large errors hides all small ones.
LEAST_SHARE = 0.9
MOST_BITS = 0.5
# Bits by which the best kind has to lead another: one in a thousand would be by chance.
LEAD = 10.0
PERFECT = 0.99
# Inputs that are larger are not computed again and again.
MOST_BYTES = 64 << 20
_HEADS = ("headNum", "kvHeadNum", "numHeads", "heads")


@dataclass(frozen=True, slots=True)
class _Scored:
    """A hypothesis, the bits that it leaves and costs, and the share that it explains."""

    hypothesis: Hypothesis
    bits: float
    share: float


def diagnose(call: Call) -> Diagnosis:
    """Say what kind of bug made the outputs of an operation.

    The output with the largest residual is looked at, measured in the bits that describe it.

    Raises:
        AitError: the golden operator refuses the inputs; also one of ``opcheck.cases.REFUSALS``.
    """
    from ait_llm.opcheck.golden import GOLDEN

    exact = call.result(replace(GOLDEN, round_output=False))
    rounded = call.result(GOLDEN).outputs
    found: list[tuple[float, int, Residual]] = []
    for output, mine in call.outputs.items():
        if output >= len(exact.outputs) or not mine.numel():
            continue
        wide = exact.outputs[output] if mine.is_floating_point() else rounded[output]
        if wide.numel() != mine.numel():
            continue
        got, right = _float64(mine), _float64(wide).reshape(tuple(mine.shape))
        if (undefined := exact.undefined.get(output)) is not None:
            holes = np.broadcast_to(undefined.numpy(), got.shape)
            got = np.where(holes, right, got)
        broken = _not_finite(got, right, _dtype(mine))
        if broken is not None:
            return replace(broken, output=output)
        # Zeros stand for what is not finite on both sides, so that it may have moved.
        got, right = np.where(np.isfinite(got), got, 0), np.where(np.isfinite(right), right, 0)
        residual = _residual(call, got, right, mine)
        found.append((residual.bits_of_nothing, output, residual))
    wrong = [each for each in found if not each[2].is_rounding]
    if not wrong:
        text = "its outputs are those that correct kernels round to"
        return Diagnosis(Kind.ROUNDING, text, output=max(found, default=(0.0, 0))[1])
    _, output, residual = max(wrong, key=lambda each: each[0])
    return replace(_best(residual, _hypotheses(call, residual, output)), output=output)


def diagnose_arrays(residual: Residual) -> Diagnosis:
    """The same from arrays alone, without the operator that made them."""
    if residual.is_rounding:
        return Diagnosis(Kind.ROUNDING, "it is what correct kernels round to")
    return _best(residual, _of_arrays(residual, {}, ()))


def _of_arrays(
    residual: Residual, others: dict[str, Array], heads: tuple[int, ...]
) -> Iterator[Hypothesis]:
    yield from amounts(residual)
    yield from places(residual, others)
    yield from orders(residual, heads)


def _hypotheses(call: Call, residual: Residual, output: int) -> Iterator[Hypothesis]:
    """All hypotheses; sums are only taken apart where nothing else leaves rounding alone."""
    others = {
        f"intensor{index}": _float64(tensor)
        for index, tensor in call.tensors()
        if tensor.numel() == residual.size
    }
    perfect = False
    for each in _of_arrays(residual, others, tuple(call.numbers(*_HEADS))):
        perfect = perfect or _is_perfect(residual, each)
        yield each
    if sum(tensor.nbytes for _, tensor in call.tensors()) > MOST_BYTES:
        return
    for source in (parameters, read_wrongly, reductions):
        if perfect and source is reductions:
            return
        try:
            for each in source(call, residual, output):
                perfect = perfect or _is_perfect(residual, each)
                yield each
        except (AitError, *REFUSALS):
            continue  # this signature does not fit the operator


def _is_perfect(residual: Residual, one: Hypothesis) -> bool:
    """Nothing is left but rounding, of a residual that is much more."""
    return (
        not np.isnan(one.values).any()
        and residual.share(one.values) >= PERFECT
        and residual.leaves_rounding(one.values)
    )


def _best(residual: Residual, hypotheses: Iterable[Hypothesis]) -> Diagnosis:
    """The kind with the shortest description, if it explains enough and leads clearly."""
    unit = float(np.log2(max(2, residual.size)))
    scored = []
    for each in hypotheses:
        if each.values.shape != residual.mine.shape:
            continue
        bits = residual.bits(each.values) + each.cost * unit
        scored.append(_Scored(each, bits, residual.share(each.values)))
    scored.sort(key=lambda one: one.bits)
    fitting = [one for one in scored if one.share >= LEAST_SHARE]
    fitting = [
        one
        for one in fitting
        if one.bits <= MOST_BITS * residual.bits_of_nothing
        or (one.bits < residual.bits_of_nothing and residual.leaves_rounding(one.hypothesis.values))
    ]
    place = confinement(residual.wrong)
    if not fitting:
        nearest = max(scored, key=lambda one: one.share, default=None)
        text = f"no signature explains it; {place}"
        if nearest is not None and nearest.share > MOST_BITS:
            text += (
                f"; nearest is {nearest.hypothesis.kind.value}, "
                f"{_percent(nearest.share)} of the residual's energy"
            )
        return Diagnosis(Kind.UNKNOWN, text)
    best = fitting[0]
    rivals = [
        one
        for one in fitting[1:]
        if one.hypothesis.kind is not best.hypothesis.kind and one.bits < best.bits + LEAD
    ]
    if rivals:
        kinds = " and ".join(one.hypothesis.kind.value for one in (best, rivals[0]))
        return Diagnosis(Kind.UNKNOWN, f"{kinds} explain it equally well; {place}", best.share)
    text = f"{best.hypothesis.text}; this explains {_percent(best.share)} of the residual's energy"
    return Diagnosis(
        best.hypothesis.kind, text, best.share, parameters=dict(best.hypothesis.parameters)
    )


def _percent(share: float) -> str:
    """Whole per cent, and never all of what is not all."""
    percent = 100 * share
    return f"{percent:.0f} %" if percent < 99 or share == 1 else f"{min(percent, 99.99):.2f} %"


def _not_finite(mine: Array, right: Array, dtype: DType) -> Diagnosis | None:
    """NaN or Inf where the right result is neither."""
    with np.errstate(over="ignore"):
        broken = ~np.isfinite(mine) & np.isfinite(right)
    broken &= np.isfinite(round_to(np.where(np.isfinite(right), right, 0), dtype))
    natural = int((~np.isfinite(right)).sum())  # of the right result, which may be elsewhere
    if not broken.any() or natural >= int(broken.sum()):
        return None
    nan, inf = int(np.isnan(mine[broken]).sum()), int(np.isinf(mine[broken]).sum())
    at = np.unravel_index(int(np.flatnonzero(broken)[0]), broken.shape)
    place = ", ".join(str(int(each)) for each in at)
    text = (
        f"{nan} NaN and {inf} Inf where finite inputs give finite numbers, the first at [{place}] "
        f"instead of {float(right[at]):.6g}; {confinement(broken)}"
    )
    return Diagnosis(Kind.NOT_FINITE, text, 1.0, parameters={"nan": float(nan), "inf": float(inf)})


def _residual(call: Call, mine: Array, right: Array, tensor: Tensor) -> Residual:
    roundings = call.golden.kernel(call.params).roundings
    unit = unit_of(call.inputs, 0.0) if roundings else 0.0
    return Residual(mine, right, _dtype(tensor), terms_of(call.inputs), unit)


def _dtype(tensor: Tensor) -> DType:
    return DType.of_torch(str(tensor.dtype)) or DType.FLOAT64


def _float64(tensor: Tensor) -> Array:
    return np.asarray(real_parts(tensor).detach().double().numpy(), np.float64)
