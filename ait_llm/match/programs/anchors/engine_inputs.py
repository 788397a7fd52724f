"""Which FX tensor is which input of the engine's graph: weights, token ids, caches.

An FX dump has no files of the graph's inputs. They are the arguments of nodes that no node
computed, found by equal content. Where the values differ, or the node that read them in this form
was not dumped, the operators that read an input say which argument of which node it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ait_llm.dumps.model import Tensor
from ait_llm.match.programs.anchors.node_tensors import (
    Located,
    NodeTensors,
    content,
    elements,
    same_kind,
)
from ait_llm.match.views import Reorder, Reshape, View
from ait_llm.program.ge.claims import Turn, readings
from ait_llm.program.ge.fusion import Fusion
from ait_llm.program.ge.graph import INPUTS, TensorId, source_of
from ait_llm.topology.ge_graph import GeOp

# Which argument of an FX node an input of an operator is, by the definition of both. Converters
# reorder arguments, so only operators and nodes that are known to read the same values are listed.
# Source: the converters of torchair; checked on recorded dumps.
_BOTH: Mapping[int, int] = {0: 0, 1: 1}
_FIRST: Mapping[int, int] = {0: 0}
_BIASED: Mapping[int, int] = {0: 1, 1: 2, 2: 0}  # the node is called with the bias first
_PRODUCTS = ("MatMul", "MatMulV2", "MatMulV3", "BatchMatMul", "BatchMatMulV2")
_PAIRS = (
    *(("Add", "add"), ("Sub", "sub"), ("Mul", "mul"), ("RealDiv", "div"), ("Div", "div")),
    *(("Pow", "pow"), ("Maximum", "maximum"), ("Minimum", "minimum"), ("GatherV2", "embedding")),
)
# operator type and node, input of the operator to argument of the node
_ARGUMENTS: Mapping[tuple[str, str], Mapping[int, int]] = {
    **dict.fromkeys(_PAIRS, _BOTH),
    **dict.fromkeys(((kind, node) for kind in _PRODUCTS for node in ("mm", "bmm")), _BOTH),
    **dict.fromkeys(((kind, "addmm") for kind in _PRODUCTS), _BIASED),
    **dict.fromkeys((("Cast", "_to_copy"), ("Cast", "convert_element_type")), _FIRST),
    **dict.fromkeys((("Transpose", node) for node in ("t", "transpose", "permute")), _FIRST),
    ("ReduceMean", "mean"): _FIRST,
    ("Rsqrt", "rsqrt"): _FIRST,
    ("SoftmaxV2", "_softmax"): _FIRST,
}
_TURNED = ("transpose_x1", "adj_x1"), ("transpose_x2", "adj_x2")


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


def find_graph_inputs(fusion: Fusion, nodes: NodeTensors) -> Mapping[TensorId, GraphInput]:
    """Find the inputs of the graph that dumped operators read.

    Args:
        fusion: what the operators are.
        nodes: the other side.
    """
    samples: dict[TensorId, Tensor] = {}
    for _, tensor, meaning in fusion.tensors():
        if tensor.role == "in" and meaning is not None:
            source = source_of(fusion.graph, meaning, fusion.owners)
            if fusion.graph.type_of(source) in INPUTS:
                samples.setdefault(source, tensor)
    found: dict[TensorId, GraphInput] = {}
    for source, sample in samples.items():
        mark = content(sample)
        members = nodes.by_content.get(mark, ()) if mark is not None else ()
        known = (
            GraphInput(members[0], True) if members else _by_reader(fusion, nodes, source, sample)
        )
        if known is not None:
            found[source] = known
    return found


def _by_reader(
    fusion: Fusion, nodes: NodeTensors, tensor: TensorId, sample: Tensor
) -> GraphInput | None:
    """The argument that an input of the graph is; None where no definition tells.

    An operator and the FX node that it computes read the same values, argument by argument.
    """
    for reader, place, turns in readings(fusion, tensor, sample):
        for node in fusion.graph.nodes_of(reader):
            located = _argument(nodes, node, reader, place)
            if located is None or elements(located[1]) != elements(sample):
                continue
            if same_kind(located[1], sample):
                return _found(fusion, nodes, located, turns, reader.inputs[place])
    return None


def _found(
    fusion: Fusion,
    nodes: NodeTensors,
    located: Located,
    turns: tuple[Turn, ...],
    read: TensorId,
) -> GraphInput:
    mark = content(located[1])
    files = fusion.files.get(read, ()) if mark is not None else ()
    identical = any(content(tensor) == mark for _, tensor in files)
    for owner, tensor in nodes.equals(located):  # what a node that reorders axes made it from
        turned = nodes.turned(owner) if tensor.role == "out" else None
        if turned is not None:
            views = (Reorder(turned[1]), *views_of(turns))
            return GraphInput((owner, turned[0]), identical, views)
    return GraphInput(located, identical, views_of(turns))


def views_of(turns: Iterable[Turn]) -> tuple[View, ...]:
    """Changes of order as views."""
    return tuple(view for dims, axes in turns for view in (Reshape(dims), Reorder(axes)))


def _argument(nodes: NodeTensors, node: str, reader: GeOp, place: int) -> Located | None:
    """What an operator reads in a place, as an argument of the node that it computes."""
    owner = nodes.by_node.get(node)
    if owner is None:
        return None
    parts = owner.operation.type.split(".")
    target = parts[1] if len(parts) > 1 else parts[0]
    slot = reader.slots[place] if place < len(reader.slots) else place
    if (reader.type, target) == ("ConcatV2", "cat"):  # whose last input is the axis
        return nodes.argument(node, 0, slot) if slot < len(reader.inputs) - 1 else None
    number = _ARGUMENTS.get((reader.type, target), {}).get(slot)
    names = _TURNED[slot] if reader.type in _PRODUCTS and slot < len(_TURNED) else ()
    if number is None or any(reader.attrs.get(name) for name in names):  # reads it by columns
        return None
    return nodes.argument(node, number)
