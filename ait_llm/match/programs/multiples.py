"""Products that one side multiplies by a number where the other one does so elsewhere, or not.

ONNX Runtime's ``FusedMatMul`` has taken in the multiplication or division that came behind a
product (``alpha``); what the other side's projection gives, it gives a multiple of. Attention that
is written out multiplies the queries by the scale, the queries and keys by its root, or the scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ait_llm.program.describe import params_of
from ait_llm.program.flow import Value
from ait_llm.program.operators import only_moves
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
        factor = _factor(side, use.op)
        value = None if factor is None else side.value(use.op, side.operations[use.op].outputs[0])
        if factor is not None and value is not None:
            found.append((factor, value))
    right = [each for each in found if math.isclose(each[0], number, rel_tol=_ROUNDING)]
    if right:
        return right[0][1], True
    return (found[0][1], False) if len(found) == len(reads) == 1 else None


def sources(side: Program, value: Value) -> Iterator[tuple[Value, float]]:
    """What a value is a multiple of, and which one; the value itself first.

    Views and copies are looked through.
    """
    seen: set[int] = set()
    factor = 1.0
    while value.number not in seen:
        seen.add(value.number)
        yield value, factor
        op = value.writes[0].op if value.writes else None
        if op is None or not side.operations[op].inputs:
            return
        one = _factor(side, op)
        source = side.value(op, side.operations[op].inputs[0])
        if source is None or (one is None and not only_moves(side.kind(op))):
            return
        value, factor = source, factor * (one or 1.0)


def behind(side: Program, value: Value) -> tuple[Value, float]:
    """The last multiple that operators make of a value that nothing else reads, and which one."""
    last, factor = value, 1.0
    seen: set[int] = set()
    while value.number not in seen:
        seen.add(value.number)
        readers = {use.op for use in value.reads} - {use.op for use in value.writes}
        if len(readers) != 1:
            break
        [op] = readers
        one = _factor(side, op)
        made = (
            side.value(op, side.operations[op].outputs[0]) if side.operations[op].outputs else None
        )
        if made is None or (one is None and not only_moves(side.kind(op))):
            break
        value = made
        if one is not None:
            last, factor = made, factor * one
    return last, factor


def _factor(side: Program, op: int) -> float | None:
    """The number by which an operator multiplies; None if it does not, or not by a number."""
    operation, kind = side.operations[op], side.kind(op)
    if kind not in ("mul", "div") or not operation.outputs or not operation.inputs:
        return None
    numbers = [
        each
        for name, each in params_of(operation).items()
        if name.startswith(("input_1", "1")) and type(each) in (int, float)
    ]
    if len(numbers) != 1:
        return None
    if kind == "mul":
        return float(numbers[0])
    return 1 / numbers[0] if numbers[0] else math.inf
