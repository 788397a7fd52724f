"""A quick look at results of kernels that store values on the way in 16 bits.

Like :mod:`~ait_llm.judge.standards.near` it takes float32 and one pass over the elements. What
rounding on the way does to a row is told by the operator, or else by one cheap sample, the result
of inputs that are neighbours of those given, of which a little less is believed. So the limits are
tighter than they need be: who passes them passes the contract, who does not is judged by the whole
of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ait_llm.judge.standards.evaluations import is_half, nudged_of
from ait_llm.judge.standards.near import HALF, NearSums, dot, gaps_of
from ait_llm.judge.standards.rounding import (
    SCATTER,
    SPREAD,
    TYPICAL_MOVE,
    pick,
    terms_of,
    unit_of,
    walk_of,
)

if TYPE_CHECKING:
    from torch import Tensor

    from ait_llm.judge.standards.base import Output

_LESS = 0.75  # of what the sample tells of a row, to err on the strict side
# The contract takes the larger of a row's mean square and that of four samples of an element, whose
# mean over many elements is 1.27 times the row's: of x distributed as chi-squared of 4 over 4, that
# of max(x, 1). A little less is believed.
_SCATTERED = 1.2
_BLOCK = 1 << 16  # elements at a time
_USUAL = (1e-12, 1e12)  # between them squares and their sums are numbers of float32


@dataclass(frozen=True, eq=False)
class Staged:
    """The results of an output, and what rounding on the way may do to its rows.

    Attributes:
        exact, golden, mine: ``[rows, width]``; the first in float32, before it was rounded.
        spread: deviation of each row by roundings on the way, ``[rows, 1]``.
        common: relative error that all elements may have.
        scattered: factor of the squares of the deviations, where elements are many.
    """

    exact: Tensor
    golden: Tensor
    mine: Tensor
    spread: Tensor
    common: float
    scattered: float

    def sums(self) -> NearSums | None:
        """The sums of all elements in units of their deviations; None where one is further off."""
        sums = NearSums(self.exact.reshape(-1), self.exact.numel())
        step = max(1, _BLOCK // max(1, self.exact.shape[1]))
        for start in range(0, len(self.exact), step):
            if not self._add(sums, slice(start, start + step)):
                return None
        return sums

    def _add(self, sums: NearSums, rows: slice) -> bool:
        import torch

        exact, golden = self.exact[rows], self.golden[rows]
        own, given = golden.float(), self.mine[rows].float()
        size = exact.abs()
        largest = float(size.max())
        if not _USUAL[0] < largest < min(_USUAL[1], torch.finfo(golden.dtype).max / 2):
            return False
        gap, error = gaps_of(size, golden.dtype), given - exact
        spread = self.spread[rows]
        bound = size.mul_(walk_of(1)).add_(gap, alpha=HALF).add_(spread * SCATTER)
        worst = float(bound.reciprocal_().mul_(error).abs_().max())
        if not worst <= 1:
            return False
        sums.worst = max(sums.worst, worst)
        variance = (
            gap.square_().mul_(1 / 12).add_((spread * SPREAD).square_(), alpha=self.scattered)
        )
        sums.variance += float(variance.sum())
        unit = variance.rsqrt_()
        rest, distance, weight = (own - exact).mul_(unit), (given - own).mul_(unit), exact * unit
        sums.nearest += dot(rest, rest)
        sums.distance += float(distance.sum())
        sums.product += dot(distance, weight)
        sums.power += dot(weight, weight)
        sums.weight += float(weight.abs_().sum())
        sums.error += dot(error, error)
        sums.size += dot(exact, exact)
        error.mul_(unit)
        sums.squares += dot(error, error)
        return True


def staged_of(output: Output, roundings: int) -> Staged | None:
    """What there is to look at quickly; None where there is no such sample."""
    import torch

    from ait_llm.opcheck.golden.base import UNROUNDED

    computation = output.computation
    kernel = computation.golden.kernel(computation.params)
    unit = unit_of(computation.inputs, 0.0)
    count = max(kernel.roundings, roundings)
    if not count or not unit or kernel.unknown or not is_half(output.golden.dtype):
        return None
    exact = output.in_arithmetic(UNROUNDED)
    if not exact.dim() or not exact.numel() or exact.dtype != torch.float32:
        return None
    staged = (count / 3) ** 0.5 * unit
    felt = told = _told(output, exact, staged)
    if felt is None:
        move = TYPICAL_MOVE * unit
        felt = _felt(output, exact, staged, move if kernel.in_place else move / 2**0.5)
    if felt is None:
        return None
    rows = [one.reshape(-1, exact.shape[-1]) for one in (exact, output.golden, output.mine)]
    rows.append(felt.reshape(-1, 1))
    if output.defined is not None:
        defined = output.defined.reshape(rows[0].shape)
        whole = defined.all(-1)
        if bool((defined.any(-1) != whole).any()) or not bool(whole.any()):
            return None
        rows = [one[whole] for one in rows]
    # The same as of the whole contract: it is not sampled.
    common = walk_of(kernel.terms or terms_of(computation.inputs)) + unit * kernel.alike
    scattered = 1.0 if told is None else _SCATTERED
    return Staged(rows[0], rows[1], rows[2], rows[3], common, scattered)


def _told(output: Output, exact: Tensor, staged: float) -> Tensor | None:
    """The deviation of each row by roundings on the way, ``[..., 1]``, as the operator tells it."""
    from ait_llm.opcheck.golden.base import UNROUNDED

    told = output.computation.result(UNROUNDED).sensitivity.get(output.index)
    if told is None or output.is_input:
        return None
    return told.expand(*exact.shape[:-1], 1) * staged


def _felt(output: Output, exact: Tensor, staged: float, move: float) -> Tensor | None:
    """The same, of a sample.

    Args:
        output: of an operator.
        exact: the result before it was rounded.
        staged: deviation of those roundings, relative to the inputs.
        move: of the inputs of the sample.
    """
    nudged = nudged_of(output.computation, move)
    if nudged is None or pick(nudged, output).shape != exact.shape:
        return None
    change = (pick(nudged, output) - exact).square_().mean(-1, keepdim=True).sqrt_()
    return change.mul_(_LESS * staged / move)
