"""How far rounding alone takes a correct kernel from the exact result.

Three sources, for one element with the exact value g:

- The output is rounded to nearest once: at most half the spacing of its type at g. As a random
  error it has the variance ``spacing**2 / 12``.
- Sums are kept in float32. A sum of n products in any order is off by at most
  ``gamma_n * sum |a||b|`` with ``gamma_n = n u / (1 - n u)``, ``u = 2**-24`` (Higham, "Accuracy and
  Stability of Numerical Algorithms", 2nd edition, 3.1). Rounding errors that are independent add up
  like a random walk, and stay below ``lambda * sqrt(n) * u * sum |a||b|`` except with probability
  ``2 n exp(-lambda**2 / 2)`` (Higham and Mary, "A New Approach to Probabilistic Rounding Error
  Analysis", SIAM J. Sci. Comput. 41, 2019). The bound takes the smaller of the two.
- Some kernels keep values on the way in 16 bits (:class:`~ait_llm.opcheck.golden.KernelArithmetic`
  says how often). Each such rounding does to the result what rounding the inputs does.

What sums and roundings do to an element is not derived by hand for each operator. The golden
operator tells it: evaluated on absolute values it gives ``sum |a||b|``; evaluated on inputs that
are each moved by one spacing, up or down at random, the change is a sample of the *sensitivity*,
the Euclidean norm of the change per relative change of each input. Several samples are taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ait_llm.errors import AitError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ait_llm.opcheck.golden import Arithmetic, Result
    from ait_llm.opcheck.standards.base import Computation, Output

FLOAT32_UNIT = 2.0**-24
# lambda of the random walk; up to n = 256 the bound then is the one that always holds.
_WALK = 16.0
# Exponentials, roots and divisions of float32 are off by some spacings of their own.
_OWN_ERRORS = 64
# An error of 16-bit roundings on the way, in its standard deviations: of a million elements one is
# five away, and four samples tell the deviation of one element only roughly.
_SCATTER = 12.0
_SAMPLES = 4
_SEED = 20240229
# A neighbour is one to two units away, relative to the value: the root mean square is 1.44 units.
TYPICAL_MOVE = 1.44
# Relative move of inputs that have no 16 bits.
_FLOAT32_MOVE = 2.0**-12
_REFUSALS = (AitError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True, eq=False)
class Permitted:
    """What rounding permits for one output; float64 tensors in its shape.

    Attributes:
        exact: the unrounded result.
        bound: largest error of an element.
        deviation: standard deviation of a correct kernel's error, at most.
        walk: relative error that sums may have in common.
        shared: errors of roundings on the way are those of a row, not of an element.
    """

    exact: Tensor
    bound: Tensor
    deviation: Tensor
    walk: float
    shared: bool


@dataclass(eq=False)
class _Evaluations:
    """Golden results of one computation that every one of its outputs needs."""

    exact: Result
    absolute: Result | None
    moved: Sequence[Result]
    permitted: dict[tuple[int, bool], Permitted]


_evaluations: WeakKeyDictionary[Computation, _Evaluations] = WeakKeyDictionary()


def permitted_of(output: Output) -> Permitted:
    """What rounding permits for an output of floats."""
    found = _evaluations.get(output.computation)
    if found is None:
        found = _evaluations[output.computation] = _evaluate(output.computation)
    key = (output.index, output.is_input)
    if key not in found.permitted:
        found.permitted[key] = _permitted(output, found)
    return found.permitted[key]


def spacing(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Distance between neighbouring values of a floating type at each element, in float64."""
    import torch

    info = torch.finfo(dtype)
    size = values.double().abs().clamp(min=info.smallest_normal, max=info.max)
    return torch.exp2(torch.frexp(size).exponent.double() - 1) * float(info.eps)


def _evaluate(computation: Computation) -> _Evaluations:
    from ait_llm.opcheck.golden import EXACT

    kernel = computation.golden.kernel(computation.params)
    exact = computation.result(EXACT)
    absolute: Result | None = None
    if kernel.products:
        absolute = _again(computation, [_absolute(tensor) for tensor in computation.inputs], EXACT)
    moved: list[Result] = []
    if absolute is None or kernel.roundings:
        move = TYPICAL_MOVE * unit_of(computation.inputs, _FLOAT32_MOVE)
        for sample in range(_SAMPLES):
            inputs = [moved_input(tensor, move, sample) for tensor in computation.inputs]
            result = _again(computation, inputs, EXACT)
            if result is None:  # a collective one: other ranks' inputs are out of reach
                break
            moved.append(result)
    return _Evaluations(exact, absolute, moved, {})


def _again(
    computation: Computation, inputs: list[Tensor | None], arithmetic: Arithmetic
) -> Result | None:
    import torch

    try:
        with torch.no_grad():
            return computation.golden.compute(inputs, computation.params, arithmetic)
    except _REFUSALS:
        return None


