"""What makes two tensors of different shapes comparable: repetition of a smaller batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from ait_llm.dumps.model import Tensor
from ait_llm.errors import FormatError
from ait_llm.match.views import Part, Repeat, Reshape, View
from ait_llm.program.describe import NZ_FORMATS, logical_shape

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Aligned:
    """Views that bring two tensors to one shape.

    Attributes:
        golden, mine: views of each side.
        note: what was done, as a clause; empty for equal shapes.
    """

    golden: tuple[View, ...] = ()
    mine: tuple[View, ...] = ()
    note: str = ""


def batch_ratio(pairs: Iterable[tuple[Shape, Shape]]) -> int:
    """How many times larger the batch of one side is; negative if the golden one is larger.

    Args:
        pairs: golden and my shape of outputs that belong together.

    Returns:
        1 if most first dims are equal; 0 if most are no multiples.
    """
    ratios: Counter[int] = Counter()
    for golden, mine in pairs:
        if not golden or not mine or golden[1:] != mine[1:] or 0 in (golden[0], mine[0]):
            continue
        small, large = sorted((golden[0], mine[0]))
        ratio = large // small if large % small == 0 else 0
        ratios[ratio if mine[0] >= golden[0] else -ratio] += 1
    # caches differ by the size of their pool; they are fewer than the activations
    return ratios.most_common(1)[0][0] if ratios else 1


def align(golden: Tensor, mine: Tensor, ratio: int = 1) -> Aligned | str:
    """Bring two tensors to one shape.

    Args:
        golden, mine: tensors that belong together.
        ratio: of the batches, see :func:`batch_ratio`.

    Returns:
        The views, or why there are none.
    """
    try:
        first, second = logical_shape(golden), logical_shape(mine)
    except FormatError:
        return Aligned()  # reading the values says what is wrong with the file
    if first == second:
        return Aligned()
    unpadded = _without_padding(golden, mine, first, second)
    return unpadded or align_shapes(first, second, ratio)


def align_shapes(golden: Shape, mine: Shape, ratio: int = 1) -> Aligned | str:
    """As :func:`align`, for shapes."""
    if golden == mine:
        return Aligned()
    refusal = f"shapes {list(golden)} and {list(mine)} differ"
    if 0 in golden or 0 in mine:
        return refusal
    if prod(golden) == prod(mine):
        squeezed = [tuple(dim for dim in shape if dim != 1) for shape in (golden, mine)]
        if squeezed[0] == squeezed[1]:
            return Aligned((), (Reshape(golden),), "dims of 1 differ")
        return refusal
    times = abs(ratio)
    if times > 1 and len(golden) == len(mine):
        small, large = (golden, mine) if ratio > 0 else (mine, golden)
        for axis in range(len(small)):
            # the batch comes first; elsewhere only what NumPy would broadcast
            repeats = small[axis] * times == large[axis] and (axis == 0 or small[axis] == 1)
            if repeats and _others_equal(small, large, axis):
                view = Repeat(axis, times)
                note = f"the smaller batch repeated {times} times"
                if ratio > 0:
                    return Aligned((view,), (), note)
                return Aligned((), (view,), note)
    return refusal


def _others_equal(first: Shape, second: Shape, axis: int) -> bool:
    return all(
        one == other
        for place, (one, other) in enumerate(zip(first, second, strict=True))
        if place != axis
    )


def _without_padding(golden: Tensor, mine: Tensor, first: Shape, second: Shape) -> Aligned | None:
    """Cut the padding of a private format whose header does not tell the real dims."""
    private = golden.format in NZ_FORMATS, mine.format in NZ_FORMATS
    if private[0] == private[1] or len(first) != len(second):
        return None
    padded, real = (first, second) if private[0] else (second, first)
    if padded[:-2] != real[:-2]:
        return None
    views: list[View] = []
    for axis in range(len(real) - 2, len(real)):
        spare = padded[axis] - real[axis]
        if not 0 <= spare < 64:
            return None
        if spare:
            views.append(Part(axis, 0, real[axis]))
    note = "padding of the private format cut"
    return Aligned(tuple(views), (), note) if private[0] else Aligned((), tuple(views), note)
