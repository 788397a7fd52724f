"""Turned queries and keys: no module returns them, but a capture of right operators shows them.

``q * cos + rotate_half(q) * sin`` is the last sum, or the last concatenation where only a part of
a head is turned, that depends on a projection and on the table and has as many elements.
"""

from __future__ import annotations

from ait_llm.program.describe import is_float, shape_of, size_of
from ait_llm.program.flow import Value
from ait_llm.program.program import Program
from ait_llm.program.roles import Role

_LAST = ("aten.add.", "aten.cat.", "aten.sub.")
# What no longer turns but attends, projects or stores.
_BEYOND = (
    "aten.mm.",
    "aten.bmm.",
    "aten.addmm.",
    "aten.baddbmm.",
    "aten.matmul.",
    "aten.linear.",
    "aten.scaled_dot_product",
    "aten._scaled_dot_product",
    "aten._softmax",
    "aten.index_put",
    "aten.index_copy",
)


def turned(side: Program, source: Value, table: Value, size: int) -> Value | None:
    """The turned form of a query or key.

    Args:
        side: the right side.
        source: what the projection (or the norm behind it) gives.
        table: cosines.
        size: number of elements.

    Returns:
        None without a capture of operators, or if nothing fits.
    """
    reached = _behind(side, source)
    from_both = _behind(side, table).keys() & reached.keys()
    found = None
    for number in sorted(from_both):
        value = reached[number]
        writer = value.writes[0] if value.writes else None
        if writer is None or size_of(writer.tensor) != size or not is_float(writer.tensor):
            continue
        if side.operations[writer.op].type.startswith(_LAST):
            found = value
    if found is None:
        return None
    shape = shape_of(found.uses[0].tensor)
    if shape is not None and len(shape) == 4 and shape[1] == shape[2]:
        return None  # heads and positions cannot be told apart
    return _rounded(side, found)


def _behind(side: Program, value: Value) -> dict[int, Value]:
    """Values that operators compute from one."""
    found = {value.number: value}
    pending = [value]
    while pending:
        for use in pending.pop().reads:
            operation = side.operations[use.op]
            if side.roles[use.op] is not Role.OPERATOR or operation.type.startswith(_BEYOND):
                continue
            for tensor in operation.outputs:
                written = side.value(use.op, tensor)
                if written is not None and written.number not in found:
                    found[written.number] = written
                    pending.append(written)
    return found


def _rounded(side: Program, value: Value) -> Value:
    """The value after the cast to the model's own type, if it was computed in a wider one."""
    for use in value.reads:
        if side.operations[use.op].type.startswith("aten._to_copy."):
            outputs = side.operations[use.op].outputs
            written = side.value(use.op, outputs[0]) if outputs else None
            if written is not None and written is not value:
                return written
    return value
