"""How much of an output's error came in with the operation's inputs.

Inherited is the largest relative Euclidean distance of the operation's compared inputs, introduced
is what is left of the output's. If both errors are independent of each other their squares add up,
so ``introduced = sqrt(max(0, output**2 - inherited**2))``. They often are not independent: an
operation may amplify or damp the error of its inputs. The numbers therefore order suspects; they
prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ait_llm.core.comparison import Comparison, TensorRecord

_DISTANCE = "relative_euclidean_distance"
OperationKey = tuple[int, int, int, str, int]


def operation_key(record: TensorRecord) -> OperationKey:
    """What the tensors of one execution of one operation have in common."""
    return record.device, record.pid, record.order, record.op, record.call


def split_error(items: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons of one operation of mine, its outputs with inherited and introduced error.

    Outputs stay as they are where no input was measured, or where they have no distance themselves.
    """
    distances = [
        item.values[_DISTANCE]
        for item in items
        if item.mine is not None and item.mine.role == "in" and _DISTANCE in item.values
    ]
    if not distances:
        return list(items)
    inherited = max(distances)
    return [_split(item, inherited) for item in items]


def _split(item: Comparison, inherited: float) -> Comparison:
    output = item.values.get(_DISTANCE)
    if output is None or item.mine is None or item.mine.role != "out":
        return item
    introduced = math.sqrt(max(0.0, output**2 - inherited**2))
    return replace(item, inherited=inherited, introduced=introduced)
