"""The order in which one operation lays out the tokens of all its experts.

They are sorted by expert; sorting need not keep the order of the tokens of one expert. The weights
of the same program tell: a few columns of what each token gives are computed again.
"""

from __future__ import annotations

import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.program.describe import is_float, shape_of, size_of
from ait_llm.program.program import Program
from ait_llm.program.roles import Role

_MOST = 1 << 27  # elements of the weights of all experts
_COLUMNS = 8
_ROUNDING = 0.05  # of the largest number: products of bfloat16, and far from other tokens


def sorted_rows(
    side: Program, op: int, hidden: Tensor | None, choice: Array
) -> list[tuple[int, int]] | None:
    """Expert and token of each row that experts in one operation compute.

    Args:
        side: the program.
        op: the operation of all experts.
        hidden: the rows that it reads.
        choice: experts of each row.

    Returns:
        None if weights do not confirm an order.
    """
    activated = [
        tensor
        for member in side.within(op)
        if side.roles[member] is Role.ACTIVATION
        for tensor in side.operations[member].inputs
        if is_float(tensor)
    ]
    if hidden is None or len(activated) != 1 or shape_of(activated[0]) is None:
        return None
    arrays = _array(hidden), _array(activated[0])
    if arrays[0] is None or arrays[1] is None or arrays[1].shape[0] != choice.size:
        return None
    rows = arrays[0].reshape(-1, arrays[0].shape[-1])
    for parameter in side.parameters_of(op):
        found = _order(_array(parameter.tensor), rows, arrays[1], choice)
        if found is not None:
            return found
    return None


def _array(tensor: Tensor) -> Array | None:
    try:
        if not tensor.has_data or size_of(tensor) > _MOST:
            return None
        return np.asarray(tensor.nd())
    except AitError:
        return None


def _order(
    weight: Array | None, rows: Array, activated: Array, choice: Array
) -> list[tuple[int, int]] | None:
    """The order if ``weight`` is of the first product, ``[experts, out, in]`` or transposed."""
    if weight is None or weight.ndim != 3 or int(choice.max()) >= weight.shape[0]:
        return None
    if weight.shape[2] != rows.shape[1]:
        weight = weight.transpose(0, 2, 1)
    if weight.shape[2] != rows.shape[1] or weight.shape[1] < activated.shape[1]:
        return None
    columns = min(_COLUMNS, activated.shape[1])
    found: list[tuple[int, int]] = []
    for expert in np.unique(choice).tolist():
        tokens = np.flatnonzero((choice == expert).any(axis=1))
        kernel = weight[expert, :columns].astype(np.float64)
        computed = rows[tokens].astype(np.float64) @ kernel.T
        there = activated[len(found) : len(found) + len(tokens), :columns].astype(np.float64)
        places = _assigned(there, computed)
        if places is None:
            return None
        found += [(int(expert), int(tokens[place])) for place in places]
    return found


def _assigned(there: Array, computed: Array) -> list[int] | None:
    """For each row the computed one that it is; None unless that is plain and uses each once."""
    limit = _ROUNDING * float(np.abs(computed).max(initial=0))
    free = list(range(len(computed)))
    found = []
    for row in there:
        distances = np.abs(computed[free] - row).max(axis=1)
        nearest, *others = np.argsort(distances)[:2].tolist()
        if not distances[nearest] <= limit:
            return None
        for other in others:  # padding is equal throughout, and any of it will do
            same = np.array_equal(computed[free[nearest]], computed[free[other]])
            if not same and distances[other] <= 2 * distances[nearest]:
                return None
        found.append(free.pop(nearest))
    return found
