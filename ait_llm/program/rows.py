"""Coordinates of rows: how a program lays out its tokens, and which of them are padding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.formats.elements import Array
from ait_llm.program.describe import integers, is_float, shape_of, size_of
from ait_llm.program.graph_names import names_of_node
from ait_llm.program.program import Program
from ait_llm.program.roles import Role


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a program's activations once the leading axes are taken as one.

    Attributes:
        batch, seq: leading axes of a program that pads, whose flat row is ``b * seq + s``; batch
            is 0 where the requests are packed one behind the other.
        count: number of rows.
        last: flat row of the last token of each request, in the order of the program; empty if
            the requests of a packed program cannot be told apart.
    """

    batch: int
    seq: int
    count: int
    last: tuple[int, ...]

    def position(self, row: int) -> int:
        """Place of a flat row within its request, padding included."""
        return row % self.seq


def rows_of(program: Program) -> Rows | None:
    """The layout of the rows that most activations have; None if nothing shows it."""
    if not program.is_packed:
        ids = next(filter(None, map(shape_of, _gathered_by(program))), None)
        shape = ids if ids is not None and len(ids) < 3 else _common_shape(program)
        if shape is not None and len(shape) == 2:
            batch, seq = shape
            schedule = program.run.schedule
            if batch == 1 and schedule is not None and schedule.count == seq:
                return Rows(batch, seq, seq, schedule.newest)
            return Rows(batch, seq, batch * seq, tuple((b + 1) * seq - 1 for b in range(batch)))
    count = _rows_of_units(program)
    return _packed(program, count) if count else None


def _packed(program: Program, count: int) -> Rows:
    schedule = program.run.schedule
    if schedule is not None and schedule.count <= count:
        return Rows(0, count, count, schedule.newest)
    lengths = request_lengths(program, count) or ()
    return Rows(0, count, count, tuple(int(end) - 1 for end in np.cumsum(lengths)))


def id_vectors(program: Program, rows: Rows) -> list[Array]:
    """Integers that look like token ids, ``[rows]``: what embeddings are gathered by, in order."""
    return [
        array.reshape(-1)
        for tensor in _gathered_by(program)
        if size_of(tensor) == rows.count and (array := integers(tensor)) is not None
    ]


def id_matrices(program: Program, rows: Rows, *, every: bool = False) -> list[Array]:
    """Integers ``[batch, seq]`` that embeddings read; with ``every`` also other inputs like them.

    What an embedding reads may be one row for the whole batch, as positions are.
    """
    wanted = (rows.batch, rows.seq)
    found = list(_matrices(_gathered_by(program), wanted, rows))
    if every:
        others = (t for t in _inputs(program) if shape_of(t) == wanted)
        found += [each for each in _matrices(others, wanted, rows) if len(np.unique(each)) > 1]
    return found


def _matrices(tensors: Iterable[Tensor], shape: tuple[int, int], rows: Rows) -> Iterator[Array]:
    for tensor in tensors:
        if shape_of(tensor) in (shape, (1, rows.seq)):
            array = integers(tensor)
            if array is not None:
                yield np.broadcast_to(array, shape)


def masked_rows(program: Program, rows: Rows) -> frozenset[int]:
    """Flat rows that a mask ``[batch, seq]`` or longer declares to be padding."""
    for mask in _masks(program, rows, named=True):
        return frozenset(int(row) for row in np.flatnonzero(mask.reshape(-1) == 0))
    return frozenset()


def mask_with(program: Program, rows: Rows, count: int) -> Array | None:
    """A mask with so many real tokens, flat; None if there is none."""
    found = (mask for mask in _masks(program, rows) if int(mask.sum()) == count)
    mask = next(found, None)
    return None if mask is None else mask.reshape(-1)


def key_mask(program: Program, rows: Rows) -> Array | None:
    """A mask ``[batch, keys]`` of all tokens so far, the newest last; None if there is none."""
    return next(_whole_masks(program, rows, named=True), None)


def _masks(program: Program, rows: Rows, *, named: bool = False) -> Iterator[Array]:
    """Masks of the newest tokens, ``[batch, seq]``; arguments as of :func:`_whole_masks`."""
    return (
        each[:, each.shape[1] - rows.seq :] for each in _whole_masks(program, rows, named=named)
    )


