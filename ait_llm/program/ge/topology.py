"""The topology of what was dumped: fused operators as nodes, their parts as children.

It says which tensors of a run are one value, so that the way back from a wrong one needs no
guesses: the graph knows who reads what.
"""

from __future__ import annotations

from collections.abc import Sequence

from ait_llm.dumps.model import Operation
from ait_llm.program.digests import digest
from ait_llm.program.ge.decoding import Decoded
from ait_llm.program.ge.fusion import Fusion
from ait_llm.program.ge.graph import TensorId, source_of
from ait_llm.topology import Graph, Node


def topology_of(fusion: Fusion) -> Graph:
    """The graph of one execution; tensors are called after the operator that computes them."""
    naming = _Naming(fusion)
    nodes = [naming.node(place) for place in range(len(fusion.operations))]
    graph = fusion.graph
    name = graph.graph.name or ("" if graph.number is None else f"graph_{graph.number}")
    root = Node(name, "", None, "", (), (), (), tuple(nodes))
    return Graph("model", root, source=fusion.graph.graph.source)


class _Naming:
    def __init__(self, fusion: Fusion) -> None:
        self._fusion = fusion
        self._looks = any(not each.is_known for each in fusion.decoded)
        self._written: dict[bytes, str] = {}
        self._by_unknown: dict[bytes, str] = {}

    def node(self, place: int) -> Node:
        operation, decoded = self._fusion.operations[place], self._fusion.decoded[place]
        slots = [slot.tensor if slot is not None else None for slot in decoded.inputs]
        inputs = self._names(operation, "in", slots)
        outputs = self._names(operation, "out", decoded.outputs)
        if self._looks:
            inputs = self._found_again(operation, decoded, inputs)
            self._remember(operation, decoded, outputs)
        return Node(
            operation.name, operation.type, None, {}, inputs, outputs, (), self._children(decoded)
        )

    def _names(
        self, operation: Operation, role: str, tensors: Sequence[TensorId | None]
    ) -> tuple[str, ...]:
        names = []
        for index, tensor in enumerate(tensors):
            if tensor is None:
                names.append(f"{role}tensor{index} of {operation.name}")
                continue
            if role == "in":
                tensor = source_of(self._fusion.graph, tensor, self._fusion.owners)
            names.append(_text(tensor))
        return tuple(names)

    def _children(self, decoded: Decoded) -> tuple[Node, ...]:
        if not decoded.is_fused:
            return ()
        found = []
        for name in decoded.parts:
            op = self._fusion.graph.graph.by_name[name]
            inputs = tuple(map(_text, op.inputs))
            outputs = tuple(_text((name, index)) for index in range(len(op.outputs)))
            found.append(Node(name, op.type, None, {}, inputs, outputs))
        return tuple(found)

    def _found_again(
        self, operation: Operation, decoded: Decoded, names: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Inputs by equal numbers where something stands between them and the graph's tensor."""
        found = list(names)
        for tensor in operation.inputs:
            if decoded.is_known and not self._by_unknown:
                break
            mark = digest(tensor)
            if mark is None:
                continue
            known = self._by_unknown if decoded.is_known else {**self._written, **self._by_unknown}
            own = self._written.get(mark)
            if mark in known and own != names[tensor.index]:
                found[tensor.index] = known[mark]
        return tuple(found)

    def _remember(self, operation: Operation, decoded: Decoded, names: tuple[str, ...]) -> None:
        for tensor in operation.outputs:
            mark = digest(tensor)
            if mark is not None:
                known = self._written if decoded.is_known else self._by_unknown
                known[mark] = names[tensor.index]


def _text(tensor: TensorId) -> str:
    return f"{tensor[0]}:{tensor[1]}"
