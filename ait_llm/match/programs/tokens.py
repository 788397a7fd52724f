"""Which row of a packed tensor is which place of a padded batch.

ATB packs the tokens of all sequences, ``[tokens, hidden]``; torch pads them, ``[batch, seq,
hidden]``. Token ids say which is which where both sides have them, else lengths and masks do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ait_llm.formats.elements import Array
from ait_llm.program.describe import integers, is_float, shape_of
from ait_llm.program.program import Side
from ait_llm.program.roles import Role


@dataclass(frozen=True, slots=True)
class Tokens:
    """The new tokens of one pass on both sides.

    Attributes:
        batch, seq: of the torch side.
        rows: for each ATB row its place in ``batch * seq``; empty if nothing is packed because
            the ATB side has ``[batch, seq]`` too.
        last: the ATB row of the last token of each sequence.
        evidence: how it was found.
        certain: False if only sizes say so.
    """

    batch: int
    seq: int
    rows: tuple[int, ...]
    last: tuple[int, ...]
    evidence: str
    certain: bool

    @property
    def count(self) -> int:
        """Rows of the ATB side."""
        return len(self.rows) or self.batch * self.seq

    @property
    def is_plain(self) -> bool:
        """True if the rows of both sides are the same, one by one."""
        return not self.rows or self.rows == tuple(range(self.batch * self.seq))


def find_tokens(atb: Side, torch: Side) -> Tokens | None:
    """Align the tokens of both sides; None if the sizes do not fit at all."""
    place = _batch_and_seq(torch)
    count = _count(atb)
    if place is None or not count:
        return None
    batch, seq = place
    ids = list(_atb_vectors(atb, count))
    padded = list(_torch_matrices(torch, batch, seq))
    if count == batch * seq:
        return _full(batch, seq, count, ids, padded)
    if count > batch * seq:
        return None
    mask = _mask(torch, batch, seq, count)
    if mask is not None:
        rows = tuple(int(place) for place in np.flatnonzero(mask))
        return _tokens(batch, seq, rows, "by the attention mask", certain=True)
    lengths = _lengths(atb, batch, count)
    if lengths is None:
        return None
    for vector in ids:
        for matrix in padded:
            found = _by_ids(vector, matrix, lengths)
            if found is None:
                continue
            if not _counts_up(vector, lengths):
                return _tokens(batch, seq, found, "by token ids", certain=True)
            # positions of a padded batch may count the padding, too
            return _tokens(batch, seq, found, "by their positions", certain=False)
    if max(lengths) > seq:
        return None
    rows = tuple(b * seq + s for b, length in enumerate(lengths) for s in range(length))
    return _tokens(
        batch, seq, rows, "by sequence lengths, padding taken to be right", certain=False
    )


def _full(batch: int, seq: int, count: int, ids: list[Array], padded: list[Array]) -> Tokens:
    """Nothing is padded; sequences may still come in another order."""
    plain = tuple(range(count))
    for vector in ids:
        for matrix in padded:
            if len(np.unique(matrix)) > 1 and np.array_equal(vector, matrix.reshape(-1)):
                return _tokens(batch, seq, plain, "by token ids", certain=True)
    for vector in ids:
        for matrix in padded:
            found = _by_ids(vector, matrix, [seq] * batch)
            if found is not None:
                return _tokens(batch, seq, found, "by token ids", certain=True)
    return _tokens(batch, seq, plain, "nothing is padded", certain=True)


def _tokens(batch: int, seq: int, rows: tuple[int, ...], evidence: str, *, certain: bool) -> Tokens:
    last = [
        row
        for row, place in enumerate(rows)
        if row + 1 == len(rows) or rows[row + 1] // seq != place // seq
    ]
    return Tokens(batch, seq, rows, tuple(last), evidence, certain)


def _by_ids(vector: Array, matrix: Array, lengths: Sequence[int]) -> tuple[int, ...] | None:
    """Places at which the sequences of a packed vector stand in a padded matrix.

    Each sequence stands at the start or at the end of a row of its own.
    """
    seq = matrix.shape[1]
    rows: list[int] = []
    free = list(range(matrix.shape[0]))
    start = 0
    for length in lengths:
        part = vector[start : start + length]
        start += length
        found = next(
            (
                (row, first)
                for row in free
                for first in dict.fromkeys((0, seq - length))
                if first >= 0 and np.array_equal(matrix[row, first : first + length], part)
            ),
            None,
        )
        if found is None:
            return None
        free.remove(found[0])
        rows += range(found[0] * seq + found[1], found[0] * seq + found[1] + length)
    return tuple(rows)


def _counts_up(vector: Array, lengths: Sequence[int]) -> bool:
    """True if each sequence goes up by one: positions, not token ids."""
    ends = np.cumsum(lengths)[:-1]
    return all(bool((np.diff(part) == 1).all()) for part in np.split(vector, ends))


def _batch_and_seq(torch: Side) -> tuple[int, int] | None:
    """Of the ids that the embedding reads, else of the most frequent shape of hidden states."""
    for unit in torch.units:
        if unit.role is Role.EMBEDDING and unit.source is not None:
            shape = shape_of(unit.source.uses[0].tensor)
            if shape is not None and len(shape) == 2:
                return shape[0], shape[1]
    shapes: Counter[tuple[int, int]] = Counter()
    for operation in torch.operations:
        for tensor in operation.tensors:
            shape = shape_of(tensor)
            if shape is not None and len(shape) == 3 and is_float(tensor):
                shapes[shape[0], shape[1]] += 1
    return shapes.most_common(1)[0][0] if shapes else None


def _count(atb: Side) -> int:
    """Rows of hidden states: what most norms and projections have."""
    counts: Counter[int] = Counter()
    for unit in atb.units:
        if unit.result is not None and unit.role in (Role.NORM, Role.LINEAR):
            shape = shape_of(unit.result.uses[0].tensor)
            if shape:
                counts[int(np.prod(shape[:-1]))] += 1
    return counts.most_common(1)[0][0] if counts else 0


def _atb_vectors(atb: Side, count: int) -> Iterator[Array]:
    """Integers that look like token ids: what an embedding is gathered by; ids before positions."""
    seen: set[int] = set()
    for unit in atb.units:
        if unit.role is not Role.EMBEDDING or unit.source is None or unit.source.number in seen:
            continue
        seen.add(unit.source.number)
        tensor = unit.source.uses[0].tensor
        if int(np.prod(shape_of(tensor) or (0,))) == count:
            array = integers(tensor)
            if array is not None:
                yield array.reshape(-1)


def _torch_matrices(torch: Side, batch: int, seq: int) -> Iterator[Array]:
    """Integers ``[batch, seq]`` of the model's inputs and embeddings."""
    seen: set[int] = set()
    for op, operation in enumerate(torch.operations):
        for tensor in operation.inputs:
            value = torch.value(op, tensor)
            if value is None or value.number in seen or is_float(tensor):
                continue
            seen.add(value.number)
            if shape_of(tensor) == (batch, seq):
                array = integers(tensor)
                if array is not None and len(np.unique(array)) > 1:
                    yield array


