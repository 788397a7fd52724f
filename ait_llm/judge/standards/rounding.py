"""How far rounding alone takes a correct kernel from the exact result.

Four sources, for one element with the exact value g:

- The output is rounded to nearest once: at most half the spacing of its type at g. As a random
  error it has the variance ``spacing**2 / 12``.
- Sums are kept in float32. A sum of n products in any order is off by at most
  ``gamma_n * sum |a||b|`` with ``gamma_n = n u / (1 - n u)``, ``u = 2**-24`` (Higham, "Accuracy and
  Stability of Numerical Algorithms", 2nd edition, 3.1). Rounding errors that are independent add up
  like a random walk, and stay below ``lambda * sqrt(n) * u * sum |a||b|`` except with probability
  ``2 n exp(-lambda**2 / 2)`` (Higham and Mary, "A New Approach to Probabilistic Rounding Error
  Analysis", SIAM J. Sci. Comput. 41, 2019). The bound takes the smaller of the two.
- Units for products of floats of 8 bits cut what they add up, 32 products at a time, after 13 bits
  behind the point of the largest, all towards zero (measured by DeepSeek-AI, "DeepSeek-V3 Technical
  Report", 2024, 3.3.2, and Fasi et al., "Numerical behavior of NVIDIA tensor cores", 2021).
- Some kernels keep values on the way in 16 bits (:class:`~ait_llm.opcheck.golden.KernelArithmetic`
  says how often). Each such rounding does to the result what rounding the inputs does.

What sums and roundings do to an element is not derived by hand for each operator. The golden
operator tells it: evaluated on absolute values it gives ``sum |a||b|``; evaluated on inputs that
are each moved by one spacing, up or down at random, the change is a sample of the *sensitivity*,
the Euclidean norm of the change per relative change of each input. Several samples are taken.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ait_llm.judge.standards.evaluations import (
    coarsely_moved,
    evaluations_of,
    is_half,
    widest,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ait_llm.judge.standards.base import Computation, Output
    from ait_llm.opcheck.golden import KernelArithmetic, Result

FLOAT32_UNIT = 2.0**-24
# lambda of the random walk; up to n = 256 the bound then is the one that always holds.
_WALK = 16.0
# Independent roundings of a sum of n products deviate most where all have one sign and are added
# one after another: by 2 u / 12**0.5 of each partial sum, together n**0.5 u / 3. A margin is left.
_DEVIATION = 0.4
# Exponentials, roots and divisions of float32 are off by some spacings of their own.
OWN_ERRORS = 64
# An error of 16-bit roundings on the way, in its standard deviations: of a million elements one is
# five away, and four samples tell the deviation of one element only roughly.
SCATTER = 12.0
# Rounding errs by half a spacing at most, which is between half a unit and a unit of the value.
# Where significands m are spread evenly in the logarithm, the mean of 1 / m**2 is 3 / (8 ln 2).
SPREAD = (3 / (8 * math.log(2))) ** 0.5
# A neighbour is one to two units away, relative to the value: the root mean square is 1.44 units.
TYPICAL_MOVE = 1.44
# Relative move of inputs that have no 16 bits.
_FLOAT32_MOVE = 2.0**-20
# What a unit for floats of 8 bits cuts off each time, and how many products it adds at a time.
_CUT = 2.0**-13
_AT_A_TIME = 32
_EXPONENT = 0x7FF << 52  # of the bits of a float64
# Elements at a time: some float64 tensors of them fit into the processor's cache.
_BLOCK = 1 << 15


def walk_of(terms: int) -> float:
    """Relative error that float32 sums of so many terms may have in common."""
    steps: float = min(terms, _WALK * terms**0.5) + OWN_ERRORS
    return steps * FLOAT32_UNIT


@dataclass(frozen=True, eq=False)
class Permitted:
    """What rounding permits for elements of one output; float64 tensors of one shape.

    Attributes:
        exact: the unrounded result.
        bound: largest error of an element.
        deviation: standard deviation of a correct kernel's error, at most.
    """

    exact: Tensor
    bound: Tensor
    deviation: Tensor


@dataclass(frozen=True, eq=False)
class Limits:
    """What rounding permits for one output, evaluated for as many rows as are asked for.

    Attributes:
        exact: the unrounded result, ``[rows, last dimension]``.
        absolute: the same of absolute inputs, ``sum |a||b|``; None where that is not defined.
        unmoved: the result that ``moved`` differ from.
        moved: results of inputs that are each moved by about ``move`` of it.
        move: see ``moved``.
        dtype: of the output.
        unit: of the roundings to 16 bits on the way; 0 where there is no 16-bit input.
        roundings: how many there are.
        shared: errors of roundings on the way are those of a row, not of an element.
        alike: what part of the unit errors of roundings on the way may be of all elements alike.
        terms: of the longest sum.
        cut: what sums in fewer bits than float32 may have lost of them.
        unknown: errors of roundings on the way are also those of the result's own size, and have
            anything in common.
        common: size that errors of float32 may have anywhere: the root mean square of the output
            where ``unknown``, else 0.
        lost: absolute errors of float32 that what cancels on the way leaves behind; None where
            nothing does.
        is_least: ``absolute`` may be less, and limits tighter than they need be. What is within
            them passes; what is not is judged again by :func:`widest_limits_of`.
    """

    exact: Tensor
    absolute: Tensor | None
    unmoved: Tensor
    moved: Sequence[Tensor]
    move: float
    dtype: torch.dtype
    unit: float
    roundings: int
    shared: bool
    alike: float
    terms: int
    cut: float
    unknown: bool
    common: float
    lost: Tensor | None
    is_least: bool

    @property
    def walk(self) -> float:
        """Relative error that sums may have in common."""
        return walk_of(self.terms) + self.cut

    def blocks(self) -> Iterator[slice]:
        """All rows, some at a time."""
        rows, width = self.exact.shape
        step = max(1, _BLOCK // max(1, width))
        return (slice(start, start + step) for start in range(0, rows, step))

    def at(self, rows: slice) -> Permitted:
        """What is permitted for the elements of some rows."""
        import torch

        given = self.exact[rows]
        exact = given.double()
        size = exact.abs().nan_to_num_(0.0, 0.0, 0.0)
        sensitivity = self._sensitivity(rows) if self.moved else size
        # Neighbours share their scale, samples scatter.
        sensitivity = sensitivity.maximum(_row_mean_square(sensitivity))
        if self.unknown:
            sensitivity = sensitivity.maximum(size)
        if self.absolute is not None:
            partial = self.absolute[rows].double().abs().nan_to_num_(0.0, 0.0, 0.0).maximum(size)
        else:
            partial = size + sensitivity
        gaps = spacing(exact, self.dtype)
        # Where the definition itself rounds, even the exact result is only known to half a spacing.
        times = 2 if given.dtype == self.dtype and given.dtype.itemsize <= 2 else 1
        staged = (self.roundings / 3) ** 0.5 * self.unit
        random = (_DEVIATION**2 * self.terms + OWN_ERRORS) ** 0.5 * FLOAT32_UNIT
        summed = random + self.cut
        bound = gaps * (times / 2 * (1 + 2.0**-8))
        bound += self.walk * (partial + self.common)
        variance = gaps.square_().mul_(times / 12)
        variance += partial.mul_(summed).square_()
        if self.lost is not None:
            bound += self.lost[rows]
            variance += self.lost[rows].square()
        if staged:
            # The smallest numbers of a type are rounded to steps of one size.
            least = torch.finfo(self.dtype).smallest_normal * torch.finfo(self.dtype).eps
            bound += SCATTER * staged * sensitivity + self.roundings * least
            variance += (SPREAD * staged * sensitivity).square_()
        # The square of a spacing of float64 next to zero is no number any more.
        deviation = torch.sqrt(variance).clamp_(min=torch.finfo(torch.float64).tiny)
        return Permitted(exact, bound, deviation)

    def _sensitivity(self, rows: slice) -> Tensor:
        unmoved = self.unmoved[rows].double()
        squares = unmoved.new_zeros(unmoved.shape)
        for moved in self.moved:
            change = (moved[rows].double() - unmoved).div_(self.move)
            squares += change.nan_to_num_(0.0, 0.0, 0.0).square_()
        return squares.div_(len(self.moved)).sqrt_()


def limits_of(output: Output, roundings: int = 0) -> Limits:
    """What rounding permits for an output of floats.

    Args:
        output: to be judged.
        roundings: to 16 bits on the way, where the operator's kernel declares fewer.
    """
    computation = output.computation
    move = _move_of(computation)
    found = evaluations_of(computation, move, moves=roundings > 0)
    kernel = computation.golden.kernel(computation.params)
    exact = pick(found.exact, output)
    moved = [pick(result, output) for result in found.moved]
    unit = unit_of(computation.inputs, 0.0)
    terms = kernel.terms or terms_of(computation.inputs)
    return Limits(
        exact=_flat(exact),
        absolute=None if found.absolute is None else _flat(pick(found.absolute, output)),
        unmoved=_flat(pick(found.unmoved, output)),
        moved=[_flat(tensor) for tensor in moved if tensor.shape == exact.shape],
        move=move,
        dtype=output.golden.dtype,
        unit=unit,
        roundings=max(kernel.roundings, roundings),
        shared=kernel.shared and unit > 0,
        alike=kernel.alike,
        terms=terms,
        cut=-(-min(terms, kernel.short_sums) // _AT_A_TIME) * _CUT,
        unknown=kernel.unknown,
        common=_root_mean_square(exact) if kernel.unknown else 0.0,
        lost=_lost(kernel, computation.inputs, exact),
        is_least=found.is_least,
    )


def widest_limits_of(output: Output, roundings: int = 0) -> Limits:
    """The same after a judgement by :func:`limits_of`, where those were the least ones."""
    widest(output.computation)
    return limits_of(output, roundings)


def amplification_of(output: Output) -> float:
    """By what factor a relative error of all inputs, by chance, becomes one of the output.

    The error is of the size of a rounding of the inputs, or of the output where that is coarser:
    of smaller ones a cast shows whose rounding they turn, not what they become.
    """
    import torch

    computation = output.computation
    move = _move_of(computation)
    coarse = TYPICAL_MOVE * torch.finfo(output.golden.dtype).eps / 2
    if coarse > move:
        move = coarse
        unmoved, results = coarsely_moved(computation, move)
    else:
        found = evaluations_of(computation, move, moves=True)
        unmoved, results = found.unmoved, list(found.moved)
    if unmoved is None:
        return 1.0
    before = pick(unmoved, output).double()
    size = float(before.nan_to_num(0.0, 0.0, 0.0).norm())
    changes = [
        float((pick(moved, output).double() - before).nan_to_num_(0.0, 0.0, 0.0).norm())
        for moved in results
        if pick(moved, output).shape == before.shape
    ]
    if not changes or not size:
        return 1.0
    return max(changes) / move / size


def _move_of(computation: Computation) -> float:
    return TYPICAL_MOVE * unit_of(computation.inputs, _FLOAT32_MOVE)


def exact_of(output: Output) -> Tensor:
    """The unrounded result in float64, in the output's shape."""
    from ait_llm.opcheck.golden import EXACT

    return output.in_arithmetic(EXACT).double()


