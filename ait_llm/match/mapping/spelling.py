"""Views as the words that mean them, see ``relations``."""

from __future__ import annotations

from collections.abc import Sequence

from ait_llm.match.mapping.relations import Shape
from ait_llm.match.value_views import Dequantise, FirstUse, Hidden, Shift, Times
from ait_llm.match.views import Part, Plus, Reorder, Repeat, Reshape, Rows, View, shape_after


def words_for(views: Sequence[View], shape: Shape) -> str:
    """Views as brackets; ``shape`` is that of the tensor before them.

    Raises:
        ValueError: there is no word for one, or it does not fit.
    """
    text = ""
    for view in views:
        text += f"[{_word(view, shape)}]"
        shape = shape_after(shape, [view])
    return text


def _word(view: View, shape: Shape) -> str:
    match view:
        case Part(axis, start, stop) if axis == len(shape) - 1:
            return f"columns {start}:{stop}"
        case Part(0, start, stop):
            return f"rows {start}:{stop}"
        case Part(axis, start, stop):
            return f"part {axis} {start}:{stop}"
        case Rows(axis, indices):
            return f"pick {axis} {_ranges(indices)}"
        case Reshape(dims):
            return f"shape {'x'.join(map(str, dims)) or 'none'}"
        case Reorder(axes) if axes == _swapped(len(shape)):
            return "transposed"
        case Reorder(axes):
            return f"axes {','.join(map(str, axes))}"
        case Repeat(axis, times):
            return f"repeat {axis} {times}"
        case Shift(axis, times, amount):
            return f"shift {axis} {times} {amount}"
        case FirstUse():
            return "first-use"
        case Hidden(value):
            return f"hides {value!r}"
        case Times(factor):
            return f"times {factor!r}"
        case Dequantise(scale, offset, axis):
            return f"dequantised {_reals(scale)} {_reals(offset)} {axis}"
        case Plus():
            raise ValueError("a sum has a term of its own")


def _swapped(axes: int) -> tuple[int, ...]:
    return (*range(axes - 2), axes - 1, axes - 2) if axes > 1 else ()


def _reals(values: Sequence[float]) -> str:
    return ",".join(map(repr, values))


def _ranges(indices: Sequence[int]) -> str:
    """``0:7,9`` for 0 to 6 and 9."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and runs[-1][1] == index:
            runs[-1][1] += 1
        else:
            runs.append([index, index + 1])
    return ",".join(str(a) if b == a + 1 else f"{a}:{b}" for a, b in runs) or "none"
