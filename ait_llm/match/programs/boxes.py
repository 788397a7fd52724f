"""Where the elements of a tensor lie among those of another one, as strides.

A program looks at one value in many shapes before it computes the next: apart in heads, turned,
cut, repeated. All of these are boxes in one *atom*, the row-major elements of what was computed.
Two tensors hold the same elements in the same order if their boxes are equal, whatever led there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

Shape = tuple[int, ...]
Axis = tuple[int, int]  # number of elements, and how far they lie apart
Dim = tuple[Axis, ...]  # one dim of a tensor as axes, the slowest first


@dataclass(frozen=True, slots=True)
class Box:
    """Elements of an atom in the order in which a tensor holds them.

    Attributes:
        atom: number of the atom.
        offset: its first element.
        dims: axes of each dim of the tensor, joined as far as they can be; none for a dim of 1.
    """

    atom: int
    offset: int
    dims: tuple[Dim, ...]

    @property
    def shape(self) -> Shape:
        """Dims of the tensor."""
        sizes = []
        for dim in self.dims:
            length = 1
            for size, _ in dim:
                length *= size
            sizes.append(length)
        return tuple(sizes)

    def view(self, shape: Shape) -> Box | None:
        """In another shape with the elements in the same order; None if no strides say that."""
        axes = [axis for dim in self.dims for axis in dim]
        if any(size == 0 for size, _ in axes):
            return None  # there is no element to follow
        dims: list[Dim] = []
        for length in reversed(shape):
            taken: list[Axis] = []
            while length > 1:
                if not axes:
                    return None
                size, stride = axes.pop()
                inner = size if length % size == 0 else length
                if size % inner:
                    return None
                taken.insert(0, (inner, stride))
                if inner != size:
                    axes.append((size // inner, stride * inner))
                length //= inner
            dims.insert(0, joined(taken))
        return None if axes else replace(self, dims=tuple(dims))

    def permuted(self, axes: Sequence[int]) -> Box:
        """With its dims in another order."""
        return replace(self, dims=tuple(self.dims[axis] for axis in axes))

    def narrowed(self, dim: int, start: int, length: int, step: int = 1) -> Box | None:
        """A stretch of one dim; None if no strides say that."""
        offset, kept = self.offset, list[Axis]()
        axes = list(self.dims[dim])
        inner = prod(size for size, _ in axes)
        if start == 0 and length == inner and step == 1:
            return self
        while axes:
            size, stride = axes.pop(0)
            inner //= size
            if step == 1 and start % inner == length % inner == 0:
                offset += start // inner * stride
                kept += [(length // inner, stride), *axes]
                break
            if not axes and inner == 1:
                offset += start * stride
                kept.append((length, stride * step))
                break
            first, last = start // inner, (start + (length - 1) * step) // inner
            if first != last:
                return None
            offset += first * stride
            start -= first * inner
        return Box(self.atom, offset, (*self.dims[:dim], joined(kept), *self.dims[dim + 1 :]))

    def expanded(self, shape: Shape) -> Box | None:
        """Repeated along new dims and dims of 1."""
        full: tuple[Dim, ...] = ((),) * (len(shape) - len(self.dims)) + self.dims
        if len(full) != len(shape):
            return None
        dims = []
        for dim, length in zip(full, shape, strict=True):
            have = prod(size for size, _ in dim)
            if have not in (1, length):
                return None
            dims.append(dim if have == length else ((length, 0),))
        return replace(self, dims=tuple(dims))

    @property
    def elements(self) -> Box:
        """The same elements, each once, in the order of the atom, as one dim."""
        return Box(self.atom, self.offset, _each_once(self.dims))


def _slowest_first(axis: Axis) -> tuple[int, int]:
    return -axis[1], axis[0]


def whole(atom: int, shape: Shape) -> Box:
    """All elements of an atom of this shape."""
    return Box(atom, 0, _row_major(shape))


@lru_cache(maxsize=4096)  # most values of a program are of few shapes
def _each_once(dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    axes = {axis for dim in dims for axis in dim if axis[1]}
    return (joined(sorted(axes, key=_slowest_first)),)


@lru_cache(maxsize=4096)
def _row_major(shape: Shape) -> tuple[Dim, ...]:
    dims: list[Dim] = []
    stride = 1
    for size in reversed(shape):
        dims.insert(0, ((size, stride),) if size != 1 else ())
        stride *= size
    return tuple(dims)


def joined(axes: Sequence[Axis]) -> Dim:
    """Axes with neighbours as one where they lie as one."""
    found: list[Axis] = []
    for size, stride in axes:
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return tuple(found)


def split_at(axes: Sequence[Axis], strides: Sequence[int]) -> list[Axis]:
    """Axes cut where an axis of one of these strides, the largest first, begins within them."""
    found: list[Axis] = []
    for size, stride in axes:
        for other in strides:
            if stride and other > stride and other % stride == 0:
                inner = other // stride
                if inner < size and size % inner == 0:
                    found.append((size // inner, other))
                    size = inner
        found.append((size, stride))
    return found


def refined(dims: Sequence[Dim]) -> list[tuple[int, tuple[int, ...]]] | None:
    """The axes of one dim as several tensors see it: sizes, and a stride in each of them.

    Args:
        dims: axes of each tensor, equally many elements.

    Returns:
        The slowest first; None if they are cut at places that do not fit.
    """
    first = dims[0]
    if len(first) == 1 and all(len(dim) == 1 and dim[0][0] == first[0][0] for dim in dims):
        return [(first[0][0], tuple(dim[0][1] for dim in dims))] if first[0][0] else None
    waiting = [list(dim) for dim in dims]
    found: list[tuple[int, tuple[int, ...]]] = []
    while any(waiting):
        if not all(waiting):
            return None
        size = min(axes[-1][0] for axes in waiting)
        if not size:
            return None
        strides = []
        for axes in waiting:
            have, stride = axes.pop()
            if have % size:
                return None
            strides.append(stride)
            if have != size:
                axes.append((have // size, stride * size))
        found.insert(0, (size, tuple(strides)))
    return found
