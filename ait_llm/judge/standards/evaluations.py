"""Golden results that tell what rounding does to an operator, computed once for all its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from ait_llm.errors import AitError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ait_llm.judge.standards.base import Computation
    from ait_llm.opcheck.golden import Arithmetic, Result

_SAMPLES = 4
_FEW = 64  # neighbours that by chance may all move alike
_SEED = 20240229
# Share of the terms of sum |a||b| that limits are first made of.
_PART = 0.25
_TILE = 1 << 16  # elements after which the chances of neighbours repeat, but one
_SIGN = -0x8000  # of the bits of a 16-bit float
REFUSALS = (AitError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True, eq=False)
class Evaluations:
    """Results of one computation, not rounded.

    Attributes:
        exact: in float64.
        absolute: of absolute inputs, where sums of products are kept; to some digits.
        is_least: ``absolute`` may be less than that, and limits tighter than they need be.
        unmoved: the result that ``moved`` differ from.
        moved: of inputs that are each moved by chance.
    """

    exact: Result
    absolute: Result | None
    is_least: bool
    unmoved: Result
    moved: Sequence[Result]


_known: WeakKeyDictionary[Computation, Evaluations] = WeakKeyDictionary()


def evaluations_of(computation: Computation, move: float, *, moves: bool = False) -> Evaluations:
    """The results of a computation that error bounds are made of.

    Args:
        computation: its kernel says which of them are needed.
        move: see :func:`moved_input`.
        moves: results of moved inputs are needed in any case.
    """
    if computation not in _known:
        _known[computation] = _evaluate(computation, move)
    found = _known[computation]
    if moves and len(found.moved) < _SAMPLES:
        unmoved, moved = _moved(computation, move, _SAMPLES)
        found = replace(found, unmoved=unmoved or found.exact, moved=moved)
        _known[computation] = found
    return found


def widest(computation: Computation) -> None:
    """From now on the results are those of the widest limits, whatever they cost."""
    found = _known[computation]
    absolute, _ = _magnitudes(computation)
    _known[computation] = replace(found, absolute=absolute, is_least=False)


def _evaluate(computation: Computation, move: float) -> Evaluations:
    from ait_llm.opcheck.golden import EXACT

    kernel = computation.golden.kernel(computation.params)
    exact = computation.result(EXACT)
    absolute, is_least = _magnitudes(computation, _PART) if kernel.products else (None, False)
    if absolute is not None and not kernel.roundings:
        return Evaluations(exact, absolute, is_least, exact, ())
    # Without roundings on the way what moves is multiplied by float32 units only, and neighbours
    # share their scale: one sample tells enough, unless they are few.
    few = any(one.dim() and one.shape[-1] < _FEW for one in _floats(exact))
    unmoved, moved = _moved(computation, move, _SAMPLES if kernel.roundings or few else 1)
    return Evaluations(exact, absolute, is_least, unmoved or exact, moved)


def coarsely_moved(computation: Computation, move: float) -> tuple[Result | None, list[Result]]:
    """The result, and those of inputs that all move by more than their type's own spacing.

    Where the output has a wider spacing than the inputs, moves of theirs show next to nothing but
    which elements fall to the other side of a rounding.
    """
    return _moved(computation, move, _SAMPLES, to_neighbours=False)


def _moved(
    computation: Computation, move: float, samples: int, *, to_neighbours: bool = True
) -> tuple[Result | None, list[Result]]:
    """The result, and those of inputs that are each moved by chance."""
    from ait_llm.opcheck.golden.base import UNROUNDED

    unmoved = _unmoved(computation)
    in_place = computation.golden.kernel(computation.params).in_place
    moved = []
    for sample in range(samples if unmoved is not None else 0):
        inputs = [  # each by chances of its own, or what cancels would move together
            tensor
            if in_place
            else moved_input(tensor, move, sample + _SAMPLES * place, to_neighbours=to_neighbours)
            for place, tensor in enumerate(computation.inputs)
        ]
        result = _again(computation, inputs, replace(UNROUNDED, move=move, sample=sample))
        if result is not None:
            moved.append(result)
    return unmoved, moved


_nudged: WeakKeyDictionary[Computation, Result | None] = WeakKeyDictionary()


def nudged_of(computation: Computation, move: float) -> Result | None:
    """The result of inputs of 16 bits that are each a neighbour; None where there is none.

    One cheap sample: what is rounded on the way stays, half of the elements move, and the chances
    repeat. A kernel that moves what it stores in its place moves that by ``move`` instead.
    """
    from ait_llm.opcheck.golden.base import UNROUNDED

    if computation not in _nudged and computation.golden.kernel(computation.params).in_place:
        moving = replace(UNROUNDED, move=move)
        _nudged[computation] = _again(computation, list(computation.inputs), moving)
    if computation not in _nudged:
        inputs = [
            tensor if tensor is None or not is_half(tensor.dtype) else _neighbours(tensor, place)
            for place, tensor in enumerate(computation.inputs)
        ]
        _nudged[computation] = _again(computation, inputs, UNROUNDED)
    return _nudged[computation]


def _neighbours(tensor: Tensor, place: int) -> Tensor:
    """About half of the elements moved to a neighbour; masks stay, whose infinities have none."""
    import torch

    flat = tensor.contiguous().view(torch.int16).reshape(-1)
    if not bool(flat[:_TILE].view(tensor.dtype).isfinite().all()):
        return tensor
    count = flat.numel()
    whole = count - count % (_TILE + 1)
    tile, made = _coins(place), torch.empty_like(flat)
    if whole:
        rows = (one[:whole].view(-1, _TILE + 1) for one in (flat, made))
        torch.bitwise_xor(next(rows), tile, out=next(rows))
    torch.bitwise_xor(flat[whole:], tile[: count - whole], out=made[whole:])
    return made.reshape(tensor.shape).view(tensor.dtype)


@lru_cache(maxsize=16)
def _coins(place: int) -> Tensor:
    """Zeros and ones by chance, the same for each input of a place."""
    import torch

    generator = torch.Generator().manual_seed(_SEED + place)
    return torch.randint(0, 2, (_TILE + 1,), generator=generator, dtype=torch.int16)


def _unmoved(computation: Computation) -> Result | None:
    from ait_llm.opcheck.golden.base import UNROUNDED

    try:
        return computation.result(UNROUNDED)
    except REFUSALS:
        return None


def _rough(*, float32: bool = False) -> Arithmetic:
    """What 16-bit inputs move is far above float32, and magnitudes matter to some digits only.

    Args:
        float32: compute float32 inputs in float32 too.
    """
    import torch

    from ait_llm.opcheck.golden.base import UNROUNDED

    return replace(UNROUNDED, float32_compute=torch.float32) if float32 else UNROUNDED


def _magnitudes(computation: Computation, part: float = 1.0) -> tuple[Result | None, bool]:
    """The result of absolute inputs, or a lower bound of it; and whether it may be less."""
    from ait_llm.opcheck.golden import EXACT
    from ait_llm.opcheck.golden.products import is_large, magnitudes

    large = {
        index: tensor.untyped_storage().data_ptr()
        for index, tensor in enumerate(computation.inputs)
        if tensor is not None and is_half(tensor.dtype) and is_large(tensor)
    }
    inputs = [
        tensor if index in large else _absolute(tensor)
        for index, tensor in enumerate(computation.inputs)
    ]
    with magnitudes(part) as sizes:
        found = _again(computation, inputs, _rough())
    if found is not None and _is_finite(found) and set(large.values()) <= sizes.used:
        return found, sizes.is_part
    inputs = [_absolute(tensor) for tensor in computation.inputs]
    found = _again(computation, inputs, _rough(float32=True))
    if found is None or not _is_finite(found):
        found = _again(computation, inputs, EXACT)
    return found, False


def _is_finite(result: Result) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in _floats(result))


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
    except REFUSALS:
        return None


def is_half(dtype: torch.dtype) -> bool:
    """True for floating types of 16 bits."""
    return dtype.is_floating_point and dtype.itemsize == 2


def _absolute(tensor: Tensor | None) -> Tensor | None:
    import torch

    if tensor is None or not tensor.is_floating_point():
        return tensor
    if is_half(tensor.dtype):
        # Torch is slow here, and NumPy's large arrays lie in large pages.
        bits = np.asarray(tensor.contiguous().view(torch.int16).numpy() & np.int16(~_SIGN))
        return torch.from_numpy(bits).view(tensor.dtype)
    # Exponents alone are never negative, and torch has no absolute values of them.
    return tensor if tensor.dtype is getattr(torch, "float8_e8m0fnu", None) else tensor.abs()


def moved_input(
    tensor: Tensor | None, move: float, sample: int = 0, *, to_neighbours: bool = True
) -> Tensor | None:
    """A floating input with each element moved up or down by chance, by about ``move`` of it.

    Those of 16 bits move to a neighbour, unless ``to_neighbours`` is false. Zeros, the largest
    values and those that are not finite stay.
    """
    import torch

    if tensor is None or not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
        return tensor
    generator = torch.Generator()
    generator.manual_seed(_SEED + tensor.numel() + sample)
    # One random word for eight elements, each byte of it made one or minus one.
    words = torch.randint(-(2**63), 2**63 - 1, (-(-tensor.numel() // 8),), generator=generator)
    step = words.view(torch.int8)[: tensor.numel()].reshape(tensor.shape)
    step = step.bitwise_and_(2).sub_(1)
    if not (to_neighbours and is_half(tensor.dtype)):
        size = tensor.abs()
        step *= (size > 0) & (size < torch.finfo(tensor.dtype).max / 2)
        return tensor * (1 + move * step.to(tensor.dtype))
    # Of two bit patterns that differ by one, the larger one has the larger magnitude.
    bits = tensor.contiguous().view(torch.int16)
    size = bits & ~_SIGN
    half = torch.tensor(torch.finfo(tensor.dtype).max / 2, dtype=tensor.dtype).view(torch.int16)
    step *= (size > 0) & (size < half)
    return (bits + step).view(tensor.dtype)
