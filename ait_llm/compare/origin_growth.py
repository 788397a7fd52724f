"""Where the error of a run grows suddenly although every comparison passes.

The tolerance of a comparison allows for the error of many layers. In the first layers much of it is
still unused, and an operation may be wrong without exceeding it. Where the error of a tensor is a
multiple of all errors before it, the operations in between are worth recomputing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ait_llm.compare.origin_values import DISTANCE, operation_key, record_key
from ait_llm.core import DType
from ait_llm.core.comparison import Comparison
from ait_llm.match.model import Run

# Twice the error of all tensors before, and of one rounding of each side.
_FACTOR = 2.0
_ROUNDING = {DType.FLOAT16: 2.0**-11, DType.BFLOAT16: 2.0**-8}
_FLOAT32_SUMS = 2.0**-20


def sudden_growth(
    run: Run, comparisons: Sequence[Comparison], indices: Sequence[int]
) -> Iterator[int]:
    """Comparisons of a run at which the error grows suddenly, in execution order.

    Args:
        run: my run.
        comparisons: all of the report, in execution order of my side.
        indices: those of the run.
    """
    # A graph is listed before its members, with the error that they end with.
    graphs = {operation_key(each) for each in run.operations if each.is_graph}
    largest = 0.0
    for index in indices:
        item = comparisons[index]
        if item.mine is None or item.golden is None or record_key(item.mine) in graphs:
            continue
        error = item.values.get(DISTANCE)
        if error is None:
            continue
        roundings = [
            _ROUNDING.get(record.dtype, _FLOAT32_SUMS) if record.dtype else _FLOAT32_SUMS
            for record in (item.golden, item.mine)
        ]
        if error > _FACTOR * max(largest, *roundings):
            yield index
        largest = max(largest, error)
