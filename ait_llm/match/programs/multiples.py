"""Products that one side multiplies by a number as it computes them.

ONNX Runtime's ``FusedMatMul`` has taken in the multiplication or division that came behind a
product (``alpha``); what the other side's projection gives, it gives a multiple of.
"""

from __future__ import annotations

import math

from ait_llm.program.describe import params_of
from ait_llm.program.flow import Value
from ait_llm.program.program import Program, Unit
from ait_llm.program.roles import Role

_FUSED = "ms_FusedMatMul"
_ROUNDING = 1e-6  # of a number in float32, twice


def multiple_of(side: Program, unit: Unit) -> float:
    """The number by which a projection multiplies its product; 1 if it does not."""
    if unit.role is not Role.LINEAR or side.kind(unit.op) != _FUSED:
        return 1.0
    alpha = params_of(side.operations[unit.op]).get("alpha", 1.0)
    return float(alpha) if isinstance(alpha, int | float) and alpha else 1.0


def multiplied(side: Program, unit: Unit, number: float) -> tuple[Value, bool] | None:
    """What one operator makes of a projection by multiplying it; None if none does.

    If the only operator that reads it multiplies by another number, it is that one, and false.
    """
    if number == 1.0 or unit.result is None:
        return None
    views = {use.op for use in unit.result.writes}
    reads = [use for use in unit.result.reads if use.op not in views]
    found: list[tuple[float, Value]] = []
    for use in reads:
        operation, kind = side.operations[use.op], side.kind(use.op)
        factors = [
            each
            for name, each in params_of(operation).items()
            if name.startswith(("input_1", "1")) and type(each) in (int, float)
        ]
        if kind not in ("mul", "div") or len(factors) != 1 or not operation.outputs:
            continue
        factor = factors[0] if kind == "mul" else 1 / factors[0] if factors[0] else math.inf
        value = side.value(use.op, operation.outputs[0])
        if value is not None:
            found.append((factor, value))
    right = [each for each in found if math.isclose(each[0], number, rel_tol=_ROUNDING)]
    if right:
        return right[0][1], True
    return (found[0][1], False) if len(found) == len(reads) == 1 else None
