"""Which argument of an FX node an input of an operator is, by the definition of both.

Converters reorder arguments, so only operators and nodes that are known to read the same values
are listed. Source: the converters of torchair; checked on recorded dumps.
"""

from __future__ import annotations

from collections.abc import Mapping

from ait_llm.topology.ge_graph import GeOp

Argument = tuple[int, int | None]
"""Position among the arguments of a node, and among the elements of a list if it is one."""

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


def argument_of(op: GeOp, place: int, target: str) -> Argument | None:
    """The argument of a node that an input of the operator that computes it is.

    Args:
        op: the operator.
        place: which of its inputs, among those that are fed.
        target: the node's operator, such as ``aten.mm.default``.

    Returns:
        None where no definition says that both read the same values in the same order.
    """
    parts = target.split(".")
    node = parts[1] if len(parts) > 1 else parts[0]
    slot = op.slots[place] if place < len(op.slots) else place
    if (op.type, node) == ("ConcatV2", "cat"):
        return (0, slot) if slot < len(op.inputs) - 1 else None  # the last one is the axis
    number = _ARGUMENTS.get((op.type, node), {}).get(slot)
    if number is None or _is_turned(op, slot):
        return None
    return number, None


def _is_turned(op: GeOp, slot: int) -> bool:
    """True if a matrix product reads a matrix by columns."""
    names = _TURNED[slot] if op.type in _PRODUCTS and slot < len(_TURNED) else ()
    return any(op.attrs.get(name) for name in names)
