"""Atoms of two programs: what was computed once, on either side, and which of them are the same.

An atom is one tensor as it was computed, as a row of elements. Pieces say that some elements of an
atom are those of another one: of what both programs share, or of what was copied.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from math import prod

from ait_llm.match.programs.boxes import Axis, Box, Dim, Shape, joined, refined, split_at, whole

TOKEN = 1 << 40
"""How far two tokens lie apart where programs have other rows: behind all that one token has."""
_DEEPEST = 16  # pieces of pieces that are followed
_Axes = tuple[tuple[int, int, int], ...]  # elements, stride here, stride in another atom


@dataclass(frozen=True, slots=True)
class _Piece:
    """Elements of one atom that are elements of another.

    Attributes:
        offset: of the first one.
        axes: number of elements, stride in the atom and in the other one; the largest stride first.
        target: the other atom, and the offset there.
    """

    offset: int
    axes: _Axes
    target: int
    target_offset: int

    def reversed(self, atom: int) -> _Piece | None:
        """Elements of the other atom that are elements of this one; None if one is many there."""
        if not all(stride for _, _, stride in self.axes):
            return None
        back = sorted(((n, to, by) for n, by, to in self.axes), key=_by_stride, reverse=True)
        return _Piece(self.target_offset, tuple(back), atom, self.offset)

    def carry(self, box: Box) -> Box | None:
        """A box within the piece as a box of the other atom; None if it reaches beyond."""
        rest = box.offset - self.offset
        if rest < 0:
            return None
        offset, room, strides = self.target_offset, [], []
        for size, stride, other in self.axes:
            digit, rest = divmod(rest, stride)
            if digit >= size:
                return None
            offset += digit * other
            room.append(size - 1 - digit)
            strides.append(stride)
        if rest:
            return None
        dims = []
        for dim in box.dims:
            axes: list[Axis] = []
            for size, stride in split_at(dim, strides):
                if not stride:
                    axes.append((size, 0))
                    continue
                place = 0
                while place < len(strides) and stride % strides[place]:
                    place += 1
                if place == len(strides):
                    return None
                times = stride // strides[place]
                room[place] -= (size - 1) * times
                if room[place] < 0:
                    return None
                axes.append((size, times * self.axes[place][2]))
            dims.append(joined(axes))
        return Box(self.target, offset, tuple(dims))


class Atoms:
    """All atoms of two programs."""

    def __init__(self) -> None:
        self._sizes = array("q", [0])
        self._pieces: dict[int, tuple[_Piece, ...]] = {}
        self._sources: dict[int, tuple[int, ...]] = {}  # atoms of which elements are here
        self._shared: set[int] = set()
        self._known: dict[Hashable, int] = {}
        self._layouts: dict[_Axes, _Axes] = {}  # a program has few, and many pieces

    def new(self, size: int = 0) -> int:
        """An atom of its own; its number of elements is 0 where nobody asks for it."""
        self._sizes.append(size)
        return len(self._sizes) - 1

    def of(self, key: Hashable) -> int:
        """The atom of a computation: the same for both programs."""
        if key not in self._known:
            self._known[key] = self.new()
        return self._known[key]

    def resolved(self, box: Box) -> Box:
        """A box of the atom where its elements come from."""
        for _ in range(_DEEPEST):
            for piece in self._pieces.get(box.atom, ()):
                carried = piece.carry(box)
                if carried is not None:
                    box = carried
                    break
            else:
                break
        return box

    def is_shared(self, box: Box) -> bool:
        """True if a resolved box is of values that are linked."""
        return box.atom in self._shared

    def anchor(self, left: Box, right: Box, tokens: bool) -> None:
        """Say that two boxes of one shape hold the same elements.

        Args:
            left, right: of either side.
            tokens: True if their first dim is tokens, of which the sides may have other ones.
        """
        left, right = self.resolved(left), self.resolved(right)
        if left.atom in self._shared:
            self.add(right, _with_tokens_of(right, left) if tokens else left)
            return
        if right.atom in self._shared:
            self.add(left, _with_tokens_of(left, right) if tokens else right)
            return
        if not tokens and self._is_whole(left) and left.shape == right.shape:
            self._shared.add(left.atom)
            self.add(right, left)
            return
        atom = self.new()
        self._shared.add(atom)
        if tokens:
            self.add(left, _tokens_of(atom, left.shape))
            self.add(right, _tokens_of(atom, right.shape))
        else:
            shared = _laid(atom, left, right)
            self.add(left, shared)
            self.add(right, shared)

    def add(self, box: Box, target: Box) -> None:
        """Say that the elements of a box are those of another one, which has its shape."""
        axes: list[tuple[int, int, int]] = []
        for pair in zip(box.dims, target.dims, strict=True):
            found = refined(pair)
            if found is None:
                return
            axes += [(size, strides[0], strides[1]) for size, strides in found if strides[0]]
        # a program with other rows has as many tokens as it has
        axes = [(TOKEN if min(by, to) >= TOKEN else size, by, to) for size, by, to in axes]
        axes.sort(key=_by_stride, reverse=True)
        if len({stride for _, stride, _ in axes}) != len(axes) or box.atom == target.atom:
            return
        layout = tuple(axes)
        layout = self._layouts.setdefault(layout, layout)
        piece = _Piece(box.offset, layout, target.atom, target.offset)
        self._pieces[box.atom] = (*self._pieces.get(box.atom, ()), piece)
        known = self._sources.get(target.atom, ())
        if box.atom not in known:
            self._sources[target.atom] = (*known, box.atom)

    def around(self, box: Box) -> Iterator[Box]:
        """The same elements as boxes of atoms that hold them among others."""
        for atom in self._sources.get(box.atom, ()):
            for piece in self._pieces[atom]:
                back = piece.reversed(atom) if piece.target == box.atom else None
                carried = None if back is None else back.carry(box)
                if carried is not None:
                    yield carried

    def parts(self, atom: int) -> Iterator[tuple[Box, Box]]:
        """Elements of an atom that are all of what another atom gave it.

        Yields:
            The elements in the atom, and in the atom where they come from; each once, as one dim,
            both in the order of the second one.
        """
        for piece in self._pieces.get(atom, ()):
            dims = tuple(((size, stride),) for size, stride, _ in piece.axes if size > 1)
            origin = self.resolved(Box(atom, piece.offset, dims))
            axes: list[tuple[int, int, int]] = []
            for [(size, stride)], targets in zip(dims, origin.dims, strict=True):
                for length, to in targets:
                    size //= length
                    axes.append((to, length, stride * size))
            if origin.atom == atom or len({to for to, _, _ in axes} - {0}) != len(axes):
                continue
            axes.sort(reverse=True)
            yield (
                Box(atom, piece.offset, (joined([(length, by) for _, length, by in axes]),)),
                replace(origin, dims=(joined([(length, to) for to, length, _ in axes]),)),
            )

    def _is_whole(self, box: Box) -> bool:
        """True for all elements of an atom, each once, in their order."""
        is_all = 0 < prod(box.shape) == self._sizes[box.atom]
        return is_all and box == whole(box.atom, box.shape)


def _by_stride(axis: tuple[int, int, int]) -> int:
    return axis[1]


def _with_tokens_of(box: Box, target: Box) -> Box:
    """A box of tokens with as many of them as another one has."""
    if len(target.dims[0]) != 1 or target.dims[0][0][1] != TOKEN or len(box.dims[0]) != 1:
        return target
    return replace(target, dims=(((box.dims[0][0][0], TOKEN),), *target.dims[1:]))


def _laid(atom: int, left: Box, right: Box) -> Box:
    """A new atom in the shape of both boxes; what either repeats stands in it once."""
    dims: list[Dim] = []
    behind = 1
    for pair in zip(reversed(left.dims), reversed(right.dims), strict=True):
        axes: list[Axis] = []
        found = refined(pair)
        if found is None:
            return whole(atom, left.shape)
        for size, strides in reversed(found):
            axes.insert(0, (size, behind if all(strides) else 0))
            behind *= size if all(strides) else 1
        dims.insert(0, joined(axes))
    return Box(atom, 0, tuple(dims))


def _tokens_of(atom: int, shape: Shape) -> Box:
    """All elements of a new atom, in this shape, the first dim of which is tokens."""
    inner = whole(atom, shape[1:])
    first: Dim = ((shape[0], TOKEN),) if shape[0] > 1 else ()
    return Box(atom, 0, (first, *inner.dims))
