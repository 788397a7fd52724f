"""What the programs were given and do not share: token ids, positions, masks of padding.

They are compared as they were handed to the outermost module or graph. The matcher aligns tokens by
them, so that a token that one mask hides is no pair at all: rows that a wrong mask hides would
never be missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ait_llm.compare.origin_values import RunValues
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.formats.elements import Array
from ait_llm.match.left_out import kept_rows
from ait_llm.program.checks import is_check
from ait_llm.program.describe import integers
from ait_llm.program.one_pass import LeftOut
from ait_llm.program.roles_fx import is_view

_TOLD = 3  # places
_MATRIX = 2
_MOST = 1 << 22  # elements


@dataclass(frozen=True, slots=True)
class OtherInput:
    """Whole numbers or truth values that my program was given and golden's was not.

    Attributes:
        op: index of the outermost operation that reads them.
        tensor: mine.
        text: how they differ, as a clause.
    """

    op: int
    tensor: Tensor
    text: str


def other_input(values: RunValues, counterparts: Mapping[int, Operation]) -> OtherInput | None:
    """The first input of the program that is another one, if only one sort of them is.

    Ids and masks that both differ may be one prompt, padded on the other side.

    Args:
        values: of my run.
        counterparts: golden operations by index of mine.
    """
    found = []
    for op, parent in enumerate(values.flow.parents):
        golden = counterparts.get(op) if parent is None else None
        if golden is None or is_check(values.flow, op):
            continue
        theirs = {_name(tensor): tensor for tensor in golden.inputs}
        for tensor in values.run.operations[op].inputs:
            value = values.flow.at(op, "in", tensor.index)
            other = theirs.get(_name(tensor))
            if other is None or value is None or values.producer(value.number) is not None:
                continue
            if tensor.index and _is_of_shape(values.run.operations[op]):
                continue  # sizes, which two graphs may tell in other words
            name = values.run.operations[op].name
            text = _difference(name, tensor, other, values.run.left_out)
            if text:
                found.append(OtherInput(op, tensor, text))
    if len({_is_mask(each.tensor) for each in found}) > 1:
        return None
    return found[0] if found else None


def _is_of_shape(operation: Operation) -> bool:
    return is_view(operation.type) or ".reshape" in operation.type.lower()


def _difference(op: str, mine: Tensor, golden: Tensor, left_out: LeftOut | None) -> str:
    """How two tensors of whole numbers differ; empty if they do not, or cannot be held together."""
    ours, theirs = integers(mine, _MOST), integers(golden, _MOST)
    if ours is None or theirs is None or ours.shape != theirs.shape or not ours.size:
        return ""
    if not ours.ndim:  # the axis of a node in a graph, say, which may be counted from behind
        return ""
    if left_out is not None:  # requests that chose other tokens were given nothing else
        if not kept_rows(ours.shape, left_out):
            return ""
        ours = ours.copy()
        rows = ours.reshape(left_out.count, -1)
        others = sorted(left_out.requests)
        rows[others] = theirs.reshape(left_out.count, -1)[others]
    title = f"`{_name(mine)}` of `{op}`"
    if _is_mask(mine):
        return _hidden(title, ours == 0, theirs == 0)
    places = np.argwhere(ours != theirs)
    if not len(places):
        return ""
    if ours.ndim == _MATRIX and (order := _order(ours, theirs)):
        return f"{title} are those of golden in another order of requests: {', '.join(order)}"
    first = tuple(places[0])
    text = f"{title} differ at {_place(ours, first)}: {ours[first]} instead of {theirs[first]}"
    return f"{text}, and at {len(places) - 1} more" if len(places) > 1 else text


def _order(ours: Array, theirs: Array) -> list[str]:
    """Golden's row of each of mine, if both have the same rows of several tokens."""
    rows = [row.tobytes() for row in theirs]
    mine = [row.tobytes() for row in ours]
    if ours.shape[1] < _TOLD or len(set(rows)) < len(rows) or sorted(mine) != sorted(rows):
        return []
    return [str(rows.index(each)) for each in mine]


def _hidden(title: str, ours: Array, theirs: Array) -> str:
    """Which places only one of two masks hides."""
    parts = []
    for here, side in ((ours & ~theirs, "mine"), (theirs & ~ours, "golden")):
        places = np.argwhere(here)
        if len(places):
            told = ", ".join(_place(ours, tuple(each)) for each in places[:_TOLD])
            more = f" and {len(places) - _TOLD} more" if len(places) > _TOLD else ""
            parts.append(f"{told}{more} only in {side}")
    return f"{title} hides {' and '.join(parts)}" if parts else ""


def _place(array: Array, place: tuple[int, ...]) -> str:
    """``position 3`` of a single row; all indices of several."""
    if array.size == array.shape[-1]:
        return f"position {place[-1]}"
    return f"position [{', '.join(map(str, place))}]"


def _is_mask(tensor: Tensor) -> bool:
    return "mask" in _name(tensor).lower()


def _name(tensor: Tensor) -> str:
    """What the operation calls it; its place where it has no name."""
    label = tensor.ir_name or ""
    return label if label and not label.isdigit() else tensor.name
