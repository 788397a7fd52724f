"""Columns of a joined projection that attention reads, where no operation was seen to cut them.

An engine splits ``qkv`` in plain code. What its rotary operation and its attention then read are
columns of the projection, byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.program.describe import is_float, shape_of, size_of, width_of
from ait_llm.program.flow import Piece, Value
from ait_llm.program.roles import Role

if TYPE_CHECKING:
    from ait_llm.program.program import Program

_MOST = 1 << 24  # elements of a projection that are looked at


def find_pieces(program: Program) -> None:
    """Give projections their pieces, as far as rotary operations and attention read them."""
    for op, role in enumerate(program.roles):
        if role not in (Role.ROTARY, Role.CORE):
            continue
        sources = [
            (tensor, value)
            for tensor in program.operations[op].inputs
            if is_float(tensor)
            and (value := program.value(op, tensor)) is not None
            and not value.writes
        ]
        joined = _joined_before(program, op) if sources else None
        if joined is not None:
            _cut(joined, sources)


def _joined_before(program: Program, op: int) -> tuple[Tensor, Value] | None:
    """The last projection before an operation, within the same module."""
    around = set(program.flow.ancestors(op))
    for earlier in range(op - 1, max(-1, op - 8), -1):
        if program.roles[earlier] is Role.LINEAR and program.flow.parents[earlier] in around:
            outputs = program.operations[earlier].outputs
            value = program.value(earlier, outputs[0]) if outputs else None
            return None if value is None else (outputs[0], value)
    return None


def _cut(joined: tuple[Tensor, Value], sources: list[tuple[Tensor, Value]]) -> None:
    tensor, whole = joined
    width = width_of(tensor)
    if not width or size_of(tensor) > _MOST:
        return
    rows = size_of(tensor) // width
    array = _rows(tensor, rows)
    start = max((piece.start + piece.width for piece in whole.pieces), default=0)
    for source, value in sources:
        if array is None or any(piece.value is value for piece in whole.pieces):
            continue
        shape, part = shape_of(source), _rows(source, rows)
        if not shape or part is None or start + part.shape[1] > width:
            return
        if not np.array_equal(array[:, start : start + part.shape[1]], part, equal_nan=True):
            return
        whole.add_piece(Piece(value, start, part.shape[1]))
        start += part.shape[1]


def _rows(tensor: Tensor, rows: int) -> Array | None:
    if not rows or size_of(tensor) % rows or not tensor.has_data:
        return None
    try:
        return tensor.nd().reshape(rows, -1)
    except AitError:
        return None
