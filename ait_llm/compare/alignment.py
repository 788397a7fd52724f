"""Making two tensors comparable element by element, and walking both in blocks of equal places."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from ait_llm.compare.blocks import BLOCK_ELEMENTS, Block, Contiguous, blocks_of, elements_of
from ait_llm.compare.progress import Stopped
from ait_llm.compare.values import Values
from ait_llm.core import DType
from ait_llm.formats.elements import Array
from ait_llm.match.views import View

# Copied blocks leave the pages they were copied from in memory; after so many elements these are
# given back.
_KEPT_ELEMENTS = 32 * BLOCK_ELEMENTS


class ShapeMismatchError(ValueError):
    """The tensors have different shapes and no rule says how they belong together."""


class Aligned:
    """One tensor after its views, read block by block.

    Args:
        values: the opened tensor.
        views: from the match.
        stop: asks reading to end early.

    Raises:
        ValueError: a view does not fit the tensor.

    Attributes:
        shape: dims after the views.
        dtype: logical element type.
    """

    def __init__(
        self, values: Values, views: Sequence[View] = (), stop: threading.Event | None = None
    ) -> None:
        self._values = values
        self._elements = elements_of(values.array, views)
        self._stop = stop
        self.shape = self._elements.shape
        self.dtype = values.dtype

    @property
    def is_flat(self) -> bool:
        """True if any range of elements is a block."""
        return self._elements.is_flat

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def in_dims(self, shape: tuple[int, ...]) -> None:
        """Take the same elements in dims that differ by axes of length one only."""
        if not self.is_flat:
            self._elements = Contiguous(self.whole())
        self.shape = shape

    def whole(self) -> Array:
        """All elements at once; a view where nothing needs to be computed."""
        if isinstance(self._elements, Contiguous) and self.dtype is not DType.BOOL:
            self._values.check()
            return self._elements.flat.reshape(self.shape)
        blocks = list(map(self.block, blocks_of(self.shape, flat=self.is_flat)))
        joined = np.concatenate(blocks) if blocks else np.empty(0, self.type)
        return joined.reshape(self.shape)

    @property
    def type(self) -> np.dtype[np.generic]:
        """NumPy type of the blocks."""
        return self.block(Block(0, 0, (), (0, 0))).dtype

    def block(self, block: Block) -> Array:
        """The elements of a block, 1-D and contiguous; a view where that is possible.

        Raises:
            FormatError: the file became shorter meanwhile.
            Stopped: reading was asked to end.
        """
        if self._stop is not None and self._stop.is_set():
            raise Stopped
        self._values.check()
        part = self._elements.take(block)
        if self.dtype is DType.BOOL and part.dtype == np.uint8:
            return np.asarray(part != 0)
        return part

    def release(self, part: Array) -> None:
        """Give back the memory under a block, which is not needed again soon."""
        if self._values.is_mapped and self._elements.looks_at_memory and part.base is not None:
            self._values.release(part)

    def release_copied(self) -> None:
        """Give back the memory that blocks were copied from."""
        if not self._elements.looks_at_memory:
            self._values.release_all()


def align(golden: Aligned, mine: Aligned) -> tuple[int, ...]:
    """Check that two tensors have the same dims; axes of length one do not matter.

    Returns:
        The common dims, those of golden.

    Raises:
        ShapeMismatchError: they differ.
    """
    if golden.shape != mine.shape:
        if not same_dims(golden.shape, mine.shape):
            raise ShapeMismatchError(mismatch(golden.shape, mine.shape))
        mine.in_dims(golden.shape)
    return golden.shape


def same_dims(golden: tuple[int, ...], mine: tuple[int, ...]) -> bool:
    """True if two shapes differ by axes of length one at most."""
    first, second = ([length for length in shape if length != 1] for shape in (golden, mine))
    return first == second


def mismatch(golden: tuple[int, ...], mine: tuple[int, ...]) -> str:
    """Two shapes that differ, in words."""
    return f"shapes differ: golden {list(golden)}, mine {list(mine)}"


def pairs(
    golden: Aligned, mine: Aligned, *, by_rows: bool = False
) -> Iterator[tuple[Array, Array]]:
    """Blocks of both, which :func:`align` has accepted, in row-major order.

    The memory of a block is given back when the next one is asked for.

    Args:
        golden, mine: the tensors.
        by_rows: each block is some whole rows of the last axis, or a part of one row.

    Raises:
        FormatError: a file became shorter meanwhile.
        Stopped: reading was asked to end.
    """
    copied = 0
    flat = golden.is_flat and mine.is_flat and not by_rows
    for block in blocks_of(golden.shape, flat=flat):
        theirs, ours = golden.block(block), mine.block(block)
        yield theirs, ours
        golden.release(theirs)
        mine.release(ours)
        copied += block.stop - block.start
        if copied >= _KEPT_ELEMENTS:
            copied = 0
            golden.release_copied()
            mine.release_copied()
