"""Golden results that tell what rounding does to an operator, computed once for all its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ait_llm.errors import AitError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ait_llm.opcheck.golden import Arithmetic, Result
    from ait_llm.opcheck.standards.base import Computation

_SAMPLES = 4
_SEED = 20240229
_SIGN = -0x8000  # of the bits of a 16-bit float
_REFUSALS = (AitError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True, eq=False)
class Evaluations:
    """Results of one computation, not rounded.

    Attributes:
        exact: in float64.
        absolute: of absolute inputs, where sums of products are kept; to some digits.
        unmoved: the result that ``moved`` differ from.
        moved: of inputs that are each moved by chance.
    """

    exact: Result
    absolute: Result | None
    unmoved: Result
    moved: Sequence[Result]


_known: WeakKeyDictionary[Computation, Evaluations] = WeakKeyDictionary()


def evaluations_of(computation: Computation, move: float) -> Evaluations:
    """The results of a computation that error bounds are made of.

    Args:
        computation: its kernel says which of them are needed.
        move: see :func:`moved_input`.
    """
    if computation not in _known:
        _known[computation] = _evaluate(computation, move)
    return _known[computation]


def _evaluate(computation: Computation, move: float) -> Evaluations:
    from ait_llm.opcheck.golden import EXACT

    kernel = computation.golden.kernel(computation.params)
    exact = computation.result(EXACT)
    absolute = _magnitudes(computation) if kernel.products else None
    if absolute is not None and not kernel.roundings:
        return Evaluations(exact, absolute, exact, ())
    rough = _rough()
    unmoved = _again(computation, list(computation.inputs), rough)
    moved = []
    for sample in range(_SAMPLES if unmoved is not None else 0):
        inputs = [moved_input(tensor, move, sample) for tensor in computation.inputs]
        result = _again(computation, inputs, rough)
        if result is not None:
            moved.append(result)
    return Evaluations(exact, absolute, unmoved or exact, moved)


def _rough() -> Arithmetic:
    """What 16-bit inputs move is far above float32, and magnitudes matter to some digits only."""
    import torch

    from ait_llm.opcheck.golden import EXACT

    return replace(EXACT, half_compute=torch.float32)


def _magnitudes(computation: Computation) -> Result | None:
    from ait_llm.opcheck.golden import EXACT

    inputs = [_absolute(tensor) for tensor in computation.inputs]
    found = _again(computation, inputs, _rough())
    if found is not None and all(bool(tensor.isfinite().all()) for tensor in _floats(found)):
        return found
    return _again(computation, inputs, EXACT)


def _floats(result: Result) -> Iterator[Tensor]:
    for tensor in (*result.outputs, *result.updated_inputs.values()):
        if tensor.is_floating_point():
            yield tensor


def _again(
    computation: Computation, inputs: list[Tensor | None], arithmetic: Arithmetic
) -> Result | None:
    """None where it cannot be evaluated: of a collective one, other ranks' inputs are missing."""
    import torch

    try:
        with torch.no_grad():
            return computation.golden.compute(inputs, computation.params, arithmetic)
    except _REFUSALS:
        return None


def is_half(dtype: torch.dtype) -> bool:
    """True for floating types of 16 bits."""
    return dtype.is_floating_point and dtype.itemsize == 2


def _absolute(tensor: Tensor | None) -> Tensor | None:
    import torch

    if tensor is None or not tensor.is_floating_point():
        return tensor
    if is_half(tensor.dtype):  # torch is slow here
        return (tensor.view(torch.int16) & ~_SIGN).view(tensor.dtype)
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
    if not is_half(tensor.dtype):
        return tensor * (1 + move * step.to(tensor.dtype))
    # Of two bit patterns that differ by one, the larger one has the larger magnitude.
    return tensor.contiguous().view(torch.int16).add(step).view(tensor.dtype)
