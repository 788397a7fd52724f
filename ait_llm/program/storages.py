"""Values by the storage that holds them, as a capture of torch records it."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import TYPE_CHECKING

from ait_llm.dumps.model import Tensor
from ait_llm.dumps.tensors import Identity

if TYPE_CHECKING:
    from ait_llm.program.flow import Value

Place = tuple[int, int, int, int] | tuple[int, int, int, tuple[int, ...], tuple[int, ...]]
"""Storage, version, offset, then the elements of a row-major stretch, or dims and strides."""


class Storages:
    """Which value lies where.

    A row-major stretch of a storage is one value in whatever shape it is seen. Columns of such a
    stretch are values of their own, and pieces of it.
    """

    def __init__(self) -> None:
        self._values: dict[Place, Value] = {}
        self._stretches: dict[tuple[int, int], list[tuple[int, tuple[int, ...], Value]]]
        self._stretches = defaultdict(list)

    def find(self, place: Place) -> Value | None:
        """The value at a place; None if it is new."""
        return self._values.get(place)

    def add(self, place: Place, tensor: Tensor, identity: Identity, value: Value) -> None:
        """Remember where a value lies, and of what it is a piece."""
        from ait_llm.program.flow import Piece

        if place in self._values:
            return
        self._values[place] = value
        shape = tuple(tensor.shape)
        stretches = self._stretches[identity.storage, identity.version]
        if len(place) == 4:
            if not any(other is value for _, _, other in stretches):
                stretches.append((identity.offset, shape, value))
            return
        for offset, dims, whole in stretches:
            found = _columns(identity, shape, offset, dims)
            if found is not None and whole is not value:
                whole.add_piece(Piece(value, *found))
                return


def place_of(tensor: Tensor, identity: Identity) -> Place:
    """Where a tensor lies; the same for all shapes in which a row-major stretch is seen.

    Raises:
        AitError: its shape cannot be read.
    """
    shape = tuple(tensor.shape)
    if _is_row_major(shape, identity.strides):
        return (identity.storage, identity.version, identity.offset, prod(shape))
    return (identity.storage, identity.version, identity.offset, shape, identity.strides)


def _is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for dim, stride in zip(reversed(shape), reversed(strides), strict=False):
        if dim != 1 and stride != expected:
            return False
        expected *= dim
    return True


def _columns(
    identity: Identity, shape: tuple[int, ...], offset: int, whole: tuple[int, ...]
) -> tuple[int, int] | None:
    """First column and width if a tensor is some columns of all rows of ``whole``."""
    if not whole or not shape:
        return None
    total = whole[-1]
    rows = prod(whole) // total if total else 0
    width, axis = 1, len(shape)
    while axis and (shape[axis - 1] == 1 or identity.strides[axis - 1] == width):
        axis -= 1
        width *= shape[axis]
    expected = total
    for dim, stride in zip(reversed(shape[:axis]), reversed(identity.strides[:axis]), strict=True):
        if dim != 1 and stride != expected:
            return None
        expected *= dim
    start = identity.offset - offset
    if prod(shape[:axis]) != rows or width >= total or not 0 <= start <= total - width:
        return None
    return start, width
