"""The nodes of a graph that other programs may be made of, too, as one pass has them.

Two captures of one graph, node by node or kernel by kernel, call its nodes alike; two captures of
API calls number the same calls alike. Whether they do is for the matcher to find out: what a node
computes and what wrote its arguments is said here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ait_llm.dumps.fx_kernels import KernelBuffer, NodeValue
from ait_llm.dumps.fx_nodes import GraphNode
from ait_llm.dumps.model import GraphRun, Operation, Tensor
from ait_llm.program.describe import params_of, shape_of
from ait_llm.program.flow import Flow
from ait_llm.program.one_pass import Pass

Made = tuple[str, int]
"""A node, and which of its results."""
Shape = tuple[int, ...]
_NUMBERED = re.compile(r"(.+?)[._]([0-9]{1,9})(\.[a-z]+)?")  # mul_3, or Functional.linear.3.forward


@dataclass(frozen=True, slots=True)
class CommonNode:
    """A node of the graph.

    Attributes:
        kind: what it computes, in the words of the capture.
        reads: for each tensor that it reads the node that made it, and which of its results; None
            for one from outside, or of which nobody knows.
        definition: its other arguments.
        takes, gives: shapes of the tensors that it reads and makes, as far as they are known.
        op: the operation of the pass that is this node; None for one that lies within another.
        is_part: it is a part of what other programs compute in one node.
    """

    kind: str
    reads: tuple[Made | None, ...]
    definition: Mapping[str, Any] = field(default_factory=dict)
    takes: tuple[Shape | None, ...] = ()
    gives: tuple[Shape | None, ...] = ()
    op: int | None = None
    is_part: bool = False


def nodes_of_flow(
    run: Pass, flow: Flow, kind_of: Callable[[Operation], str]
) -> dict[str, CommonNode]:
    """Operations by their names, with the writers that the values of the pass show."""
    names = _names(run)
    return {
        name: CommonNode(
            kind_of(operation),
            tuple(_writer(flow, names, op, tensor) for tensor in operation.inputs),
            params_of(operation),
            tuple(map(shape_of, operation.inputs)),
            tuple(map(shape_of, operation.outputs)),
            op,
        )
        for op, (name, operation) in enumerate(zip(names, run.operations, strict=True))
    }


def _names(run: Pass) -> list[str]:
    """Names of operations; what has the name of an earlier one is numbered."""
    found: list[str] = []
    seen: Counter[str] = Counter()
    for operation in run.operations:
        name = operation.record_name or operation.name
        found.append(f"{name}#{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def _writer(flow: Flow, names: list[str], op: int, tensor: Tensor) -> Made | None:
    value = flow.at(op, "in", tensor.index)
    writes = value.writes if value is not None else []
    if not writes or writes[0].op >= op:
        return None
    return names[writes[0].op], writes[0].tensor.index


def nodes_of_graph(run: Pass) -> dict[str, CommonNode]:
    """The nodes of the graph that was compiled, as its capture wrote it down; empty if it did not.

    That of a dump of kernels has nodes that no operation is. A pass of several graphs has none:
    each of them calls its nodes as it likes.
    """
    graphs = graphs_of(run)
    graph = graphs[0].nodes if len(graphs) == 1 else {}
    ops = {each.name: op for op, each in enumerate(run.operations) if each.launch is None}
    return {
        name: CommonNode(
            node.target,
            tuple(each if each[0] in graph else None for each in node.reads),
            node.definition,
            tuple(_shape(graph, made) for made in node.reads),
            node.shapes,
            ops.get(name),
        )
        for name, node in graph.items()
    }


def graphs_of(run: Pass) -> list[GraphRun]:
    """The executions of compiled graphs that a pass consists of, in their order."""
    found = {id(each.run): each.run for each in run.operations if each.run is not None}
    return list(found.values())


def is_filtered(nodes: Mapping[str, CommonNode]) -> bool:
    """True if a filter left nodes of the graph out of the dump.

    Where nothing tells the graph, the numbers in names do: those of most kinds have gaps. Of sums
    and products a compiler drops some itself, as they count symbolic sizes.
    """
    if any(node.op is None for node in nodes.values()):
        return True
    numbers: dict[str, set[int]] = {}
    for name in nodes:
        match = _NUMBERED.fullmatch(name)
        stem, number = (match[1] + (match[3] or ""), int(match[2])) if match else (name, 0)
        numbers.setdefault(stem, set()).add(number)
    gaps = [len(found) <= max(found) for found in numbers.values()]
    return 2 * sum(gaps) > len(gaps)


def _shape(graph: Mapping[str, GraphNode], made: Made) -> Shape | None:
    shapes = graph[made[0]].shapes if made[0] in graph else ()
    return shapes[made[1]] if made[1] < len(shapes) else None


def buffer_of(operation: Operation, tensor: Tensor) -> KernelBuffer | None:
    """The buffer that a tensor of a kernel is; None for other operations."""
    if operation.launch is None:
        return None
    buffers = operation.launch.inputs if tensor.role == "in" else operation.launch.outputs
    return buffers[tensor.position] if tensor.position < len(buffers) else None


def value_of(operation: Operation, tensor: Tensor) -> NodeValue | None:
    """The tensor of the graph that a tensor is compared as.

    None for what only kernels know, and for what was looked at where it was stored.
    """
    if operation.launch is None:
        return NodeValue(operation.name, tensor.role, tensor.position)
    buffer = buffer_of(operation, tensor)
    value = None if buffer is None else buffer.value
    return None if value is not None and tensor.role == "in" and value.role == "out" else value
