"""How coarsely what a tensor was computed from had been rounded.

A value that was rounded to float16 and widened again carries the error of float16, whatever its own
type. Two right runs differ by that much, so it decides how far a tensor may be off.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ait_llm.core import DType
from ait_llm.dumps.model import Tensor
from ait_llm.errors import FormatError
from ait_llm.match.by_fusion.fusion import Fusion
from ait_llm.match.by_fusion.graph import CONSTANTS, INPUTS, TensorId
from ait_llm.match.operators import Placed
from ait_llm.metrics.precision import coarser


def roundings(
    operations: Sequence[Placed], fusion: Fusion, exact: Collection[TensorId]
) -> Mapping[TensorId, DType]:
    """The coarsest float type that each tensor of the graph went through, where any is known.

    Args:
        operations: of one execution.
        fusion: what they are.
        exact: inputs of the graph that are equal on both sides; all others carry their own type.
    """
    types = _types(operations, fusion)
    found: dict[TensorId, DType] = {}
    for op in fusion.graph.graph.ops:
        if op.type in CONSTANTS:
            continue
        before: DType | None = None
        for tensor in op.inputs:
            before = coarsest(before, found.get(tensor))
        for index in range(max(1, len(op.outputs))):
            tensor = (op.name, index)
            if op.type in INPUTS and tensor in exact:
                continue
            own = types.get(tensor)
            if own is not None and not own.is_floating:
                continue
            rounded = coarsest(before, own)
            if rounded is not None:
                found[tensor] = rounded
    return found


def coarsest(first: DType | None, second: DType | None) -> DType | None:
    """The coarser of two float types, or the one that is known."""
    if first is None or second is None:
        return first or second
    return coarser(first, second)


def _types(operations: Sequence[Placed], fusion: Fusion) -> dict[TensorId, DType]:
    """Element types, from the files."""
    found: dict[TensorId, DType] = {}
    for each, decoded in zip(operations, fusion.decoded, strict=True):
        for dumped in each.operation.outputs:
            tensor = decoded.outputs[dumped.index]
            if tensor is not None:
                _put(found, tensor, dumped)
        for dumped in each.operation.inputs:
            slot = decoded.inputs[dumped.index]
            if slot is not None:
                _put(found, slot.tensor, dumped)
    return found


def _put(found: dict[TensorId, DType], tensor: TensorId, dumped: Tensor) -> None:
    try:
        found.setdefault(tensor, dumped.dtype)
    except FormatError:
        return  # whoever compares it says what is wrong with the file