def _whole_masks(program: Program, rows: Rows, *, named: bool = False) -> Iterator[Array]:
    """Masks ``[batch, seq or more]`` of 0 and 1, at least one newest token in each row.

    With ``named`` only what the program itself calls a mask: other integers may look like one.
    """
    for tensor in _masks_by_name(program) if named else _inputs(program):
        shape = shape_of(tensor)
        if shape is None or len(shape) != 2 or shape[0] != rows.batch or shape[1] < rows.seq:
            continue
        array = integers(tensor)
        if array is None or not array.size or array.min() < 0 or array.max() > 1:
            continue
        newest = array[:, shape[1] - rows.seq :]
        if newest.any(axis=1).all() and (shape[1] > 1 or newest.all()):
            yield array


def request_lengths(program: Program, count: int, batch: int = 0) -> list[int] | None:
    """Tokens of each request of a packed program, as attention or its positions show them.

    Args:
        program: the program.
        count: rows of the pass.
        batch: number of requests, 0 if unknown.

    Returns:
        None if nothing shows them; one each where there are as many requests as rows.
    """
    for op, role in enumerate(program.roles):
        if role is not Role.CORE:
            continue
        for tensor in program.operations[op].inputs:
            shape = shape_of(tensor)
            if is_float(tensor) or not shape or len(shape) != 1 or batch not in (0, shape[0]):
                continue
            array = integers(tensor)
            if array is not None and int(array.sum()) == count and array.min() > 0:
                return [int(length) for length in array]
    if count == batch:
        return [1] * batch
    return None if batch else _lengths_by_positions(program, count)


def _lengths_by_positions(program: Program, count: int) -> list[int] | None:
    """Requests begin where the positions that the rotary operation reads do not go on by one."""
    for op, role in enumerate(program.roles):
        if role is not Role.ROTARY:
            continue
        for tensor in program.operations[op].inputs:
            if is_float(tensor) or shape_of(tensor) != (count,):
                continue
            array = integers(tensor)
            if array is not None:
                starts = [0, *(np.flatnonzero(np.diff(array) != 1) + 1).tolist(), count]
                return [int(length) for length in np.diff(starts)]
        return None
    return None


def _gathered_by(program: Program) -> Iterator[Tensor]:
    """What embeddings read as indices, each value once, in the order of the program."""
    seen: set[int] = set()
    for unit in program.units:
        if unit.role is not Role.EMBEDDING or unit.source is None or unit.source.number in seen:
            continue
        seen.add(unit.source.number)
        yield unit.source.uses[0].tensor


def _inputs(program: Program) -> Iterator[Tensor]:
    """Integer inputs, each value once."""
    seen: set[int] = set()
    for op, operation in enumerate(program.operations):
        for tensor in operation.inputs:
            value = program.value(op, tensor)
            if value is None or value.number in seen or is_float(tensor):
                continue
            seen.add(value.number)
            yield tensor


def _masks_by_name(program: Program) -> Iterator[Tensor]:
    """Integer inputs that the program or its graph calls a mask, each value once."""
    seen: set[int] = set()
    for op, operation in enumerate(program.operations):
        given = {id(tensor): name for name, tensor in names_of_node(operation)}
        for tensor in operation.inputs:
            name = tensor.ir_name or given.get(id(tensor)) or ""
            if "mask" not in name or is_float(tensor):
                continue
            value = program.value(op, tensor)
            if value is not None and value.number not in seen:
                seen.add(value.number)
                yield tensor


def _common_shape(program: Program) -> tuple[int, int] | None:
    """Leading axes of the most frequent shape of three axes."""
    shapes: Counter[tuple[int, int]] = Counter()
    for operation in program.operations:
        for tensor in operation.tensors:
            shape = shape_of(tensor)
            if shape is not None and len(shape) == 3 and is_float(tensor):
                shapes[shape[0], shape[1]] += 1
    return shapes.most_common(1)[0][0] if shapes else None


def _rows_of_units(program: Program) -> int:
    """Rows of hidden states: what most norms and projections have."""
    counts: Counter[int] = Counter()
    for unit in program.units:
        if unit.result is not None and unit.role in (Role.NORM, Role.LINEAR):
            shape = shape_of(unit.result.uses[0].tensor)
            if shape:
                counts[int(np.prod(shape[:-1]))] += 1
    return counts.most_common(1)[0][0] if counts else 0
