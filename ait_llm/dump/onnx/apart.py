"""Fused nodes that are told as the operators that they are made of.

``SkipLayerNormalization`` and ``SkipSimplifiedLayerNormalization`` of ONNX Runtime add a residual,
perhaps a bias before it, and normalise the sum, which is a result of theirs; ``BiasGelu`` and
``FastGelu`` add a bias first (``docs/ContribOperators.md`` of ONNX Runtime).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_NORMS = {
    "SkipLayerNormalization": "LayerNormalization",
    "SkipSimplifiedLayerNormalization": "SimplifiedLayerNormalization",
}
_ACTIVATIONS = {"BiasGelu": "Gelu", "FastGelu": "FastGelu"}
_RUNTIME = "com.microsoft"
_SUM = 3  # which result it is
_EPSILON = 1e-12  # of nodes that say none


def taken_apart(
    node: onnx.NodeProto, is_float32: Callable[[str], bool]
) -> Sequence[onnx.NodeProto]:
    """What a node of a graph computes, as nodes that say it one by one.

    Sums with a bias, which the node shows to nobody, are nodes that the graph does not have. Norms
    of 16 bits keep the sum: they normalise it as it was before it was rounded.

    Args:
        node: the sum of a norm becomes a result where it is none yet.
        is_float32: tells the values of the graph that are known to be of this type.

    Returns:
        The node alone where it is no such node.
    """
    if node.domain != _RUNTIME:
        return [node]
    if node.op_type in _NORMS:
        return _norm(node, is_float32)
    if node.op_type in _ACTIVATIONS and len(node.input) > 1 and node.input[1]:
        biased = _biased(node, node.input[1])
        made = _like(node, _ACTIVATIONS[node.op_type], [biased.output[0]], node.output)
        made.domain = _RUNTIME
        return [biased, made]
    return [node]


def _norm(node: onnx.NodeProto, is_float32: Callable[[str], bool]) -> Sequence[onnx.NodeProto]:
    import onnx

    norm = _NORMS[node.op_type]
    x, skip, weight, *more = node.input
    offset = more[:1] if norm == "LayerNormalization" else []
    bias = next(filter(None, more[len(offset) :]), "")
    if any(node.output[1:_SUM]):
        return [node]
    made = []
    if bias:
        made.append(_biased(node, bias))
        x = made[0].output[0]
    if not is_float32(weight):
        alone = _like(node, node.op_type, [x, skip, weight, *offset], node.output) if bias else node
        alone.domain = _RUNTIME
        return [*made, alone]
    while len(node.output) <= _SUM:
        node.output.append("")
    node.output[_SUM] = node.output[_SUM] or f"{node.output[0]}_ait_sum"
    total = node.output[_SUM]
    name = f"{node.name}_sum" if node.name else ""
    made.append(onnx.helper.make_node("Add", [x, skip], [total], name=name))
    given = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    made.append(_like(node, norm, [total, weight, *offset], node.output[:1]))
    del made[-1].attribute[:]
    made[-1].attribute.append(onnx.helper.make_attribute("epsilon", given.get("epsilon", _EPSILON)))
    made[-2].metadata_props.extend(node.metadata_props)
    return made


def _biased(node: onnx.NodeProto, bias: str) -> onnx.NodeProto:
    """The sum of the first input and a bias."""
    import onnx

    name = f"{node.name}_bias" if node.name else ""
    made = onnx.helper.make_node(
        "Add", [node.input[0], bias], [f"{node.output[0]}_ait_biased"], name=name
    )
    made.metadata_props.extend(node.metadata_props)
    return made


def _like(
    node: onnx.NodeProto, kind: str, inputs: Sequence[str], outputs: Sequence[str]
) -> onnx.NodeProto:
    """A node of another kind with the name, attributes and notes of one."""
    import onnx

    made = onnx.helper.make_node(kind, list(inputs), list(outputs), name=node.name)
    made.attribute.extend(node.attribute)
    made.metadata_props.extend(node.metadata_props)
    return made
