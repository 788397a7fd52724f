"""What operators compute, written in one way.

A computation gets the same atom on both sides if it is the same computation of the same elements.
Movement between operators does not count: what is done element by element is written down in the
order of the elements it reads, and so are the free axes of sums and products. Spellings are
reduced to few: a difference is a sum with a negative, a quotient a product with a reciprocal,
a mean a part of a sum.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import prod

from ait_llm.match.programs.atoms import TOKEN, Atoms
from ait_llm.match.programs.boxes import Axis, Box, Dim, Shape, joined, refined, whole

Operand = Box | float
_COMMUTATIVE = frozenset(
    {"add", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or", "logical_and", "logical_or"}
)


class Terms:
    """Computations of one program.

    Args:
        atoms: those of both programs.
        side: number of the program.
        tokens: its rows, where the other program has other ones; 0 where both have the same.
    """

    def __init__(self, atoms: Atoms, side: int, tokens: int) -> None:
        self._atoms = atoms
        self._side = side
        self._tokens = tokens
        self._softmax: dict[Box, Box] = {}  # what a softmax along the last dim was computed of
        self._totals: dict[Box, Box] = {}  # what was summed along the last dim
        self._chances: dict[Box, Box] = {}  # scores of the largest of a softmax

    def elementwise(
        self, name: str, operands: Sequence[Operand], shape: Shape, flags: Hashable = ()
    ) -> Box | None:
        """What is computed element by element, with operands spread out to ``shape``."""
        spread: list[Operand | None] = [
            self._atoms.resolved(each).expanded(shape) if isinstance(each, Box) else _number(each)
            for each in operands
        ]
        given = [each for each in spread if each is not None]
        if len(given) != len(spread):
            return None
        if name in _COMMUTATIVE:
            given.sort(key=_rank)
        boxes = [each for each in given if isinstance(each, Box)]
        axes = _common([box.dims for box in boxes], len(shape))
        if not boxes or axes is None:
            return None
        heads = tuple((e.atom, e.offset) if isinstance(e, Box) else e for e in given)
        return self._made((name, flags, heads), axes, len(shape))

    def reduced(
        self, name: str, box: Box, dims: Sequence[int], keep: bool, flags: Hashable = ()
    ) -> Box | None:
        """What is computed of all elements along some dims.

        Args:
            name: of the computation.
            box: what is read.
            dims: which are reduced, counted from 0.
            keep: True if they stay, with one element each.
            flags: what else decides the result.
        """
        box = self._atoms.resolved(box)
        inner = tuple(sorted((axis for dim in dims for axis in box.dims[dim]), key=_slowest))
        left = [() if number in dims else dim for number, dim in enumerate(box.dims)]
        axes = _common([left], len(left))
        if axes is None:
            return None
        made = self._made((name, flags, box.atom, box.offset, joined(inner)), axes, len(left))
        if keep:
            if name == "sum" and list(dims) == [len(box.dims) - 1]:
                self._totals[self._atoms.resolved(made)] = box
            return made
        return Box(
            made.atom,
            made.offset,
            tuple(dim for number, dim in enumerate(made.dims) if number not in dims),
        )

    def along(self, name: str, box: Box, dim: int, flags: Hashable = ()) -> Box | None:
        """What is computed of all elements along one dim, and has as many of them."""
        box = self._atoms.resolved(box)
        axes = _common([box.dims], len(box.dims))
        if axes is None:
            return None
        key = (name, flags, box.atom, box.offset, box.dims[dim])
        made = self._made(key, axes, len(box.dims), dim)
        if name == "softmax" and dim == len(box.dims) - 1:
            self._softmax[self._atoms.resolved(made)] = box
        return made

    def largest(self, box: Box, count: int) -> Box | None:
        """The largest elements along the last dim, in falling order."""
        box = self._atoms.resolved(box)
        axes = _common([box.dims[:-1]], len(box.dims) - 1)
        if axes is None:
            return None
        last = len(box.dims) - 1
        axes.append((count, (0,), last))
        key = ("largest", count, box.atom, box.offset, box.dims[-1])
        made = self._made(key, axes, len(box.dims), last)
        scores = self._softmax.get(box)
        chances = None if scores is None else self.largest(scores, count)
        if chances is not None:
            self._chances[self._atoms.resolved(made)] = chances
        return made

    def share(self, part: Box, total: Box) -> Box | None:
        """A quotient that is a softmax: chances of the largest by their sum; None for others.

        Softmax keeps the order, and what it divides by is the same in part and total.
        """
        part, total = self._atoms.resolved(part), self._atoms.resolved(total)
        chances = self._chances.get(part)
        if chances is None or self._totals.get(total) != part:
            return None
        return self.along("softmax", chances, len(chances.dims) - 1)

    def product(self, one: Box, other: Box) -> Box | None:
        """Matrices ``[…, m, k]`` times ``[…, k, n]``."""
        one, other = self._atoms.resolved(one), self._atoms.resolved(other)
        if len(one.dims) < 2 or len(other.dims) < 2:
            return None
        batch = max(len(one.dims), len(other.dims)) - 2
        shape = [
            max(sizes)
            for sizes in zip(
                (1,) * (batch + 2 - len(one.dims)) + one.shape[:-2],
                (1,) * (batch + 2 - len(other.dims)) + other.shape[:-2],
                strict=True,
            )
        ]
        first = one.expanded((*shape, *one.shape[-2:]))
        second = other.expanded((*shape, *other.shape[-2:]))
        if first is None or second is None:
            return None
        inner = refined((first.dims[-1], second.dims[-2]))
        spread = [((n, 0),) if n > 1 else () for n in (one.shape[-2], other.shape[-1])]
        axes = _common(
            [
                (*first.dims[:-1], spread[1]),
                (*second.dims[:-2], spread[0], second.dims[-1]),
            ],
            batch + 2,
        )
        if inner is None or axes is None:
            return None
        summed = _merged(sorted(inner, key=_slowest_axes))
        key = ("product", one.atom, one.offset, other.atom, other.offset, summed)
        return self._made(key, axes, batch + 2)

    def joined(self, parts: Sequence[Box], dim: int) -> Box | None:
        """Tensors one behind the other along one dim; one tensor if they are its neighbours."""
        boxes = [self._atoms.resolved(part) for part in parts]
        merged = boxes[0]
        for box in boxes[1:]:
            grown = _grown(merged, box, dim)
            if grown is None:
                break
            merged = grown
        else:
            return merged
        axes = _common(
            [(*box.dims[:dim], (), *box.dims[dim + 1 :]) for box in boxes], len(box.dims)
        )
        if axes is None:
            return None
        sizes = [prod(size for size, _ in box.dims[dim]) for box in boxes]
        heads = tuple((box.atom, box.offset, box.dims[dim]) for box in boxes)
        axes.append((sum(sizes), (0,) * len(boxes), dim))
        made = self._made(("joined", heads), axes, len(boxes[0].dims), dim)
        start = 0
        for box, size in zip(boxes, sizes, strict=True):
            part = made.narrowed(dim, start, size)
            if part is not None and self._atoms.resolved(part).atom == made.atom:
                self._atoms.add(part, box)
            start += size
        return made

    def other(self, key: Hashable, boxes: Sequence[Box], shape: Shape, spread: bool) -> Box:
        """Anything else: the same if it reads the same elements in the same shapes.

        Args:
            key: what decides the result besides what is read.
            boxes: what is read.
            shape: of the result.
            spread: True if its size depends on the rows of the program.
        """
        read = tuple(self._atoms.resolved(box) for box in boxes)
        own = self._side if spread or any(_has_tokens(box) for box in read) else -1
        return whole(self._atoms.of((key, read, shape, own if self._tokens else -1)), shape)

    def _made(self, key: Hashable, axes: Sequence[_Place], count: int, behind: int = -1) -> Box:
        """The atom of a computation, seen as its result.

        Args:
            key: what is computed, and of what.
            axes: those of the result, with strides in what is read.
            count: dims of the result.
            behind: the dim that the computation runs along, which lies innermost; -1 for none.
        """
        order = sorted(
            (number for number, (_, strides, _) in enumerate(axes) if any(strides)),
            key=lambda number: _slowest_place(axes[number]),
        )
        free = [number for number in order if axes[number][2] != behind]
        merged = _merged([axes[number][:2] for number in free])
        atom = self._atoms.of((key, self._free(merged)))
        strides: dict[int, int] = {}
        inner, outer = 1, TOKEN
        along = [number for number, axis in enumerate(axes) if axis[2] == behind]
        for number in (*reversed(along), *reversed(free)):
            size, read, _ = axes[number]
            if max(read) >= TOKEN and number in free:
                strides[number], outer = outer, outer * size
            else:
                strides[number], inner = inner, inner * size
        dims: list[list[Axis]] = [[] for _ in range(count)]
        for number, (size, _, dim) in enumerate(axes):
            dims[dim].append((size, strides.get(number, 0)))
        return Box(atom, 0, tuple(map(joined, dims)))

    def _free(self, axes: Sequence[_Axes]) -> Hashable:
        """Axes for a key: all tokens are the same axis, whatever their number."""
        tokens = [axis for axis in axes if max(axis[1]) >= TOKEN]
        if not self._tokens or not tokens:
            return tuple(axes)
        (size, strides), rest = tokens[0], axes[1:]
        if len(tokens) == 1 and size == self._tokens and set(strides) <= {0, TOKEN}:
            return (("tokens", strides), *rest)
        return (self._side, *axes)


_Axes = tuple[int, tuple[int, ...]]  # size, and a stride in each of what is read
_Place = tuple[int, tuple[int, ...], int]  # and the dim of the result where the axis stands


def _common(tensors: Sequence[Sequence[Dim]], count: int) -> list[_Place] | None:
    """The axes that all tensors have in common, dim by dim; None if they are cut differently."""
    found: list[_Place] = []
    for number in range(count):
        axes = refined([dims[number] for dims in tensors])
        if axes is None:
            return None
        found += [(size, strides, number) for size, strides in axes]
    return found


def _merged(axes: Sequence[_Axes]) -> tuple[_Axes, ...]:
    """Neighbours that lie as one in everything that is read, as one."""
    found: list[_Axes] = []
    for size, strides in axes:
        if found and found[-1][1] == tuple(size * stride for stride in strides):
            found[-1] = (found[-1][0] * size, strides)
        elif size > 1:
            found.append((size, strides))
    return tuple(found)


def _grown(box: Box, behind: Box, dim: int) -> Box | None:
    """Two boxes as one if the second one lies behind the first along a dim."""
    others = [each.dims[:dim] + each.dims[dim + 1 :] for each in (box, behind)]
    if box.atom != behind.atom or others[0] != others[1] or len(box.dims[dim]) != 1:
        return None
    size, stride = box.dims[dim][0]
    more = behind.dims[dim] or ((1, stride),)
    if len(more) != 1 or more[0][1] != stride or behind.offset != box.offset + size * stride:
        return None
    return replace(
        box, dims=(*box.dims[:dim], ((size + more[0][0], stride),), *box.dims[dim + 1 :])
    )


def _has_tokens(box: Box) -> bool:
    return any(stride >= TOKEN for dim in box.dims for _, stride in dim)


def _number(value: float) -> float:
    """A number to twelve digits: what was divided is what was multiplied by the reciprocal."""
    return float(f"{value:.12g}")


def _rank(operand: Operand) -> tuple[int, int, int, tuple[Dim, ...], float]:
    if isinstance(operand, Box):
        return 0, operand.atom, operand.offset, operand.dims, 0.0
    return 1, 0, 0, (), operand


def _slowest(axis: Axis) -> tuple[int, int]:
    return -axis[1], axis[0]


def _slowest_axes(axes: _Axes) -> tuple[bool, tuple[int, ...], int]:
    size, strides = axes
    return max(strides) < TOKEN, tuple(-stride for stride in strides), size


def _slowest_place(place: _Place) -> tuple[bool, tuple[int, ...], int]:
    return _slowest_axes(place[:2])
