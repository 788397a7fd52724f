"""Tensors that hold addresses, and caches that are filled at addresses.

Where a token lies in a paged cache is the allocator's choice. It differs between batch sizes, pool
sizes and versions, and is no error. So the rows of a cache are compared that belong to the tokens
of this pass, in the order of the tokens, and addresses are compared by the order of their first
use. Indices of rows of a tensor that grows with the batch move with the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.match.shapes import Aligned, Shape
from ait_llm.match.value_views import FirstUse, Shift
from ait_llm.match.views import Repeat, Reshape, Rows, View
from ait_llm.program.describe import logical_shape

_CACHE_WRITE, _CACHE_READ, _GATHER = (
    "ReshapeAndCacheOperation",
    "PagedAttentionOperation",
    "GatherOperation",
)
_MAX_ADDRESSES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Content:
    """What tells an address tensor apart wherever it appears within a top-level operation."""

    top: int
    golden: bytes
    mine: bytes


@dataclass(frozen=True, slots=True)
class _Cache:
    """A pair of caches within a top-level operation, by their shapes."""

    top: int
    golden: Shape
    mine: Shape


class Addresses:
    """Aligns caches and addresses of two runs; everything else is left to ``shapes.align``.

    Args:
        pairs: operations that belong together.
        ratio: of the batches, see ``shapes.batch_ratio``.
    """

    def __init__(self, pairs: Sequence[tuple[Operation, Operation]], ratio: int) -> None:
        self._ratio = ratio
        self._indices: dict[_Content, int] = {}
        self._places: set[_Content] = set()
        self._rows: dict[_Cache, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        for golden, mine in pairs:
            try:
                self._note(golden, mine)
            except (AitError, ValueError, IndexError):
                continue  # comparing the tensors says what is wrong with them

    def align(self, top: int, golden: Tensor, mine: Tensor) -> Aligned | str | None:
        """Views for two tensors, or why they cannot be compared; None if they are no addresses.

        Args:
            top: the top-level operation of mine that they belong to.
            golden, mine: the tensors.
        """
        if not (self._indices or self._places or self._rows):
            return None
        try:
            shapes = logical_shape(golden), logical_shape(mine)
            rows = self._rows.get(_Cache(top, *shapes))
            if rows is not None:
                return self._cache(shapes, rows)
            content = _content(golden, mine, top)
        except AitError:
            return None
        if content is None:
            return None
        if content in self._places:
            return self._first_use(golden.numpy(), mine.numpy())
        if content in self._indices:
            repeat = Repeat(0, abs(self._ratio))
            moved = (repeat, Shift(0, abs(self._ratio), self._indices[content]))
            note = "indices of the smaller batch repeated and moved"
            return Aligned(moved, (), note) if self._ratio > 1 else Aligned((), moved, note)
        return None

    def _cache(
        self, shapes: tuple[Shape, Shape], rows: tuple[tuple[int, ...], tuple[int, ...]]
    ) -> Aligned | str:
        views: list[tuple[View, ...]] = [
            (Reshape((shape[0] * shape[1], *shape[2:])), Rows(0, places))
            for shape, places in zip(shapes, rows, strict=True)
        ]
        small, large = (0, 1) if self._ratio > 0 else (1, 0)
        times = abs(self._ratio)
        if len(rows[small]) * times != len(rows[large]):
            return "the caches hold other numbers of tokens"
        if times > 1:
            views[small] = (*views[small], Repeat(0, times))
        return Aligned(views[0], views[1], "rows of the tokens of this step")

    def _first_use(self, golden: Array, mine: Array) -> Aligned | str:
        small, large = (golden, mine) if self._ratio > 0 else (mine, golden)
        times = abs(self._ratio)
        distinct = len(np.unique(small))
        if small.size != distinct or small.size * times != large.size:
            return "its addresses depend on where the cache had room"
        flat = Reshape((small.size,)), Reshape((large.size,))
        repeated: tuple[View, ...] = (flat[0], FirstUse())
        if times > 1:
            repeated = (*repeated, Repeat(0, times), Shift(0, times, distinct))
        other: tuple[View, ...] = (flat[1], FirstUse())
        note = "addresses by the order of their first use"
        if self._ratio > 0:
            return Aligned(repeated, other, note)
        return Aligned(other, repeated, note)

    def _note(self, golden: Operation, mine: Operation) -> None:
        if golden.type != mine.type or mine.type not in (_CACHE_WRITE, _CACHE_READ, _GATHER):
            return
        top = mine.op_id.parts[0]
        sides = [{tensor.index: tensor for tensor in each.inputs} for each in (golden, mine)]
        if mine.type == _GATHER:
            self._note_gather(top, sides[0], sides[1])
            return
        # inputs: the caches, and what says where the tokens of this step lie in them
        caches, places = ((2, 3), 4) if mine.type == _CACHE_WRITE else ((1, 2), 3)
        if any(place not in side for side in sides for place in (*caches, places)):
            return
        rows = [
            _rows(each.type, side, places) for each, side in zip((golden, mine), sides, strict=True)
        ]
        known = [[logical_shape(side[place]) for place in caches] for side in sides]
        if known[0] == known[1] and rows[0] == rows[1]:
            return
        content = _content(sides[0][places], sides[1][places], top)
        if content is not None:
            self._places.add(content)
        for first, second in zip(*known, strict=True):
            cache = _Cache(top, first, second)
            # what attention reads covers what was written just before
            if len(first) == len(second) == 4 and (
                mine.type == _CACHE_READ or cache not in self._rows
            ):
                self._rows[cache] = rows[0], rows[1]

    def _note_gather(self, top: int, golden: dict[int, Tensor], mine: dict[int, Tensor]) -> None:
        if any(place not in side for side in (golden, mine) for place in (0, 1)):
            return
        tables = logical_shape(golden[0]), logical_shape(mine[0])
        small, large = tables if self._ratio > 0 else tables[::-1]
        if abs(self._ratio) > 1 and small and small[0] * abs(self._ratio) == large[0]:
            content = _content(golden[1], mine[1], top)
            if content is not None:
                self._indices[content] = small[0]


def _rows(kind: str, inputs: dict[int, Tensor], places: int) -> tuple[int, ...]:
    """Rows of a cache ``[blocks * block size, ...]`` that the tokens of a step have, in order."""
    addresses = _small(inputs[places])
    if addresses is None:
        raise ValueError("no addresses")
    if kind == _CACHE_WRITE:
        return tuple(addresses.reshape(-1).tolist())
    lengths = _small(inputs[4]) if 4 in inputs else None
    if lengths is None or lengths.size != addresses.shape[0]:
        raise ValueError("no lengths")
    size = logical_shape(inputs[1])[1]
    return tuple(
        int(table[position // size]) * size + position % size
        for table, length in zip(addresses, lengths.reshape(-1).tolist(), strict=True)
        for position in range(length)
    )


def _content(golden: Tensor, mine: Tensor, top: int) -> _Content | None:
    values = _small(golden), _small(mine)
    if values[0] is None or values[1] is None:
        return None
    return _Content(top, values[0].tobytes(), values[1].tobytes())


def _small(tensor: Tensor) -> Array | None:
    """Values of an index tensor; None for any other."""
    is_index = tensor.dtype.label.startswith(("int", "uint"))
    if not is_index or prod(tensor.shape) > _MAX_ADDRESSES or not tensor.has_data:
        return None
    return tensor.numpy()
