"""Kernels of a compiled graph as a program.

Its calls are the nodes of the graph before compilation, which the capture wrote down: a kernel is
as clear as the nodes that it fused. Values that no kernel stores are nobody's tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ait_llm.dumps.fx_kernels import NodeValue
from ait_llm.dumps.fx_nodes import GraphNode
from ait_llm.program.calls import Call, CallGraph
from ait_llm.program.common_nodes import CommonNode, nodes_of_graph, value_of
from ait_llm.program.describe import shape_of
from ait_llm.program.flow import Flow
from ait_llm.program.one_pass import Pass
from ait_llm.program.operator_program import OperatorProgram
from ait_llm.program.roles_fx import kind_of


def program_of_kernels(run: Pass) -> OperatorProgram:
    """A pass of kind ``fx`` whose operations are launches of kernels."""
    return OperatorProgram(run, _calls, _nodes)


def is_compiled(run: Pass) -> bool:
    """True for a pass of kernels."""
    return any(operation.launch is not None for operation in run.operations)


def _nodes(run: Pass, flow: Flow) -> dict[str, CommonNode]:
    return nodes_of_graph(run)


def _calls(run: Pass, flow: Flow) -> tuple[CallGraph, Sequence[int | None]]:
    values = _Values(run, flow)
    graph = values.graph
    calls = [values.call(name, node) for name, node in graph.items()]
    return CallGraph(calls, values.shapes), [values.places.get(name) for name in graph]


class _Values:
    """Numbers of the tensors of the graph: those of the flow where a kernel holds them.

    Attributes:
        graph: the nodes.
        places: the launch that stores a node, or in which it lies.
        shapes: dims by number.
    """

    def __init__(self, run: Pass, flow: Flow) -> None:
        self.graph: Mapping[str, GraphNode] = next(
            (each.run.nodes for each in run.operations if each.run is not None), {}
        )
        self.places: dict[str, int] = {}
        self.shapes: dict[int, tuple[int, ...]] = {}
        self._numbers: dict[tuple[str, int], int] = {}
        self._next = len(flow.values)
        for op, operation in enumerate(run.operations):
            for tensor in operation.tensors:
                value, meaning = (
                    flow.at(op, tensor.role, tensor.index),
                    value_of(operation, tensor),
                )
                made = None if meaning is None else self._made(meaning)
                shape = shape_of(tensor)
                if value is None or made is None:
                    continue
                self._numbers.setdefault(made, value.number)
                if shape is not None:
                    self.shapes.setdefault(value.number, shape)
            self._note_places(op, run)

    def _made(self, value: NodeValue) -> tuple[str, int] | None:
        """What a buffer holds: a result of a node, or the input of the graph that one reads."""
        if value.role == "out":
            return value.node, value.index
        node = self.graph.get(value.node)
        if node is None or value.index not in node.places:
            return None
        return node.reads[node.places.index(value.index)]

    def _note_places(self, op: int, run: Pass) -> None:
        launch = run.operations[op].launch
        if launch is None:
            return
        for buffer in launch.outputs:
            for name in (*buffer.covers, *((buffer.value.node,) if buffer.value else ())):
                self.places[name] = op
        for name in launch.source:
            self.places.setdefault(name, op)

    def _number(self, made: tuple[str, int]) -> int:
        if made not in self._numbers:
            self._numbers[made] = self._next
            self._next += 1
        return self._numbers[made]

    def call(self, name: str, node: GraphNode) -> Call:
        """A node as a call."""
        inputs = tuple(map(self._number, node.reads))
        outputs = tuple(self._number((name, index)) for index in range(len(node.shapes)))
        for number, shape in zip(outputs, node.shapes, strict=True):
            if shape is not None:
                self.shapes.setdefault(number, shape)
        numbers = (each for each in node.definition.values() if type(each) in (int, float))
        return Call(kind_of(node.target), inputs, outputs, tuple(map(float, numbers)))
