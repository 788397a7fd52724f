"""Projections whose columns are the numbers of experts.

A module of a router hands the numbers on that it chose. In a program of operators alone, such as a
graph or a capture of operators, what follows tells: scores are made of the columns, and some of
them are chosen. Columns of routers are in one order on both sides, since experts have numbers.
"""

from __future__ import annotations

from ait_llm.program.describe import is_float
from ait_llm.program.program import Program, Unit
from ait_llm.program.roles import Role
from ait_llm.program.roles_fx import fx_role, is_view


def is_router(side: Program, unit: Unit) -> bool:
    """True for a projection among whose columns some are chosen.

    Args:
        side: the program.
        unit: a projection of it.
    """
    if unit.result is None:
        return False
    if any(not is_float(each) for each in side.operations[unit.op].outputs[1:]):
        return True
    seen, pending = {unit.result.number}, [unit.result]
    while pending:
        for use in pending.pop().reads:
            role = _role(side, use.op)
            if role is Role.TOPK:
                return True
            # scores are made of all columns of a row, or are the columns in another type or shape
            if role is not Role.SOFTMAX and not is_view(side.operations[use.op].type):
                continue
            made = (side.value(use.op, each) for each in side.operations[use.op].outputs)
            more = [each for each in made if each is not None and each.number not in seen]
            seen.update(each.number for each in more)
            pending += more
    return False


def _role(side: Program, op: int) -> Role:
    """What an operation does; of operators, which programs have no role for, their names say it."""
    role = side.roles[op]
    return fx_role(f"aten.{side.kind(op)}.default") if role is Role.OPERATOR else role