def _permitted(output: Output, found: _Evaluations) -> Permitted:
    import torch

    computation = output.computation
    kernel = computation.golden.kernel(computation.params)
    given = _pick(found.exact, output)
    exact = given.double()
    unit = unit_of(computation.inputs, 0.0)
    move = TYPICAL_MOVE * unit_of(computation.inputs, _FLOAT32_MOVE)
    size = torch.nan_to_num(exact.abs(), 0.0, 0.0, 0.0)
    squares, samples = torch.zeros_like(exact), 0
    for result in found.moved:  # one at a time: outputs may be large
        moved = _pick(result, output)
        if moved.shape == exact.shape:
            change = (moved.double() - exact) / move
            squares += torch.nan_to_num(change, 0.0, 0.0, 0.0).square()
            samples += 1
    sensitivity = (squares / samples).sqrt() if samples else size
    sensitivity = sensitivity.maximum(_rows(sensitivity))
    if found.absolute is not None:
        partial = torch.nan_to_num(_pick(found.absolute, output).double().abs(), 0.0, 0.0, 0.0)
        partial = partial.maximum(size)
    else:
        partial = size + sensitivity
    terms = terms_of(computation.inputs)
    steps = min(terms, _WALK * terms**0.5) + _OWN_ERRORS
    gaps = spacing(exact, output.golden.dtype)
    # Where the definition itself rounds, even the exact result is only known to half a spacing.
    times = 2 if given.dtype == output.golden.dtype and given.dtype.itemsize <= 2 else 1
    staged = (kernel.roundings / 3) ** 0.5 * unit * sensitivity
    summed = (terms + _OWN_ERRORS) ** 0.5 * FLOAT32_UNIT * partial
    return Permitted(
        exact=exact,
        bound=gaps / 2 * times * (1 + 2.0**-8) + steps * FLOAT32_UNIT * partial + _SCATTER * staged,
        deviation=(times * gaps.square() / 12 + summed.square() + staged.square()).sqrt(),
        walk=steps * FLOAT32_UNIT,
        shared=kernel.shared and unit > 0,
    )


def _pick(result: Result, output: Output) -> Tensor:
    return result.updated_inputs[output.index] if output.is_input else result.outputs[output.index]


def _rows(values: Tensor) -> Tensor:
    """Root mean square along the last dimension: neighbours share their scale, samples scatter."""
    if values.dim() == 0 or values.numel() == 0:
        return values
    return values.square().mean(-1, keepdim=True).sqrt().expand_as(values)


def unit_of(inputs: Sequence[Tensor | None], otherwise: float = FLOAT32_UNIT) -> float:
    """Largest relative error of one rounding to the narrowest input type of 16 bits.

    Args:
        inputs: of an operator.
        otherwise: the answer where none has 16 bits.
    """
    import torch

    kinds = {tensor.dtype for tensor in inputs if tensor is not None}
    half = [torch.finfo(dtype).eps / 2 for dtype in kinds if _is_half(dtype)]
    return max(half, default=otherwise)


def _is_half(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point and dtype.itemsize == 2


def terms_of(inputs: Sequence[Tensor | None]) -> int:
    """Terms of the longest sum, as far as shapes tell: a size that two inputs share, or a row."""
    shapes = [t.shape for t in inputs if t is not None and t.is_floating_point() and t.dim()]
    counts = Counter(size for shape in shapes for size in set(shape))
    shared = [size for size, count in counts.items() if count > 1]
    return max([1, *shared, *(shape[-1] for shape in shapes)])


def _absolute(tensor: Tensor | None) -> Tensor | None:
    if tensor is None or not tensor.is_floating_point():
        return tensor
    return tensor.abs()


def moved_input(tensor: Tensor | None, move: float, sample: int = 0) -> Tensor | None:
    """A floating input with each element moved up or down by chance, by about ``move`` of it.

    Those of 16 bits move to a neighbour. Zeros, the largest values and those that are not finite
    stay.
    """
    import torch

    if tensor is None or not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
        return tensor
    generator = torch.Generator()
    generator.manual_seed(_SEED + tensor.numel() + sample)
    step = torch.randint(0, 2, tensor.shape, generator=generator, dtype=torch.int8).mul_(2).sub_(1)
    size = tensor.abs()
    step[(size == 0) | ~(size < torch.finfo(tensor.dtype).max / 2)] = 0
    if not _is_half(tensor.dtype):
        return tensor * (1 + move * step.to(tensor.dtype))
    # Of two bit patterns that differ by one, the larger one has the larger magnitude.
    return tensor.contiguous().view(torch.int16).add(step).view(tensor.dtype)
