"""Which FX tensor is which input of the graph: weights, token ids, caches.

An FX dump has no files of the graph's inputs. They are the arguments of nodes that no node
computed, found by equal content. Where the values differ, or the node that read them in this form
was not dumped, the operators that read an input say which argument of which node it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ait_llm.dumps.model import Tensor
from ait_llm.errors import FormatError
from ait_llm.match.by_fusion.arguments import argument_of
from ait_llm.match.by_fusion.fusion import Fusion
from ait_llm.match.by_fusion.fx_tensors import (
    FxTensors,
    Located,
    content,
    elements,
    integers,
    same_kind,
    shape_of,
)
from ait_llm.match.by_fusion.graph import INPUTS, TensorId
from ait_llm.match.by_fusion.topology import ALIASES, source_of
from ait_llm.match.operators import Placed
from ait_llm.match.views import Reorder, Reshape, View, shape_after
from ait_llm.topology.ge_graph import GeOp

_FAR = 64  # tensors followed from an input to the operators that compute with it
TRANSPOSES = frozenset({"Transpose", "TransposeD"})
"""Operators that reorder axes by a list of numbers, their second input."""


@dataclass(frozen=True, slots=True)
class GraphInput:
    """The FX tensor that an input of the graph is.

    Attributes:
        located: an argument of an FX node that reads it.
        identical: it has the same values; else only the definition of the node says so.
        views: what brings the argument to the order of the input's elements.
    """

    located: Located
    identical: bool
    views: tuple[View, ...] = ()


def find_graph_inputs(
    operations: list[Placed], fusion: Fusion, fx: FxTensors
) -> Mapping[TensorId, GraphInput]:
    """Find the inputs of the graph that dumped operators read.

    Args:
        operations: of the graph engine.
        fusion: what they are.
        fx: the other side.
    """
    readers = _Readers(operations, fusion, fx)
    found: dict[TensorId, GraphInput] = {}
    for tensor, sample in _dumped(operations, fusion).items():
        mark = content(sample)
        members = fx.by_content.get(mark, ()) if mark is not None else ()
        if members:
            found[tensor] = GraphInput(members[0], identical=True)
            continue
        known = readers.find(tensor, sample)
        if known is not None:
            found[tensor] = known
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


class _Readers:
    """Inputs of the graph by what reads them.

    An operator and the FX node that it computes read the same values, argument by argument, by the
    definition of both. On the way there a tensor may only change its order, by known axes.
    """

    def __init__(self, operations: list[Placed], fusion: Fusion, fx: FxTensors) -> None:
        self._operations = operations
        self._fusion = fusion
        self._fx = fx
        self._files: dict[TensorId, list[Tensor]] = {}
        for each, decoded in zip(operations, fusion.decoded, strict=True):
            for tensor in each.operation.tensors:
                slot = decoded.inputs[tensor.index] if tensor.role == "in" else None
                meaning = slot.tensor if slot is not None else None
                if tensor.role == "out":
                    meaning = decoded.outputs[tensor.index]
                if meaning is not None:
                    self._files.setdefault(meaning, []).append(tensor)

    def find(self, tensor: TensorId, sample: Tensor) -> GraphInput | None:
        """The argument that an input of the graph is; None where no definition tells."""
        for reader, place, back in self._paths(tensor, sample):
            for node in self._fusion.graph.nodes_of(reader):
                located = self._argument(node, reader, place)
                if located is None or elements(located[1]) != elements(sample):
                    continue
                if same_kind(located[1], sample):
                    return self._found(located, back, reader.inputs[place])
        return None

    def _found(self, located: Located, back: tuple[View, ...], read: TensorId) -> GraphInput | None:
        mark = content(located[1])
        files = self._files.get(read, ()) if mark is not None else ()
        identical = any(content(tensor) == mark for tensor in files)
        before = self._before(located)
        if before is not None:
            located, back = before[0], (before[1], *back)
        shape = shape_of(located[1])
        return None if shape is None else GraphInput(located, identical, shortened(shape, back))

    def _before(self, located: Located) -> tuple[Located, Reorder] | None:
        """What a node that only reorders axes made an argument from."""
        for owner, tensor in self._fx.equals(located):
            turned = self._fx.turned(owner) if tensor.role == "out" else None
            if turned is not None:
                return (owner, turned[0]), Reorder(turned[1])
        return None

    def _argument(self, node: str, reader: GeOp, place: int) -> Located | None:
        owner = self._fx.by_node.get(node)
        if owner is None:
            return None
        number = argument_of(reader, place, owner.operation.type)
        return None if number is None else self._fx.argument(node, *number)

    def _paths(
        self, tensor: TensorId, sample: Tensor
    ) -> Iterator[tuple[GeOp, int, tuple[View, ...]]]:
        """Operators that read a tensor, which input it is, and the views back to the tensor."""
        waiting: list[tuple[TensorId, tuple[View, ...]]] = [(tensor, ())]
        seen = {tensor}
        while waiting and len(seen) < _FAR:
            current, back = waiting.pop(0)
            for reader in self._fusion.graph.consumers(current):
                for place, read in enumerate(reader.inputs):
                    if read == current:
                        yield reader, place, back
                after = (reader.name, 0)
                way = self._way_back(reader, current, sample)
                if way is not None and after not in seen:
                    seen.add(after)
                    waiting.append((after, (*way, *back)))

    def _way_back(self, reader: GeOp, read: TensorId, sample: Tensor) -> tuple[View, ...] | None:
        """Views from a result to what an operator made it from; None if it may change values."""
        if not reader.inputs or reader.inputs[0] != read:
            return None
        if reader.type in ALIASES:
            return ()
        if reader.type == "Cast":
            dtype = self._fusion.graph.dtype((reader.name, 0))
            try:
                keeps = dtype is not None and dtype.is_floating == sample.dtype.is_floating
            except FormatError:
                keeps = False
            return () if keeps else None
        order = transposition(reader, self._fusion, self._operations)
        if order is None:
            return None
        dims, axes = order
        back = tuple(axes.index(axis) for axis in range(len(axes)))
        return Reshape(tuple(dims[axis] for axis in axes)), Reorder(back), Reshape(dims)


def transposition(
    op: GeOp, fusion: Fusion, operations: list[Placed]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The dims that a transpose read and the order of axes that it made, from its own file.

    View optimisation joins reshapes and transposes, so that the FX array may have other dims.
    """
    place = fusion.owners.get(op.name)
    if op.type not in TRANSPOSES or place is None or fusion.decoded[place].is_fused:
        return None
    inputs = {tensor.index: tensor for tensor in operations[place].operation.inputs}
    dims = shape_of(inputs[0]) if 0 in inputs else None
    given = integers(inputs[1]) if 1 in inputs else None
    if not dims or given is None:
        return None
    axes = tuple(axis % len(dims) for axis in given)
    return (dims, axes) if sorted(axes) == list(range(len(dims))) else None


def shortened(shape: tuple[int, ...], views: tuple[View, ...]) -> tuple[View, ...]:
    """Views without those that leave a tensor of this shape as it is."""
    found: list[View] = []
    for view in views:
        before = found[-1] if found else None
        if isinstance(view, Reorder) and isinstance(before, Reorder):
            found[-1] = Reorder(tuple(before.axes[axis] for axis in view.axes))
        elif not isinstance(view, Reshape) or shape_after(shape, found) != view.shape:
            found.append(view)
        if isinstance(found[-1] if found else None, Reorder):
            last = found[-1]
            if isinstance(last, Reorder) and last.axes == tuple(range(len(last.axes))):
                found.pop()
    return tuple(found)
