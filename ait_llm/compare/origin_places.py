"""What tells tokens their places, where it is not golden's: padding, positions, frequencies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ait_llm.compare.origin_run import path_of
from ait_llm.compare.origin_values import RunValues
from ait_llm.core.comparison import Comparison, SideSummary
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.formats.elements import Array
from ait_llm.match.masks import may_hide
from ait_llm.program.describe import integers

POSITIONS = "position"
_IDS, _MASK = "input_ids", "attention_mask"
_ROTARY = ("rotary", "rope")
_MOST = 1 << 22  # elements
_MOST_WHOLE = 1 << 53  # whole numbers that a float64 tells apart
_SAME_MEAN = 1e-5  # of powers of one number, rounded to float32


def named(operation: Operation, word: str) -> Tensor | None:
    """The input of an operation whose name ends so."""
    found = (each for each in operation.inputs if (each.ir_name or "").endswith(word))
    return next(found, None)


def padded_otherwise(golden: Operation, mine: Operation) -> str:
    """How two programs pad the same tokens at other sides, as a clause; empty if they do not."""
    tables = []
    for operation in (mine, golden):
        ids, mask = named(operation, _IDS), named(operation, _MASK)
        if ids is None or mask is None:
            return ""
        pair = integers(ids, _MOST), integers(mask, _MOST)
        if pair[0] is None or pair[1] is None or pair[0].shape != pair[1].shape:
            return ""
        if pair[0].ndim != 2:
            return ""
        tables.append((pair[0], pair[1] != 0))
    (ours, seen), (theirs, visible) = tables
    if len(ours) != len(theirs):
        return ""
    rows = range(len(ours))
    if not all(np.array_equal(ours[row][seen[row]], theirs[row][visible[row]]) for row in rows):
        return ""
    moved = [row for row in rows if _start(seen[row]) != _start(visible[row])]
    if not moved:
        return ""
    sides = _side(seen, moved), _side(visible, moved)
    text = f"`{_IDS}` of `{mine.name}` are the same tokens, padded on "
    if sides[0] != sides[1]:
        return text + f"the {sides[0]} in mine and on the {sides[1]} in golden"
    return text + f"the {sides[0]} to another length"


def _start(seen: Array) -> int:
    return int(np.argmax(seen))


def _side(seen: Array, rows: Sequence[int]) -> str:
    return "left" if any(not seen[row][0] for row in rows) else "right"


def shows_places(values: RunValues, value: int, comparisons: Sequence[Comparison]) -> bool:
    """True for positions and masks, the values by which padding is seen first."""
    if values.is_index(value):  # truth values, too
        return True
    for index in values.evidence[value].failed:
        sides = comparisons[index].golden_summary, comparisons[index].my_summary
        if any(each is not None and each.min is not None and may_hide(each.min) for each in sides):
            return True
    return False


def one_sided_positions(golden: Operation, mine: Operation) -> str:
    """Which side alone is given positions, as a clause; empty if both are, or neither."""
    given = [named(each, f"{POSITIONS}_ids") for each in (golden, mine)]
    if (given[0] is None) == (given[1] is None):
        return ""
    whose, other = ("golden", "mine") if given[1] is None else ("mine", "golden")
    return f"`{POSITIONS}_ids` of `{mine.name}` are given only in {whose}, and {other} counts them"


def element(value: float) -> str:
    """An element of a tensor; a whole number, such as a token, with all of its digits."""
    is_whole = math.isfinite(value) and float(value).is_integer() and abs(value) < _MOST_WHOLE
    return str(int(value)) if is_whole else f"{value:.6g}"


def told_difference(item: Comparison) -> str:
    """``[0, 3] is 4 instead of 3``, mine first; empty where no element is known."""
    if item.worst is None or item.worst_values is None:
        return ""
    golden, mine = map(element, item.worst_values)
    return f"[{', '.join(map(str, item.worst))}] is {mine} instead of {golden}"


def other_frequencies(values: RunValues, value: int, item: Comparison) -> str:
    """What two tables of rotary frequencies are; empty where a value is none of them."""
    uses = values.flow.values[value].reads
    if values.producer(value) is not None or not uses or values.is_index(value):
        return ""
    operation = values.run.operations[uses[0].op]
    bases = theta(item)
    owner = values.run.operations[values.owner(uses[0].op)]
    path = f"{operation.name} {owner.type}".lower()
    shape = item.golden.shape if item.golden is not None else None
    if shape is None or sum(each > 1 for each in shape) != 1:
        return ""
    if not bases and not any(word in path for word in _ROTARY):
        return ""
    module = path_of(operation)
    text = f"the rotary frequencies of `{module}` are not those of golden"
    if told := told_difference(item):
        text += f", {told}"
    return f"{text}; {bases}" if bases else text


def theta(item: Comparison) -> str:
    """Of which numbers two tables of rotary frequencies are powers; empty where they are none."""
    if item.golden is None or item.mine is None:
        return ""
    bases = [
        _base(side, record.shape)
        for side, record in ((item.my_summary, item.mine), (item.golden_summary, item.golden))
    ]
    if None in bases:
        return ""
    return "they are powers of a rope theta of {} instead of {}".format(*bases)


def _base(known: SideSummary | None, shape: Sequence[int] | None) -> str | None:
    """The number of which rotary frequencies are powers; None where they are none, scaled ones say.

    Of ``n`` frequencies the last is the base to the power of ``-(n - 1) / n``; that they are all
    powers shows in their mean.
    """
    axes = [each for each in shape or () if each > 1]
    count = axes[0] if len(axes) == 1 else 0
    if known is None or count < 2 or known.max != 1 or not known.min or known.mean is None:
        return None
    if known.min <= 0:
        return None
    base = known.min ** (-count / (count - 1))
    mean = sum(base ** (-place / count) for place in range(count)) / count
    return f"{base:.6g}" if abs(mean / known.mean - 1) < _SAME_MEAN else None


def outermost(
    values: RunValues, counterparts: Mapping[int, Operation]
) -> tuple[int, Operation] | None:
    """The whole program and golden's; None where it was not captured."""
    for op, parent in enumerate(values.flow.parents):
        golden = counterparts.get(op)
        if parent is None and golden is not None and values.members(op):
            return op, golden
    return None
