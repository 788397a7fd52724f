"""How coarsely what a tensor was computed from had been rounded.

A value that was rounded to float16 and widened again carries the error of float16, whatever its own
type. Two right runs differ by that much, so it decides how far a tensor may be off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ait_llm.core import DType
from ait_llm.program.describe import dtype_of
from ait_llm.program.ge.fusion import Fusion
from ait_llm.program.ge.graph import CONSTANTS, INPUTS, TensorId
from ait_llm.program.lineage import coarsest


def roundings(fusion: Fusion, is_exact: Callable[[TensorId], bool]) -> Mapping[TensorId, DType]:
    """The coarsest float type that each tensor of the graph went through, where any is known.

    Args:
        fusion: one execution.
        is_exact: for inputs of the graph that are equal on both sides; others carry their own type.
    """
    found: dict[TensorId, DType] = {}
    for op in fusion.graph.graph.ops:
        if op.type in CONSTANTS:
            continue
        before: DType | None = None
        for tensor in op.inputs:
            before = coarsest(before, found.get(tensor))
        for index in range(max(1, len(op.outputs))):
            tensor = (op.name, index)
            if op.type in INPUTS and is_exact(tensor):
                continue
            own = _dtype(fusion, tensor)
            if own is not None and not own.is_floating:
                continue
            rounded = coarsest(before, own)
            if rounded is not None:
                found[tensor] = rounded
    return found


def _dtype(fusion: Fusion, tensor: TensorId) -> DType | None:
    """Element type, from the first file that can be read."""
    types = (dtype_of(dumped) for _, dumped in fusion.files.get(tensor, ()))
    return next(filter(None, types), None)
