"""Modules that both sides call by the same path: two runs of one library.

A name is a hint and no reason: class, what the module takes and gives, and the shapes must agree
too. Operators have no names of their own, only numbers, and are never paired by them.
"""

from __future__ import annotations

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.match.programs.links import SURE, Links
from ait_llm.match.programs.shapes import make_views
from ait_llm.match.programs.tokens import Tokens
from ait_llm.program.describe import is_float, shape_of
from ait_llm.program.program import Program
from ait_llm.program.roles import Role

_REASON = "the same module of the same class"


def pair_namesakes(
    left: Program, right: Program, tokens: Tokens | None, links: Links
) -> dict[int, int]:
    """Link what modules of the same path, class and call number take and give.

    Returns:
        Right operation by left operation.
    """
    if left.run.kind != right.run.kind:
        return {}
    known = {_key(operation): op for op, operation in enumerate(right.operations)}
    pairs: dict[int, int] = {}
    for op, operation in enumerate(left.operations):
        other = known.get(_key(operation))
        if other is None or left.roles[op] is Role.OPERATOR:
            continue
        if operation.type != right.operations[other].type:
            continue
        pairs[op] = other
        links.units.setdefault(op, set()).add(other)
        for mine, theirs in same_ports(operation, right.operations[other]):
            shapes = shape_of(mine), shape_of(theirs)
            if shapes[0] is None or shapes[1] is None or is_float(mine) != is_float(theirs):
                continue
            if make_views(shapes[0], shapes[1], tokens) is not None:
                links.add(left.value(op, mine), right.value(other, theirs), SURE, _REASON)
    return pairs


def same_ports(left: Operation, right: Operation) -> list[tuple[Tensor, Tensor]]:
    """Tensors of two calls that have the same argument or field."""
    ports = {_port(tensor): tensor for tensor in (*right.inputs, *right.outputs)}
    return [
        (tensor, ports[_port(tensor)])
        for tensor in (*left.inputs, *left.outputs)
        if _port(tensor) in ports
    ]


def _key(operation: Operation) -> tuple[str, int]:
    return operation.name, getattr(operation, "call", 0)


def _port(tensor: Tensor) -> tuple[str, str]:
    return tensor.role, tensor.ir_name or str(tensor.index)
