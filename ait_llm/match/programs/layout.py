"""The order of columns in a projection that one side computes as one.

GPT-NeoX keeps query, key and value of each head together, others all queries before all keys. No
module says so. Weights do where both sides have them: their rows are the columns, in whatever order
(``weight_rows``). Else the numbers do: in one order the columns of both sides agree, in the others
they have nothing to do with each other. Only such a wide margin counts. Several layers decide
together, so that a wrong layer cannot choose its own order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.match.programs.align import Pair
from ait_llm.match.programs.columns import Columns
from ait_llm.match.programs.fuse import columns_of, columns_of_all
from ait_llm.match.programs.routers import is_router
from ait_llm.match.programs.shapes import make_views
from ait_llm.match.programs.stretches import Stretch, stretches
from ait_llm.match.programs.tokens import Tokens
from ait_llm.match.programs.weight_rows import partners
from ait_llm.match.views import apply
from ait_llm.program.describe import shape_of
from ait_llm.program.program import Column, Program, Unit
from ait_llm.program.roles import Role

_ORDERS = (("query", "key", "value"), ("gate", "up"))
_AGREE, _DIFFER = 0.9, 0.6  # cosine of the right order is near 1, of a wrong one near 0
_LAYERS = 4  # layers whose values, or weights that are not equal, are held against each other
_UNCUT = "as they stand"


@dataclass(frozen=True, slots=True)
class Piece:
    """Columns of a projection of the left side and where they are on the right side."""

    left_unit: Unit
    right_unit: Unit
    purpose: str
    left: Columns
    right: Columns

    @property
    def is_whole(self) -> bool:
        """True if all of one projection is all of another."""
        return self.left.is_all and self.right.is_all


class Layouts:
    """Decides the order of columns once for the whole model."""

    def __init__(self, left: Program, right: Program, tokens: Tokens | None) -> None:
        self._left = left
        self._right = right
        self._tokens = tokens
        self._votes: dict[tuple[str, ...], Counter[str]] = {}
        self._told: dict[tuple[str, ...], Counter[tuple[Stretch, ...]]] = {}
        self._read: Counter[tuple[str, ...]] = Counter()
        self._places: dict[tuple[int, int], tuple[str, ...]] = {}
        self._own: dict[tuple[int, int], tuple[Stretch, ...]] = {}

    def learn(self, pairs: Sequence[Pair]) -> None:
        """Look at the weights of projections, and at the first ones that one side joins.

        Args:
            pairs: all of a block; layers are alike where theirs come in the same order.
        """
        for number, pair in enumerate(pairs):
            ops = pair.left[0].op, pair.right[0].op
            place = self._places[ops] = (str(number), *self._place(pair))
            told = self._told.setdefault(place, Counter())
            self._read[place] += 1
            found = self._by_weights(pair, near=self._read[place] <= _LAYERS)
            if found is not None:
                told[found] += 1
                self._own[ops] = found
                continue
            candidates = self._candidates(pair)
            if len(candidates) < 2:
                continue
            votes = self._votes.setdefault(self._key(pair), Counter())
            if votes.total() >= _LAYERS:
                continue
            scores = {name: self._values_agree(pieces) for name, pieces in candidates.items()}
            best = max(scores, key=lambda name: scores[name])
            rivals = [score for name, score in scores.items() if name != best]
            if scores[best] >= _AGREE and all(score < _DIFFER for score in rivals):
                votes[best] += 1

    def pieces(self, pair: Pair) -> tuple[Sequence[Piece], bool]:
        """The pieces of a projection, and whether their order is certain; none if it is not one.

        Pieces in the same blocks of one projection on both sides are one, which needs no cutting.
        """
        told = self._told_by_weights(pair)
        if told is not None:
            return self._unless_known(pair, told), True
        candidates = self._candidates(pair)
        if not candidates:
            return (), True
        votes = self._votes.get(self._key(pair), Counter())
        name = votes.most_common(1)[0][0] if votes else next(iter(candidates))
        certain = bool(votes) and votes[name] > votes.total() - votes[name]
        pieces = candidates.get(name, [])
        if all(piece.left == piece.right for piece in pieces):
            return (), certain or self._is_same_class(pair)
        return pieces, certain

    def _by_weights(self, pair: Pair, *, near: bool) -> tuple[Stretch, ...] | None:
        """Which columns are which by the rows of the weights; None if they do not tell."""
        if pair.left[0].role is not Role.LINEAR or pair.right[0].role is not Role.LINEAR:
            return None
        if is_router(self._left, pair.left[0]) or is_router(self._right, pair.right[0]):
            return None  # its columns are numbers of experts, in no other order
        ours = [self._left.parameter(unit, "weight") for unit in pair.left]
        theirs = [self._right.parameter(unit, "weight") for unit in pair.right]
        sides = [each for each in ours if each], [each for each in theirs if each]
        if None in ours or None in theirs:
            return None
        widths = [[unit.fan_out for unit in units] for units in (pair.left, pair.right)]
        rows = partners(*sides, near=near) if sum(widths[0]) == sum(widths[1]) else None
        if rows is None or len(rows) != sum(widths[1]):
            return None
        return stretches(rows, *widths)

    def _told_by_weights(self, pair: Pair) -> list[Piece] | None:
        """The pieces that the weights of most layers tell, else those of this one."""
        ops = pair.left[0].op, pair.right[0].op
        told = self._told.get(self._places.get(ops, ()), Counter())
        found = self._own.get(ops)
        if told:
            most, count = told.most_common(1)[0]
            if found is None or 3 * count > 2 * told.total():
                found = most if 3 * count > 2 * told.total() else None
        if found is None:
            return None
        return [
            Piece(
                pair.left[each.left],
                pair.right[each.right],
                self._purpose(pair.left[each.left], pair.right[each.right], each),
                each.left_columns,
                each.right_columns,
            )
            for each in found
        ]

    def _purpose(self, left: Unit, right: Unit, stretch: Stretch) -> str:
        """What columns are for, as far as either side says; empty if it does not."""
        for side, unit, columns in (
            (self._left, left, stretch.left_columns),
            (self._right, right, stretch.right_columns),
        ):
            for column in columns_of(side, unit):
                place = (column.start, column.width)
                if not columns.parts and place == (columns.start, columns.width):
                    return column.purpose
        return ""

    @staticmethod
    def _unless_known(pair: Pair, pieces: list[Piece]) -> Sequence[Piece]:
        """Nothing where all is as the use of the columns, or the only projections, say.

        What is used as the gate on both sides is the gate, whatever weights it has: they are wrong.
        """
        if not any(piece.right.turn for piece in pieces) and len(pieces) == 1:
            return ()
        known = {
            (item.left.op, item.right.op, item.left_start, item.right_start, item.width)
            for item in pair.shares
            if item.purpose or not item.twins
        }
        if len(known) < len(pair.shares) or len(pair.left) == len(pair.right) == 1:
            return pieces
        same = known == {
            (piece.left_unit.op, piece.right_unit.op, piece.left.start, piece.right.start, width)
            for piece in pieces
            if (width := piece.right.width) and not piece.left.parts and not piece.right.parts
        }
        is_turned = any(piece.right.turn for piece in pieces)
        by_purpose = all(item.purpose for item in pair.shares)
        return pieces if (same and is_turned) or (not same and not by_purpose) else ()

    def _place(self, pair: Pair) -> tuple[str, ...]:
        """How projections that are the same one in several layers are alike."""
        sides = (self._left, pair.left), (self._right, pair.right)
        return tuple(
            f"{re.sub('[0-9]+', '#', side.operations[unit.op].name)} {unit.fan_in} {unit.fan_out}"
            for side, units in sides
            for unit in units
        )

    def _is_same_class(self, pair: Pair) -> bool:
        kinds = {
            side.operations[unit.op].type
            for side, units in ((self._left, pair.left), (self._right, pair.right))
            for unit in units
        }
        return len(kinds) == 1 and self._left.run.kind == self._right.run.kind

    def _key(self, pair: Pair) -> tuple[str, ...]:
        """What votes hold for: the purposes, and which side computes them as one."""
        return (*self._order(pair), str(len(pair.left)), str(len(pair.right)))

    def _order(self, pair: Pair) -> tuple[str, ...]:
        """The purposes of the columns, () if neither side computes several as one."""
        groups = (self._left, pair.left), (self._right, pair.right)
        if not any(len(units) == 1 and units[0].role is Role.LINEAR for _, units in groups):
            return ()
        totals = [sum(unit.fan_out for unit in units) for _, units in groups]
        if totals[0] != totals[1]:
            return ()
        known = [
            sorted(column.purpose for column in columns_of_all(side, units))
            for side, units in groups
        ]
        if known[0] == known[1] and all(known[0]):
            return ()  # both sides say what is what
        for order in _ORDERS:
            if sorted(order) in known:
                return order
        single = len(pair.left) == len(pair.right) == 1
        wide = pair.left[0].fan_out == 3 * pair.left[0].fan_in
        return _ORDERS[0] if single and wide and self._joined(pair) else ()

    def _joined(self, pair: Pair) -> bool:
        """True if a projection on both sides is, by its name, one of query, key and value."""
        names = (
            self._left.operations[pair.left[0].op].name,
            self._right.operations[pair.right[0].op].name,
        )
        return all(is_joined(name) for name in names)

    def _candidates(self, pair: Pair) -> Mapping[str, list[Piece]]:
        """Each possible order, by name."""
        order = self._order(pair)
        if not order:
            return {}
        sides = [
            list(self._layouts_of(side, units, order))
            for side, units in ((self._left, pair.left), (self._right, pair.right))
        ]
        found: dict[str, list[Piece]] = {}
        for left_name, ours in sides[0]:
            for right_name, theirs in sides[1]:
                if [c.width for c in ours] != [c.width for c in theirs]:
                    continue
                name = f"{left_name}, {right_name}"
                pieces = [
                    Piece(a.unit, b.unit, purpose, a.columns, b.columns)
                    for purpose, a, b in zip(order, ours, theirs, strict=True)
                ]
                plain = all(p.left == p.right for p in pieces)
                found.setdefault(_UNCUT if plain else name, pieces)
        return found

    def _layouts_of(
        self, side: Program, units: Sequence[Unit], order: tuple[str, ...]
    ) -> Iterator[tuple[str, list[_Place]]]:
        """Where the columns of each purpose may be on one side."""
        columns = columns_of_all(side, units)
        by_purpose = {column.purpose: column for column in columns}
        if len(by_purpose) == len(columns) and set(by_purpose) == set(order):
            yield "as used", [_as_used(by_purpose[purpose]) for purpose in order]
            return
        if len(units) != 1:
            return
        unit = units[0]
        widths = self._widths(order, unit)
        if widths is None:
            return
        places = [0, *np.cumsum(widths).tolist()]
        blocks = [_Place(unit, Columns(a, b - a, unit.fan_out), b - a) for a, b in pairwise(places)]
        yield "blocks", blocks
        if order == ("gate", "up"):
            back = [replace_start(blocks[0], widths[1]), replace_start(blocks[1], 0)]
            yield "blocks back to front", back
        for heads, dim in self._heads(order, widths):
            counts = [width // (heads * dim) for width in widths]
            starts = np.cumsum([0, *counts[:-1]]).tolist()
            parts = heads, sum(counts), dim
            yield (
                f"groups of {heads}",
                [
                    _Place(unit, Columns(start, count, unit.fan_out, parts), width)
                    for start, count, width in zip(starts, counts, widths, strict=True)
                ],
            )

    def _widths(self, order: tuple[str, ...], unit: Unit) -> list[int] | None:
        """Widths by purpose, from whatever projection shows them."""
        for side in (self._left, self._right):
            for units in side.siblings.values():
                columns = columns_of_all(side, units)
                widths = {column.purpose: column.width for column in columns}
                if len(widths) < len(columns) or set(widths) != set(order):
                    continue
                if sum(widths.values()) == unit.fan_out:
                    return [widths[purpose] for purpose in order]
        equal = unit.fan_out // len(order)
        return [equal] * len(order) if equal * len(order) == unit.fan_out else None

    def _heads(self, order: tuple[str, ...], widths: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Numbers of groups that hold all purposes, and the width of a member."""
        if order == ("gate", "up"):
            yield widths[0], 1
            return
        if widths[1] != widths[2]:
            return
        known = {side.key_value_heads for side in (self._left, self._right)} - {0}
        for heads in sorted(known) or [2, 4, 8, 12, 16, 32, 40, 64]:
            if widths[1] % heads == 0 and widths[0] % widths[1] == 0 and heads > 1:
                yield heads, widths[1] // heads

    def _values_agree(self, pieces: Sequence[Piece]) -> float:
        """The smallest cosine of the results of all pieces, -1 if they cannot be compared."""
        return min((self._agreement_of_values(piece) for piece in pieces), default=-1.0)

    def _agreement_of_values(self, piece: Piece) -> float:
        if piece.left_unit.result is None or piece.right_unit.result is None:
            return -1.0
        left = piece.left_unit.result.uses[0].tensor
        right = piece.right_unit.result.uses[0].tensor
        shapes = shape_of(left), shape_of(right)
        if shapes[0] is None or shapes[1] is None:
            return -1.0
        views = make_views(shapes[0], shapes[1], self._tokens, piece.left, piece.right)
        if views is None:
            return -1.0
        try:
            return _cosine(apply(left.nd(), views.left), apply(right.nd(), views.right))
        except (AitError, ValueError):
            return -1.0


@dataclass(frozen=True, slots=True)
class _Place:
    """Columns of one purpose in the projection that holds them."""

    unit: Unit
    columns: Columns
    width: int


def replace_start(place: _Place, start: int) -> _Place:
    """The same columns elsewhere."""
    return _Place(place.unit, Columns(start, place.width, place.columns.total), place.width)


def _as_used(column: Column) -> _Place:
    columns = Columns(column.start, column.width, column.unit.fan_out)
    return _Place(column.unit, columns, column.width)


def is_joined(name: str) -> bool:
    """True for the name of a projection of query, key and value together."""
    last = name.rpartition(".")[2].lower()
    return any(word in last for word in ("qkv", "query_key_value", "c_attn"))


def _cosine(a: Array, b: Array) -> float:
    left, right = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
    if left.shape != right.shape:
        return -1.0
    finite = np.isfinite(left) & np.isfinite(right)
    left, right = left[finite], right[finite]
    norms = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(left @ right) / norms if norms else -1.0