def _mask(torch: Side, batch: int, seq: int, count: int) -> Array | None:
    """A mask ``[batch, seq]`` (or one that ends in these positions) with so many real tokens."""
    seen: set[int] = set()
    for op, operation in enumerate(torch.operations):
        for tensor in operation.inputs:
            value, shape = torch.value(op, tensor), shape_of(tensor)
            if value is None or value.number in seen or is_float(tensor):
                continue
            seen.add(value.number)
            if shape is None or len(shape) != 2 or shape[0] != batch or shape[1] < seq:
                continue
            array = integers(tensor)
            if array is None or array.size == 0 or array.min() < 0 or array.max() > 1:
                continue
            array = array[:, -seq:]
            if int(array.sum()) == count:
                return array.reshape(-1)
    return None


def _lengths(atb: Side, batch: int, count: int) -> list[int] | None:
    """New tokens of each sequence, as attention got them; one each in a decode step."""
    for op, role in enumerate(atb.roles):
        if role is not Role.CORE:
            continue
        for tensor in atb.operations[op].inputs:
            if is_float(tensor) or (shape_of(tensor) or ()) != (batch,):
                continue
            array = integers(tensor)
            if array is not None and int(array.sum()) == count and array.min() > 0:
                return [int(length) for length in array]
    return [1] * batch if count == batch else None
