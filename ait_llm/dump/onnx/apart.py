"""Fused nodes that are told as the operators that they are made of.

``SkipLayerNormalization`` and ``SkipSimplifiedLayerNormalization`` of ONNX Runtime add a residual
and normalise the sum, which is a result of theirs (``docs/ContribOperators.md`` of ONNX Runtime).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_NORMS = {
    "SkipLayerNormalization": "LayerNormalization",
    "SkipSimplifiedLayerNormalization": "SimplifiedLayerNormalization",
}
_SUM = 3  # which result it is
_EPSILON = 1e-12  # of nodes that say none


def taken_apart(
    node: onnx.NodeProto, weights: Mapping[str, onnx.TensorProto]
) -> Sequence[onnx.NodeProto]:
    """What a node of a graph computes, as nodes that say it one by one.

    Those of 16 bits stay as they are: they normalise the sum as it was before it was rounded.

    Args:
        node: its sum becomes a result where it is none yet.
        weights: of the graph.

    Returns:
        The node alone where it is no such node, or adds a bias as well.
    """
    import onnx

    norm = _NORMS.get(node.op_type) if node.domain == "com.microsoft" else None
    if norm is None:
        return [node]
    x, skip, weight, *more = node.input
    offset = more[:1] if norm == "LayerNormalization" else []
    bias = more[len(offset) :]
    if any(bias) or any(node.output[1:_SUM]) or weight not in weights:
        return [node]
    if weights[weight].data_type != onnx.TensorProto.FLOAT:
        return [node]
    while len(node.output) <= _SUM:
        node.output.append("")
    node.output[_SUM] = node.output[_SUM] or f"{node.output[0]}_ait_sum"
    given = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    make, total = onnx.helper.make_node, node.output[_SUM]
    made = [
        make("Add", [x, skip], [total], name=f"{node.name}_sum" if node.name else ""),
        make(
            norm, [total, weight, *offset], [node.output[0]], name=node.name,
            epsilon=given.get("epsilon", _EPSILON),
        ),
    ]  # fmt: skip
    for each in made:
        each.metadata_props.extend(node.metadata_props)
    return made
