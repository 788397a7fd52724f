"""Tensors of two programs that hold the same elements, whatever led to them.

What is linked already says which atoms both programs share; what is computed from them, and what
only moves them, follows. One tensor then answers another one if it holds the same elements, in the
same or another order, or all of them among others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.match.programs.atoms import TOKEN, Atoms
from ait_llm.match.programs.boxes import Axis, Box, Shape, split_at
from ait_llm.match.programs.links import AMBIGUOUS, Link, Links
from ait_llm.match.programs.meaning import Meaning, has_operators
from ait_llm.match.programs.shapes import make_views
from ait_llm.match.programs.terms import Terms
from ait_llm.match.programs.tokens import Tokens
from ait_llm.match.views import Part, Reorder, Reshape, Rows, View
from ait_llm.program.describe import is_float, shape_of
from ait_llm.program.flow import Value
from ait_llm.program.program import Program

_MOST = 64  # tensors that are tried as one that holds another
_HEADS = 4  # dims of keys: requests, heads, tokens and columns


@dataclass(frozen=True, slots=True)
class Alike:
    """A value of one side that holds what a tensor of the other side does.

    Attributes:
        value: of the other side.
        box: the elements of the tensor, as those of the value's atom; each once, in their order.
        part: which elements of the tensor they are, in the order of ``box``; None for all.
    """

    value: Value
    box: Box
    part: Box | None = None


class _Holders:
    """Which values of a side are of an atom.

    Args:
        atoms: that of each value, by its number; 0 for none.

    Attributes:
        by_key: values by their elements, for atoms that somebody asked for.
    """

    def __init__(self, atoms: Iterable[int]) -> None:
        every = np.fromiter(atoms, dtype=np.int64)
        self._order = np.argsort(every, kind="stable")
        self._sorted = every[self._order]
        self.by_key: dict[int, dict[Hashable, list[Value]]] = {}

    def of(self, atom: int) -> list[int]:
        """Numbers of the values of an atom, in their order."""
        first, last = np.searchsorted(self._sorted, (atom, atom + 1))
        numbers: list[int] = self._order[first:last].tolist() if atom else []
        return numbers


def _by_size(found: tuple[int, int, Alike]) -> tuple[int, int]:
    return found[:2]


class Likeness:
    """Which tensors of two programs hold the same elements.

    It is worked out when it is first asked for; links that are made after that are not in it.

    Args:
        left, right: the programs.
        tokens: alignment of their rows.
        links: what is linked already.
    """

    def __init__(self, left: Program, right: Program, tokens: Tokens | None, links: Links) -> None:
        self._sides = left, right
        self._tokens = tokens
        counts = (
            (0, 0) if tokens is None or tokens.is_plain else (tokens.left.count, tokens.right.count)
        )
        self._counts = counts
        self._atoms = Atoms()
        self._links = links
        self._of_tokens: dict[int, bool] = {}
        self._are_operators = all(map(has_operators, self._sides))

    @cached_property
    def _meanings(self) -> tuple[Meaning, ...]:
        """What the elements of the values of each side are."""
        meanings = tuple(
            Meaning(side, self._atoms, Terms(self._atoms, number, self._counts[number]))
            for number, side in enumerate(self._sides)
        )
        if self._are_operators:
            self._anchor(meanings)
            for meaning in meanings:
                meaning.compute()
        return meanings

    @cached_property
    def _held(self) -> tuple[_Holders, ...]:
        """The values of each side by atom."""
        if not self._are_operators:
            return _Holders(()), _Holders(())
        return tuple(_Holders(self._atoms_of(number)) for number in (0, 1))

    def _atoms_of(self, number: int) -> Iterator[int]:
        """The atom of each value of a side; 0 where nothing is known."""
        for value in self._sides[number].flow.values:
            box = self._box(number, value, value.uses[0].tensor)
            yield 0 if box is None else box.atom

    def of(self, number: int, value: Value, tensor: Tensor) -> Alike | None:
        """What holds the elements of a tensor of one side on the other side.

        Args:
            number: 0 for a tensor of the left side, 1 for one of the right side.
            value: what the tensor is.
            tensor: in the shape that is asked for.
        """
        box = self._box(number, value, tensor)
        wanted = None if box is None else self._elsewhere(number, box.elements)
        if box is None or wanted is None:
            return None
        same = self._same(1 - number, box.atom, self._key(number, box, tensor))
        if same:
            return Alike(next((v for v in same if _shape(v) == box.shape), same[0]), wanted)
        return self._holder(1 - number, wanted, is_float(tensor))

    def parts(self, number: int, value: Value, tensor: Tensor) -> Iterator[Alike]:
        """What holds just the elements of one of the tensors that were joined to this one.

        A cache with the newest tokens behind it is such a tensor, where the other side has a cache
        of its own. Arguments as for :meth:`of`.
        """
        box = self._box(number, value, tensor)
        if box is None or _has_tokens(box):
            return
        for part, origin in self._atoms.parts(box.atom):
            if _has_tokens(origin) or laid_out(box, part, 0) is None:
                continue
            same = self._same(1 - number, origin.atom, (origin, is_float(tensor)))
            if same:
                yield Alike(same[0], origin, part)

    def _same(self, number: int, atom: int, key: Hashable) -> Sequence[Value]:
        """Values of a side that hold just the elements of a key."""
        held, values = self._held[number], self._sides[number].flow.values
        if atom not in held.by_key:
            found = held.by_key[atom] = defaultdict(list)
            for value in map(values.__getitem__, held.of(atom)):
                tensor = value.uses[0].tensor
                box = self._box(number, value, tensor)
                if box is not None:
                    found[self._key(number, box, tensor)].append(value)
        return held.by_key[atom].get(key, ())

    def elements_of(self, number: int, value: Value, tensor: Tensor) -> Hashable:
        """The same for tensors that hold the same elements in any order; None if nobody knows."""
        box = self._box(number, value, tensor)
        return None if box is None else self._key(number, box, tensor)

    def views(
        self, number: int, value: Value, tensor: Tensor, alike: Alike, other: Tensor
    ) -> tuple[tuple[View, ...], tuple[View, ...]] | None:
        """What brings a tensor and one that holds its elements to the same; None if nothing does.

        Args:
            number: of the side of the tensor.
            value: what the tensor is.
            tensor: the tensor.
            alike: what :meth:`of` found for it.
            other: where the value of the other side is looked at.
        """
        ours, theirs = self._box(number, value, tensor), self._box(1 - number, alike.value, other)
        if ours is None or theirs is None:
            return None
        elements = ours.elements if alike.part is None else alike.part
        if alike.part is None and not _has_tokens(elements):
            if ours == theirs:
                return (), ()
            if ours == theirs.view(ours.shape):
                return (), (Reshape(ours.shape),)
        counts = self._counts if _has_tokens(elements) else (0, 0)
        first = laid_out(ours, elements, counts[number])
        second = laid_out(theirs, alike.box, counts[1 - number])
        if first is None or second is None:
            return None
        if not _has_tokens(elements):
            return first, second
        return (*first, *self._rows(number)), (*second, *self._rows(1 - number))

    def _rows(self, number: int) -> tuple[View, ...]:
        """The tokens that both sides have, where a side has others."""
        if self._tokens is None:
            return ()
        chosen = tuple(pair[number] for pair in self._tokens.pairs)
        return () if chosen == tuple(range(self._counts[number])) else (Rows(0, chosen),)

    def _holder(self, number: int, wanted: Box, floats: bool) -> Alike | None:
        """The smallest value of a side that holds elements among others."""
        found: list[tuple[int, int, Alike]] = []
        for box in (wanted, *self._atoms.around(wanted)):
            for place in self._held[number].of(box.atom)[:_MOST]:
                value = self._sides[number].flow.values[place]
                tensor = value.uses[0].tensor
                theirs = self._box(number, value, tensor)
                if theirs is None or is_float(tensor) != floats:
                    continue
                if laid_out(theirs, box, 0) is not None:
                    found.append((prod(theirs.shape), value.number, Alike(value, box)))
        return min(found, key=_by_size)[2] if found else None

    def _anchor(self, meanings: Sequence[Meaning]) -> None:
        """Share the atoms of linked values, the surest first."""
        known = [link for found in self._links.of_left.values() for link in found]
        known = [link for link in known if link.confidence > AMBIGUOUS]
        for link in sorted(known, key=_by_confidence):
            rows = self._links.rows_of(link.left)
            shapes = _shape(link.left), _shape(link.right)
            if shapes[0] is None or shapes[1] is None or rows is not None:
                continue
            views = make_views(
                shapes[0], shapes[1], self._tokens, link.left_columns, link.right_columns
            )
            if views is None:
                continue
            ours = self._viewed(meanings[0], link.left, views.left)
            theirs = self._viewed(meanings[1], link.right, views.right)
            tokens = any(isinstance(view, Rows) for view in (*views.left, *views.right))
            if ours is None or theirs is None:
                continue
            if tokens and (ours.shape[0], theirs.shape[0]) != self._counts:
                continue
            if not tokens and self._may_be_cached(shapes[0]):
                continue
            if ours.shape[tokens:] == theirs.shape[tokens:]:
                self._atoms.anchor(ours, theirs, tokens)

    def _may_be_cached(self, shape: Shape) -> bool:
        """True for what may be keys of earlier passes, too, whose places are no rows of this one.

        What the pass itself makes of them is counted by rows.
        """
        return self._tokens is not None and self._tokens.by_request and len(shape) == _HEADS

    @staticmethod
    def _viewed(meaning: Meaning, value: Value, views: tuple[View, ...]) -> Box | None:
        """The box of a linked value under views that keep all rows."""
        box = meaning.box(value, value.uses[0].tensor)
        for view in views:
            if box is None:
                return None
            if isinstance(view, Reshape):
                rows = box.shape[:1] if len(box.shape) == 2 else view.shape[:1]
                shape = (*rows, *view.shape[1:]) if any(map(_is_rows, views)) else view.shape
                box = box.view(shape)
            elif isinstance(view, Reorder):
                box = box.permuted(view.axes)
            elif isinstance(view, Part):
                box = box.narrowed(view.axis, view.start, view.stop - view.start)
            elif not isinstance(view, Rows):
                return None
        return box

    def _box(self, number: int, value: Value, tensor: Tensor) -> Box | None:
        box = self._meanings[number].box(value, tensor)
        return None if box is None or 0 in box.shape else self._atoms.resolved(box)

    def _key(self, number: int, box: Box, tensor: Tensor) -> Hashable:
        """The same for boxes with the same elements in any order, on either side."""
        found = box.elements
        if not _has_tokens(found):
            known = found if number == 0 else self._in_row_of_other(number, found)
            return (number, found) if known is None else (known, is_float(tensor))
        (size, stride), *rest = found.dims[0]
        if (size, stride) != (self._counts[number], TOKEN) or _has_tokens(_with(found, rest)):
            return number, found
        return _with(found, [(0, TOKEN), *rest]), is_float(tensor)

    def _elsewhere(self, number: int, elements: Box) -> Box | None:
        """Elements as the other side has them, which may have other rows."""
        if not _has_tokens(elements):
            return self._in_row_of_other(number, elements)
        (size, stride), *rest = elements.dims[0]
        if (size, stride) != (self._counts[number], TOKEN):
            return None
        return _with(elements, [(self._counts[1 - number], TOKEN), *rest])

    def _in_row_of_other(self, number: int, elements: Box) -> Box | None:
        """Elements of one row of tokens as those of the same token of the other side.

        None where the other side has no such token. What has no tokens stays as it is.
        """
        if self._tokens is None or self._counts == (0, 0):
            return elements
        row, rest = divmod(elements.offset, TOKEN)
        if not row and not self._is_of_tokens(elements.atom):
            return elements
        other = self._partners[number].get(row)
        return None if other is None else replace(elements, offset=other * TOKEN + rest)

    @cached_property
    def _partners(self) -> tuple[dict[int, int], dict[int, int]]:
        """Rows of the other side by those of each side."""
        pairs = () if self._tokens is None else self._tokens.pairs
        return dict(pairs), {right: left for left, right in pairs}

    def _is_of_tokens(self, atom: int) -> bool:
        """True if a value of either side has several tokens of an atom."""
        if atom not in self._of_tokens:
            self._of_tokens[atom] = any(
                box is not None and _has_tokens(box)
                for number, held in enumerate(self._held)
                for value in map(self._sides[number].flow.values.__getitem__, held.of(atom))
                for box in (self._box(number, value, value.uses[0].tensor),)
            )
        return self._of_tokens[atom]


def laid_out(box: Box, wanted: Box, tokens: int) -> tuple[View, ...] | None:
    """The views that lead from a tensor to some of its elements, in a given order.

    Args:
        box: of the tensor.
        wanted: elements, each once, as one dim.
        tokens: how many there are, if the slowest axes of the elements are tokens; else 0.
    """
    if box.atom != wanted.atom or wanted.offset < box.offset:
        return None
    strides = sorted({stride for _, stride in wanted.dims[0]}, reverse=True)
    axes = [axis for dim in box.dims for axis in split_at(dim, strides)]
    own = sorted((stride for _, stride in axes if stride), reverse=True)
    goal = split_at(wanted.dims[0], own)
    lengths = {stride: size for size, stride in goal}
    rest, starts = wanted.offset - box.offset, dict[int, int]()
    for stride in own:
        starts[stride], rest = divmod(rest, stride)
    if rest or len(starts) != len(own) or lengths.keys() - starts.keys():
        return None
    views: list[View] = []
    sizes = tuple(size for size, _ in axes)
    if sizes != box.shape:
        views.append(Reshape(sizes))
    for axis, (size, stride) in enumerate(axes):
        start, length = starts.get(stride, 0), lengths.get(stride, 1)
        if start + length > size:
            return None
        if length != size:
            views.append(Part(axis, start, start + length))
    places = {stride: axis for axis, (_, stride) in enumerate(axes)}
    first = [places[stride] for _, stride in goal]
    order = (*first, *(axis for axis in range(len(axes)) if axis not in first))
    if order != tuple(range(len(axes))):
        views.append(Reorder(order))
    count = prod(size for size, _ in goal)
    if tokens and count % tokens:
        return None
    views.append(Reshape((tokens, count // tokens) if tokens else (count,)))
    return tuple(views)


def _has_tokens(box: Box) -> bool:
    return any(stride >= TOKEN for dim in box.dims for _, stride in dim)


def _with(box: Box, axes: Sequence[Axis]) -> Box:
    return replace(box, dims=(tuple(axes),))


def _is_rows(view: View) -> bool:
    return isinstance(view, Rows)


def _shape(value: Value) -> Shape | None:
    return shape_of(value.uses[0].tensor)


def _by_confidence(link: Link) -> float:
    return -link.confidence
