"""Which results of two paired units answer each other, where one of them takes in what follows.

Written out, a projection adds its bias and an embedding multiplies its rows by an operator of
their own; a module does so within itself, or not at all: then the same operator of its program
stands behind it. So may the cap of logits.
"""

from __future__ import annotations

from ait_llm.program.describe import is_float, shape_of
from ait_llm.program.flow import Value
from ait_llm.program.operator_program import OperatorProgram
from ait_llm.program.program import Program, Unit
from ait_llm.program.roles import Role, scales_rows


def results(
    left: Program, a: Unit, right: Program, t: Unit
) -> tuple[Value | None, Value | None] | None:
    """What two units of the same role give that is the same; None if nothing is."""
    if a.bare is not None and t.bare is None and not _takes_in(right, t):
        return a.bare, t.result
    if t.bare is not None and a.bare is None and not _takes_in(left, a):
        return a.result, t.bare
    if a.role is Role.EMBEDDING and _scales(left, a) != _scales(right, t):
        return None
    return _logits(left, a, right, t), _logits(right, t, left, a)


def _takes_in(side: Program, unit: Unit) -> bool:
    """False for a unit that leaves to others what may follow: a bias, or a number for its rows.

    Where operators alone were captured, one that follows belongs to the unit; if none does, it is
    missing.
    """
    if isinstance(side, OperatorProgram):
        return True
    if unit.role is Role.EMBEDDING:
        return _scales(side, unit)
    has_bias = side.operations[unit.op].definition.get("bias")
    if isinstance(has_bias, bool):
        return has_bias
    return side.parameter(unit, "weight") is None or side.parameter(unit, "bias") is not None


def _scales(side: Program, unit: Unit) -> bool:
    """True for an embedding that multiplies its rows, as its class or its operators say."""
    return unit.bare is not None or scales_rows(side.operations[unit.op].type)


def _logits(side: Program, unit: Unit, other: Program, partner: Unit) -> Value | None:
    """What a unit gives; of a head whose counterpart also caps the logits, those of the model."""
    if unit.result is None or "logits" not in other.operations[partner.op].type.lower():
        return unit.result
    shape = shape_of(unit.result.uses[0].tensor)
    for around in side.flow.ancestors(unit.op):
        for tensor in side.operations[around].outputs:
            if is_float(tensor) and shape_of(tensor) == shape:
                return side.value(around, tensor)
    return unit.result