def permitted_of(output: Output) -> Permitted:
    """What rounding permits for all elements of an output of floats, in its shape."""
    limits = limits_of(output)
    found = (widest_limits_of(output) if limits.is_least else limits).at(slice(None))
    shape = output.golden.shape
    return Permitted(*(t.reshape(shape) for t in (found.exact, found.bound, found.deviation)))


def _lost(
    kernel: KernelArithmetic, inputs: Sequence[Tensor | None], exact: Tensor
) -> Tensor | None:
    """What cancellation leaves behind of roundings of float32, in float64."""
    import torch

    first = inputs[0] if inputs else None
    if not kernel.lost or first is None or first.shape != exact.shape:
        return None
    size = torch.ones_like(exact, dtype=torch.float64) if kernel.near_one else first.double().abs()
    return _flat(size * (kernel.lost * FLOAT32_UNIT))


def _root_mean_square(values: Tensor) -> float:
    finite = values[values.isfinite()].double()
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


def _flat(tensor: Tensor) -> Tensor:
    return (
        tensor.reshape(-1, tensor.shape[-1])
        if tensor.numel() and tensor.dim()
        else tensor.reshape(1, -1)
    )


def spacing(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Distance between neighbouring values of a floating type at each element, in float64."""
    import torch

    info = torch.finfo(dtype)
    size = values.double().abs().clamp_(min=info.smallest_normal, max=info.max)
    # Without its significand a float64 is the power of two below it.
    return size.view(torch.int64).bitwise_and_(_EXPONENT).view(torch.float64).mul_(float(info.eps))


def pick(result: Result, output: Output) -> Tensor:
    """The part of a result that an output is."""
    return result.updated_inputs[output.index] if output.is_input else result.outputs[output.index]


def _row_mean_square(values: Tensor) -> Tensor:
    return values.square().mean(-1, keepdim=True).sqrt_()


def unit_of(inputs: Sequence[Tensor | None], otherwise: float = FLOAT32_UNIT) -> float:
    """Largest relative error of one rounding to the narrowest input type of 16 bits.

    Args:
        inputs: of an operator.
        otherwise: the answer where none has 16 bits.
    """
    import torch

    kinds = {tensor.dtype for tensor in inputs if tensor is not None}
    half = [torch.finfo(dtype).eps / 2 for dtype in kinds if is_half(dtype)]
    return max(half, default=otherwise)


def terms_of(inputs: Sequence[Tensor | None]) -> int:
    """Terms of the longest sum, as far as shapes tell: a size that two inputs share, or a row."""
    shapes = [t.shape for t in inputs if t is not None and t.is_floating_point() and t.dim()]
    counts = Counter(size for shape in shapes for size in set(shape))
    shared = [size for size, count in counts.items() if count > 1]
    return max([1, *shared, *(shape[-1] for shape in shapes)])
