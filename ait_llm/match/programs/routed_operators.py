"""Which tensors of operators within experts answer each other, row by row; see ``routed_rows``."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.formats.elements import Array
from ait_llm.match.programs.anchors.ports import Port, PortKey, key_of
from ait_llm.match.programs.likeness import Likeness
from ait_llm.match.programs.links import LIKELY
from ait_llm.match.programs.routed_blocks import Block
from ait_llm.match.programs.routed_rows import RowSigns, signed_values
from ait_llm.match.programs.shapes import Views
from ait_llm.match.programs.signs import Signed, Signs, cells, mixed, whole_rows
from ait_llm.match.views import Reshape, Rows, View
from ait_llm.program.describe import is_float, shape_of
from ait_llm.program.flow import Use, Value

_REASON = "the same computation of tokens that were sent to the same expert"
_FOREIGN = 1 << 40  # rows of the right side that the left one does not have
_Known = dict[int, tuple[Value, Signed]]


def signed_ports(
    blocks: tuple[Block, Block],
    choices: tuple[Array, Array],
    row_of: Mapping[int, int],
    likeness: Likeness,
    known: Collection[PortKey],
) -> Iterator[tuple[PortKey, Port]]:
    """Ports by the tensor of the left side.

    Args:
        blocks: of either side, which answer each other.
        choices: experts of each row of either side.
        row_of: right row by left row.
        likeness: tensors that hold the same elements.
        known: tensors of the left side that have ports already.
    """
    back = {other: row for row, other in row_of.items()}
    rows = (
        list(range(blocks[0].rows)),
        [back.get(row, _FOREIGN + row) for row in range(blocks[1].rows)],
    )
    outside = _outside(blocks, choices, rows, likeness)
    sides: list[_Known] = []
    for block, choice, given in zip(blocks, choices, outside, strict=True):
        ops = (block.unit.op, *block.inside)
        if not given:
            return
        found = RowSigns(block.side, ops, given, block.number_of)
        if not found.seeds or not _is_confirmed(block, choice, found):
            return
        sides.append(signed_values(block.side, ops, found.signs))
    seen: set[tuple[PortKey, PortKey]] = set()
    for number in (0, 1):
        others = _Rows(sides[1 - number])
        for op, tensor in _tensors(blocks[number]):
            value = blocks[number].side.value(op, tensor)
            if value is None or value.number not in sides[number]:
                continue
            signed = sides[number][value.number][1]
            if number == 0 and key_of(op, tensor) in known:
                continue
            for partner, mine, theirs in others.answers(signed):
                use = _use(partner, tensor)
                views = (
                    _views(tensor, signed, mine),
                    _views(use.tensor, sides[1 - number][partner.number][1], theirs),
                )
                uses = (Use(op, tensor), use)
                left, right = uses if number == 0 else uses[::-1]
                keys = key_of(left.op, left.tensor), key_of(right.op, right.tensor)
                if keys not in seen:
                    seen.add(keys)
                    both = Views(*(views if number == 0 else views[::-1]))
                    yield keys[0], Port(right.op, right.tensor, both, LIKELY, _REASON)


def _outside(
    blocks: tuple[Block, Block],
    choices: tuple[Array, Array],
    rows: tuple[list[int], list[int]],
    likeness: Likeness,
) -> tuple[dict[int, Signed], dict[int, Signed]]:
    """Signs of the hidden states and of the weights that the router gives the chosen experts."""
    found: tuple[dict[int, Signed], dict[int, Signed]] = ({}, {})
    chances: tuple[dict[int, Hashable], dict[int, Hashable]] = ({}, {})
    for number, (block, choice) in enumerate(zip(blocks, choices, strict=True)):
        source, hidden = block.unit.source, block.hidden
        shape = None if hidden is None else shape_of(hidden)
        if source is None or not shape:
            return {}, {}
        found[number][source.number] = whole_rows(shape, rows[number], "hidden")
        for op, tensor in _tensors(block):
            value, shape = block.side.value(op, tensor), shape_of(tensor)
            if value is None or not shape:
                continue
            if shape[-1] == choice.shape[1] and prod(shape) == choice.size:
                elements = likeness.elements_of(number, value, tensor)
                if elements is not None and value is not source:
                    chances[number][value.number] = elements
    both = set(chances[0].values()) & set(chances[1].values())
    names = {elements: place for place, elements in enumerate(both)}
    for number, block in enumerate(blocks):
        for op, tensor in _tensors(block):
            value, shape = block.side.value(op, tensor), shape_of(tensor)
            elements = None if value is None else chances[number].get(value.number)
            if value is not None and shape and elements in names:
                count = choices[number].shape[1]
                signs = cells(count, rows[number], "chance", names[elements])
                found[number].setdefault(value.number, signs)
    return found


def _is_confirmed(block: Block, choice: Array, found: RowSigns) -> bool:
    """True if experts met the rows that the choice sends to them, and no others."""
    source = block.unit.source
    assert source is not None
    hidden = found.signs[source.number].signs.reshape(-1, 1)
    expected = mixed("expert", choice.astype(np.uint64), hidden)
    first = [
        seeds for read, seeds in found.seeds if bool(np.isin(read, hidden).all()) and seeds.size
    ]
    return bool(first) and all(bool(np.isin(seeds, expected).all()) for seeds in first)


@dataclass(frozen=True)
class _Found:
    """Rows of all values of a side with one width, by their signs.

    Attributes:
        signs: ascending.
        owners: number of the value of each.
    """

    signs: Signs
    owners: Array


class _Sorted:
    """Where signs stand among those of a value."""

    def __init__(self, signs: Signs) -> None:
        self._order = np.argsort(signs, kind="stable")
        self._signs = signs[self._order]

    def places(self, wanted: Signs) -> Array | None:
        """Where each wanted sign stands; None if one of them is missing."""
        found = np.searchsorted(self._signs, wanted).clip(0, self._signs.size - 1)
        return self._order[found] if np.array_equal(self._signs[found], wanted) else None


class _Rows:
    """The values of a side by the signs of their rows."""

    def __init__(self, known: _Known) -> None:
        self._known = known
        self._orders: dict[int, _Sorted] = {}
        self._by_width: dict[int, _Found] = {}
        for width in {signed.width for _, signed in known.values()}:
            chosen = [(n, s.signs.reshape(-1)) for n, (_, s) in known.items() if s.width == width]
            signs = np.concatenate([signs for _, signs in chosen])
            owners = np.repeat([number for number, _ in chosen], [s.size for _, s in chosen])
            order = np.argsort(signs, kind="stable")
            self._by_width[width] = _Found(signs[order], owners[order])

    def answers(self, signed: Signed) -> Iterator[tuple[Value, Array, Array]]:
        """Values that hold all rows that are no zeros; else those of which all rows are here.

        Yields:
            A value, rows of the tensor that was asked about, and the same rows of the value.
        """
        flat = signed.signs.reshape(-1)
        own = np.flatnonzero(flat)
        every = self._by_width.get(signed.width)
        if not own.size or every is None:
            return
        for number in self._owners(every, flat[own[0]]):
            rows = self._sorted(number).places(flat[own])
            if rows is not None:
                yield self._known[number][0], own, rows
                return
        left, whole = flat != 0, _Sorted(flat)
        while left.any():
            first = int(left.argmax())
            left[first] = False
            for number in reversed(self._owners(every, flat[first])):
                theirs = self._known[number][1].signs.reshape(-1)
                rows = np.flatnonzero(theirs)
                mine = whole.places(theirs[rows])
                if mine is not None:
                    left[mine] = False
                    yield self._known[number][0], mine, rows
                    break

    def _owners(self, every: _Found, sign: np.uint64) -> list[int]:
        """Numbers of the values with a sign, the smallest value first."""
        first, last = (np.searchsorted(every.signs, sign, side=side) for side in _SIDES)
        found = {int(each) for each in every.owners[first:last]}
        return sorted(found, key=lambda number: (self._known[number][1].signs.size, number))

    def _sorted(self, number: int) -> _Sorted:
        """The rows of a value; the joined ones are asked for by every expert."""
        if number not in self._orders:
            self._orders[number] = _Sorted(self._known[number][1].signs.reshape(-1))
        return self._orders[number]


_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


def _tensors(block: Block) -> Iterator[tuple[int, Tensor]]:
    """Floating-point tensors of the block's operations."""
    for op in (block.unit.op, *block.inside):
        for tensor in block.side.operations[op].tensors:
            if is_float(tensor):
                yield op, tensor


def _use(value: Value, tensor: Tensor) -> Use:
    """Where a value is shown in the role that a tensor has."""
    return next((use for use in value.uses if use.role == tensor.role), value.uses[0])


def _views(tensor: Tensor, signed: Signed, rows: Array) -> tuple[View, ...]:
    """Views down to some rows, or elements, of a tensor."""
    shape, width = shape_of(tensor) or (), signed.width or 1
    count = prod(shape) // width
    views: list[View] = [] if shape == (count, width) else [Reshape((count, width))]
    chosen = tuple(int(row) for row in rows)
    if chosen != tuple(range(count)):
        views.append(Rows(0, chosen))
    return tuple(views)
