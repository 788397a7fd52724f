"""Kernels of a compiled graph as a program.

Its calls are the nodes of the graph before compilation, which the capture wrote down: a kernel is
as clear as the nodes that it fused. Values that no kernel stores are nobody's tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ait_llm.dumps.fx_kernels import NodeValue
from ait_llm.dumps.fx_nodes import GraphNode
from ait_llm.program.calls import Call, CallGraph
from ait_llm.program.common_nodes import CommonNode, Made, graphs_of, nodes_of_graph, value_of
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
    calls = [values.call(each, node) for each, node in values.nodes.items()]
    return CallGraph(calls, values.shapes), [values.places.get(each) for each in values.nodes]


_Node = tuple[int, str]
"""A node, after the number of its graph within the pass."""


class _Values:
    """Numbers of the tensors of the graphs: those of the flow where a kernel holds them.

    Attributes:
        nodes: of one graph after the other.
        places: the launch that stores a node, or in which it lies.
        shapes: dims by number.
    """

    def __init__(self, run: Pass, flow: Flow) -> None:
        graphs = graphs_of(run)
        self.nodes: Mapping[_Node, GraphNode] = {
            (number, name): node
            for number, graph in enumerate(graphs)
            for name, node in graph.nodes.items()
        }
        self.places: dict[_Node, int] = {}
        self.shapes: dict[int, tuple[int, ...]] = {}
        self._graphs = {id(graph): number for number, graph in enumerate(graphs)}
        self._numbers: dict[tuple[int, Made], int] = {}
        self._next = len(flow.values)
        for op, operation in enumerate(run.operations):
            graph = self._graphs.get(id(operation.run), 0)
            for tensor in operation.tensors:
                value, meaning = (
                    flow.at(op, tensor.role, tensor.index),
                    value_of(operation, tensor),
                )
                made = None if meaning is None else self._made(graph, meaning)
                shape = shape_of(tensor)
                if value is None or made is None:
                    continue
                self._numbers.setdefault((graph, made), value.number)
                if shape is not None:
                    self.shapes.setdefault(value.number, shape)
            self._note_places(op, graph, run)

    def _made(self, graph: int, value: NodeValue) -> Made | None:
        """What a buffer holds: a result of a node, or the input of the graph that one reads."""
        if value.role == "out":
            return value.node, value.index
        node = self.nodes.get((graph, value.node))
        if node is None or value.index not in node.places:
            return None
        return node.reads[node.places.index(value.index)]

    def _note_places(self, op: int, graph: int, run: Pass) -> None:
        launch = run.operations[op].launch
        if launch is None:
            return
        for buffer in launch.outputs:
            for name in (*buffer.covers, *((buffer.value.node,) if buffer.value else ())):
                self.places[graph, name] = op
        for name in launch.source:
            self.places.setdefault((graph, name), op)

    def _number(self, graph: int, made: Made) -> int:
        if (graph, made) not in self._numbers:
            self._numbers[graph, made] = self._next
            self._next += 1
        return self._numbers[graph, made]

    def call(self, place: _Node, node: GraphNode) -> Call:
        """A node as a call."""
        graph, name = place
        inputs = tuple(self._number(graph, made) for made in node.reads)
        outputs = tuple(self._number(graph, (name, index)) for index in range(len(node.shapes)))
        for number, shape in zip(outputs, node.shapes, strict=True):
            if shape is not None:
                self.shapes.setdefault(number, shape)
        numbers = (each for each in node.definition.values() if type(each) in (int, float))
        return Call(kind_of(node.target), inputs, outputs, tuple(map(float, numbers)))
