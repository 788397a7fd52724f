"""Which FX tensor is which input of the graph: weights, token ids, caches.

An FX dump has no files of the graph's inputs. They are the arguments of nodes that no node
computed, found by equal content, or by the nodes that read them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from ait_llm.core import DType
from ait_llm.dumps.model import Tensor
from ait_llm.errors import FormatError
from ait_llm.match.by_fusion.fusion import Fusion
from ait_llm.match.by_fusion.fx_tensors import FxTensors, Located, content, elements
from ait_llm.match.by_fusion.graph import INPUTS, TensorId
from ait_llm.match.by_fusion.topology import source_of
from ait_llm.match.operators import Placed

_FAR = 64  # operators followed from an input to the nodes that read it


@dataclass(frozen=True, slots=True)
class GraphInput:
    """The FX tensor that an input of the graph is.

    Attributes:
        golden: an argument of the FX node that reads it first.
        identical: found by equal content; else by the nodes that read it.
    """

    located: Located
    identical: bool


def find_graph_inputs(
    operations: list[Placed], fusion: Fusion, fx: FxTensors
) -> Mapping[TensorId, GraphInput]:
    """Find the inputs of the graph that dumped operators read.

    Args:
        operations: of the graph engine.
        fusion: what they are.
        fx: the other side.
    """
    dumped = _dumped(operations, fusion)
    found: dict[TensorId, GraphInput] = {}
    taken: set[Hashable] = set()
    for tensor, sample in dumped.items():
        mark = content(sample)
        members = fx.by_content.get(mark, ()) if mark is not None else ()
        if mark is not None and members:
            found[tensor] = GraphInput(members[0], identical=True)
            taken.add(mark)
    left = {tensor: sample for tensor, sample in dumped.items() if tensor not in found}
    free = [(mark, each) for mark, each in fx.from_outside() if mark not in taken]
    if left and free:
        found |= _by_readers(left, free, fusion, fx)
    return found


def _dumped(operations: list[Placed], fusion: Fusion) -> dict[TensorId, Tensor]:
    """Inputs of the graph with the first tensor that an operator read of them."""
    found: dict[TensorId, Tensor] = {}
    for each, decoded in zip(operations, fusion.decoded, strict=True):
        for tensor in each.operation.inputs:
            slot = decoded.inputs[tensor.index]
            if slot is None:
                continue
            source = source_of(fusion.graph, slot.tensor, fusion.owners)
            if fusion.graph.type_of(source) in INPUTS:
                found.setdefault(source, tensor)
    return found


def _by_readers(
    left: Mapping[TensorId, Tensor],
    free: list[tuple[Hashable, Located]],
    fusion: Fusion,
    fx: FxTensors,
) -> dict[TensorId, GraphInput]:
    """Inputs that only one FX tensor of their size and type answers, by the nodes that read both.

    Two inputs never share a tensor: where they would, neither gets it.
    """
    readers = {mark: fx.readers(mark) for mark, _ in free}
    chosen: dict[TensorId, tuple[Hashable, Located]] = {}
    for tensor, sample in left.items():
        nodes = _nodes_after(tensor, fusion)
        fitting = [
            (mark, each)
            for mark, each in free
            if elements(each[1]) == elements(sample)
            and _is_floating(each[1]) == _is_floating(sample)
            and readers[mark] & nodes
        ]
        if len(fitting) == 1:
            chosen[tensor] = fitting[0]
    marks = [mark for mark, _ in chosen.values()]
    return {
        tensor: GraphInput(each, identical=False)
        for tensor, (mark, each) in chosen.items()
        if marks.count(mark) == 1
    }


def _nodes_after(tensor: TensorId, fusion: Fusion) -> frozenset[str]:
    """FX nodes that the operators reading a tensor belong to, through those without a name."""
    found: set[str] = set()
    waiting, seen = [tensor], {tensor}
    while waiting and len(seen) < _FAR:
        for reader in fusion.graph.consumers(waiting.pop()):
            named = [each.origin.node for each in reader.outputs if each.origin is not None]
            found.update(named)
            if named:
                continue
            for index in range(len(reader.outputs)):
                after = (reader.name, index)
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
    return frozenset(found)


def _is_floating(tensor: Tensor) -> bool | None:
    try:
        dtype: DType = tensor.dtype
    except FormatError:
        return None
    return dtype.is_floating
