"""How far an operator's result may be from the exact one, derived from its arithmetic.

Two limits stand side by side. *Strict* is what an accelerator promises: sums in float32, one
rounding to the output type at the end. *Loose* also allows kernels that round intermediate results
to the input's 16 bits, as fast attention does: an error like that of four more roundings of each
input.

How much such roundings change the result is measured, not derived per operator: the operator is
evaluated once more on inputs that are each moved by one rounding. The difference, divided by the
size of the move, is the operator's *sensitivity*, the change of each output element per relative
change of the inputs.

A float32 sum of n terms rounds n times, each time by at most half a spacing of a partial sum, which
is about as large as the sensitivity. Such errors add up like a random walk, with the root of n
(Higham and Mary, 2019, "A new approach to probabilistic rounding error analysis").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ait_llm.opcheck.standards.rounding import FLOAT32_UNIT, spacing

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# The root mean square of a rounding to nearest is 0.29 of the spacing; few elements scatter.
_ROUNDING = 0.4
# Largest over typical: of 10^5 elements one is 4.4 standard deviations away.
_LARGEST = 4.0
_SHORTEST_SUM = 256  # terms, where shapes show fewer: exponentials and roots have their own errors
_LOOSE_ROUNDINGS = 4.0
_LOOSE_NORM = 1.5  # independent roundings add up to less than their number


@dataclass(frozen=True, slots=True)
class Excess:
    """By what factor an error is beyond its limits; above 1 is too much.

    Attributes:
        strict, loose: the larger of the factors for the norm and for the worst element.
        error: Euclidean norm of the error over that of the exact result.
        permitted: what the loose limit lets ``error`` be.
        worst: flat index of the element that is furthest beyond its limit.
        amplification: by what factor a relative error of the inputs becomes one of the output.
    """

    strict: float
    loose: float
    error: float
    permitted: float
    worst: int
    amplification: float = 1.0


def _rows(values: Tensor) -> Tensor:
    """Root mean square along the last dimension, in the shape of ``values``.

    One evaluation samples the sensitivity of each element only once; neighbours share its scale.
    """
    if values.dim() == 0 or values.numel() == 0:
        return values
    return values.square().mean(-1, keepdim=True).sqrt().expand_as(values)


def excess(
    exact: Tensor,
    mine: Tensor,
    sensitivity: Tensor,
    out_dtype: torch.dtype,
    unit: float,
    terms: int = 1,
) -> Excess:
    """Compare an operator's result with the exact one.

    Args:
        exact: unrounded result, finite, float64.
        mine: result under test, finite, float64, of the same shape.
        sensitivity: as above, of the same shape.
        out_dtype: floating type of the result.
        unit: largest relative error of one rounding in the inputs' type.
        terms: of the longest sum.
    """
    error = (mine - exact).abs()
    gaps = spacing(exact, out_dtype)
    scale = sensitivity.maximum(_rows(sensitivity))
    summing = FLOAT32_UNIT * max(terms, _SHORTEST_SUM) ** 0.5
    strict = error / (gaps + _LARGEST * summing * scale)
    loose = error / (2 * gaps + (_LOOSE_ROUNDINGS * unit + _LARGEST * summing) * scale)
    strict_norm = _ROUNDING * gaps.norm() + summing * sensitivity.norm()
    loose_norm = gaps.norm() + (_LOOSE_NORM * unit + summing) * sensitivity.norm()
    distance, size = float(error.norm()), float(exact.norm())
    return Excess(
        strict=max(float(strict.max()), distance / float(strict_norm)),
        loose=max(float(loose.max()), distance / float(loose_norm)),
        error=_ratio(distance, size),
        permitted=_ratio(float(loose_norm), size),
        worst=int(loose.argmax()),
        amplification=_ratio(float(sensitivity.norm()), size),
    )


def _ratio(part: float, whole: float) -> float:
    if whole == 0:
        return 0.0 if part == 0 else float("inf")
    return part / whole
