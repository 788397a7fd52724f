"""Norms of the library that add a residual first, where the other run adds it up before.

One side reads the sum that the other side forms, and hands on beside the norm.
"""

from __future__ import annotations

from collections.abc import Iterator

from ait_llm.dumps.model import Tensor
from ait_llm.program.flow import Use, Value
from ait_llm.program.program import Program
from ait_llm.program.roles import Role, adds_residual, hands_sum_on


def one_adds(left: Program, op: int, right: Program, other: int) -> bool:
    """True for two norms of which only one adds a residual."""
    if left.roles[op] is not Role.NORM or right.roles[other] is not Role.NORM:
        return False
    return adds_residual(left.operations[op]) != adds_residual(right.operations[other])


def tensors_of_norm(side: Program, op: int) -> dict[str, Tensor]:
    """What a norm reads and gives, by what it is: ``sum``, ``result``, ``weight``, ``bias``."""
    operation, unit = side.operations[op], side.unit_of.get(op)
    found: dict[str, Tensor] = {}
    for kind in ("weight", "bias"):
        parameter = None if unit is None else side.parameter(unit, kind)
        if parameter is not None:
            found[kind] = parameter.tensor
    adds = adds_residual(operation)
    if not adds:
        given = (*operation.inputs[:1], *operation.outputs[:1])
        found |= dict(zip(("sum", "result"), given, strict=False))
    elif hands_sum_on(operation):
        found |= {"sum": operation.outputs[1], "result": operation.outputs[0]}
    known = {(tensor.role, tensor.index) for tensor in found.values()}
    rest = (each for each in operation.tensors if (each.role, each.index) not in known)
    words = {"in": "summand", "out": "further output"} if adds else {"in": "input", "out": "output"}
    return found | {f"{words[each.role]} {each.index}": each for each in rest}


def added_up(side: Program) -> Iterator[tuple[Use, Value]]:
    """What is read and given where sums are formed."""
    for op, operation in enumerate(side.operations):
        if side.roles[op] is Role.ADD or (side.roles[op] is Role.NORM and adds_residual(operation)):
            for tensor in operation.tensors:
                value = side.value(op, tensor)
                if value is not None:
                    yield Use(op, tensor), value
