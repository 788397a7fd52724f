"""Operators of the graph engine that write values into a tensor, caches of keys above all.

They write to the memory of their first input, which a dump holds as it was left: what was written
is there all the same, so that it can be judged; the rest is what it is. Source: the prototypes of
CANN (``REG_OP``).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ait_llm.opcheck.golden.base import UnverifiableError
from ait_llm.opcheck.golden.engine.table import Compute, Part, engine_op, integers, plain

WRITING = frozenset({"Scatter", "ScatterUpdate", "ScatterNdUpdate", "TensorScatterUpdate"})
"""Types that make the same once more where they are run on what they left."""


@engine_op("Scatter", attributes=True)
def _from_places(part: Part) -> Compute | None:
    """Updates of each row of the first axis, from a place on of another axis.

    Places are ``[rows]``, or ``[rows, 2]`` where they also say which row of the tensor it is.
    """
    axis = part.axis("axis", -1)
    if axis is None or part.attr("reduce") not in ("update", "none"):
        return None

    def compute(x: Tensor, places: Tensor, updates: Tensor) -> Tensor:
        dim = axis % x.dim()
        rows = places.reshape(len(updates), -1)
        if rows.shape[1] > 2 or dim == 0:
            raise UnverifiableError("where it writes is not defined here")
        found = x.clone()
        length = updates.shape[dim]
        starts = [
            (at, *row) if len(row) == 1 else tuple(row) for at, row in enumerate(rows.tolist())
        ]
        if len(set(starts)) < len(starts) or not all(
            0 <= row < len(x) and 0 <= start <= x.shape[dim] - length for row, start in starts
        ):
            raise UnverifiableError("it writes outside of its tensor, or twice to one place")
        for update, (row, start) in zip(updates, starts, strict=True):
            found[row].narrow(dim - 1, start, length).copy_(update)
        return found

    return compute


def _rows(x: Tensor, places: Tensor, updates: Tensor) -> Tensor:
    """Whole rows of the first axis."""
    numbers = integers(places)
    _refuse_twice(numbers)
    found = x.clone()
    found[torch.tensor(numbers, dtype=torch.int64)] = updates.reshape(-1, *x.shape[1:])
    return found


def _elements(x: Tensor, places: Tensor, updates: Tensor) -> Tensor:
    """What lies behind the indices of the first axes, ``[..., axes]``."""
    numbers = places.reshape(-1, places.shape[-1]).long()
    _refuse_twice([tuple(row) for row in numbers.tolist()])
    found = x.clone()
    found[tuple(numbers.T)] = updates.reshape(-1, *x.shape[places.shape[-1] :])
    return found


def _refuse_twice(places: list[int] | list[tuple[int, ...]]) -> None:
    if len(set(places)) < len(places):
        raise UnverifiableError("it writes twice to one place, in any order")


engine_op("ScatterUpdate")(plain(_rows))
engine_op("ScatterNdUpdate", "TensorScatterUpdate")(plain(_elements))
