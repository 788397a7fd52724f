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


def multiplied(side: Program, unit: Unit, number: float) -> Value | None:
    """What one operator makes of a projection by multiplying it by this number; None if none."""
    for use in unit.result.reads if unit.result is not None else ():
        operation, kind = side.operations[use.op], side.kind(use.op)
        factors = [
            each
            for name, each in params_of(operation).items()
            if name.startswith(("input_1", "1")) and type(each) in (int, float)
        ]
        if kind not in ("mul", "div") or len(factors) != 1 or not operation.outputs:
            continue
        factor = factors[0] if kind == "mul" else 1 / factors[0] if factors[0] else math.inf
        if math.isclose(factor, number, rel_tol=_ROUNDING):
            return side.value(use.op, operation.outputs[0])
    return None
