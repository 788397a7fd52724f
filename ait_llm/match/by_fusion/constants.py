"""Constants of the graph among the numbers that FX nodes were called with: exponents, epsilons."""

from __future__ import annotations

from math import isclose

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.match.by_fusion.decoding import Decoded
from ait_llm.match.by_fusion.fx_tensors import FxTensors, Located, is_number
from ait_llm.match.by_fusion.graph import CONSTANTS, UnfusedGraph
from ait_llm.match.by_fusion.groups import Slot
from ait_llm.match.operators import Placed

_MOST = 16  # numbers in a list
_EQUAL = 1e-3  # a half-precision constant is that close to the number it was written as


def number_of(
    graph: UnfusedGraph, fx: FxTensors, each: Placed, decoded: Decoded, slot: Slot
) -> Located | None:
    """The number among the arguments of an FX node that a constant input is.

    It is the one of equal value. Where none is, and operator and node have one real number each,
    these are taken for each other, so that a wrong epsilon is seen; but not a number and its
    reciprocal or negative, with which a converter divides or subtracts.
    """
    mine = next((t for t in each.operation.inputs if decoded.inputs[t.index] == slot), None)
    values = _values(mine) if mine is not None else None
    if values is None:
        return None
    for node in graph.nodes_of(graph.graph.by_name[slot.part]):
        owner = fx.by_node.get(node)
        numbers = [] if owner is None else [t for t in owner.operation.inputs if is_number(t)]
        for tensor in numbers:
            if owner is not None and _equal(values, _values(tensor)):
                return owner, tensor
        real = [tensor for tensor in numbers if _is_real(tensor)]
        if owner is None or len(real) != 1 or not _only_real(graph, each, decoded, slot):
            continue
        if not _turned(values, _values(real[0])):
            return owner, real[0]
    return None


def _only_real(graph: UnfusedGraph, each: Placed, decoded: Decoded, slot: Slot) -> bool:
    """True if a real constant is the only one that its operator reads."""
    constants = {
        other
        for tensor in each.operation.inputs
        if (other := decoded.inputs[tensor.index]) is not None
        and other.part == slot.part
        and graph.type_of(other.tensor) in CONSTANTS
        and _is_real(tensor)
    }
    return constants == {slot}


def _is_real(tensor: Tensor) -> bool:
    values = _values(tensor)
    try:
        return values is not None and len(values) == 1 and tensor.dtype.is_floating
    except AitError:
        return False


def _values(tensor: Tensor) -> list[float] | None:
    try:
        array = tensor.nd().reshape(-1)
        return None if array.size > _MOST else [float(value) for value in array]
    except (AitError, ValueError, TypeError):
        return None


def _turned(first: list[float], second: list[float] | None) -> bool:
    if second is None or len(first) != 1 or len(second) != 1:
        return False
    return isclose(first[0] * second[0], 1, rel_tol=_EQUAL) or _equal(first, [-second[0]])


def _equal(first: list[float], second: list[float] | None) -> bool:
    if second is None or len(first) != len(second):
        return False
    return all(isclose(a, b, rel_tol=_EQUAL) for a, b in zip(first, second, strict=True))
