"""Constants of the graph among the numbers that FX nodes were called with: exponents, epsilons."""

from __future__ import annotations

from math import isclose

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.match.programs.anchors.node_tensors import Located, NodeTensors, is_number
from ait_llm.program.ge.fusion import Fusion
from ait_llm.program.ge.graph import CONSTANTS
from ait_llm.program.ge.groups import Slot

_MOST = 16  # numbers in a list
_EQUAL = 1e-3  # a half-precision constant is that close to the number it was written as


def number_of(fusion: Fusion, nodes: NodeTensors, place: int, tensor: Tensor) -> Located | None:
    """The number among the arguments of an FX node that a constant input is.

    It is the one of equal value. Where none is, and operator and node have one real number each,
    these are taken for each other, so that a wrong epsilon is seen; but not a number and its
    reciprocal or negative, with which a converter divides or subtracts.
    """
    slot = fusion.decoded[place].inputs[tensor.index] if tensor.role == "in" else None
    values = _values(tensor)
    if slot is None or values is None:
        return None
    for node in fusion.graph.nodes_of(fusion.graph.graph.by_name[slot.part]):
        owner = nodes.by_node.get(node)
        if owner is None:
            continue
        numbers = [each for each in owner.operation.inputs if is_number(each)]
        equal = next((each for each in numbers if _equal(values, _values(each))), None)
        real = [each for each in numbers if _is_real(each)]
        if equal is not None:
            return owner, equal
        if len(real) != 1 or not _only_real(fusion, place, slot):
            continue
        if not _turned(values, _values(real[0])):
            return owner, real[0]
    return None


def _only_real(fusion: Fusion, place: int, slot: Slot) -> bool:
    """True if a real constant is the only one that its operator reads."""
    decoded = fusion.decoded[place]
    constants = {
        other
        for tensor in fusion.operations[place].inputs
        if (other := decoded.inputs[tensor.index]) is not None
        and other.part == slot.part
        and fusion.graph.type_of(other.tensor) in CONSTANTS
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
