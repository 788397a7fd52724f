"""From paired units to paired values.

A pair of units pairs what they write and what they read. That reaches values that no module makes:
the residual sum is what the next norm reads, the context is what the output projection reads.
Splits and the ends of layers add the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ait_llm.dumps.operations import Operation
from ait_llm.match.programs.align import Pair
from ait_llm.match.programs.columns import Columns
from ait_llm.match.programs.fuse import Share
from ait_llm.match.programs.layout import Layouts, Piece
from ait_llm.match.programs.multiples import multiple_of, multiplied
from ait_llm.match.programs.rank_columns import gives_summand
from ait_llm.match.programs.shards import portion_of
from ait_llm.match.programs.taken_in import results
from ait_llm.program.describe import (
    integers,
    is_float,
    params_of,
    shape_of,
    width_of,
)
from ait_llm.program.flow import Value
from ait_llm.program.layers import Block
from ait_llm.program.program import Program, Unit
from ait_llm.program.roles import Role, is_operator

SURE = 0.95
LIKELY = 0.9
BY_VALUES = 0.85
POSSIBLE = 0.6
AMBIGUOUS = 0.4


@dataclass(frozen=True, slots=True)
class Link:
    """A value of the ATB side and the value of the right side that answers it.

    Attributes:
        left, right: the values.
        confidence: in [0, 1].
        reason: why, in a few words.
        left_columns, right_columns: which share of the last axis; None for all of it.
        alternatives: right operations whose values fit as well.
        factors: by which left and right are multiplied to be the same.
    """

    left: Value
    right: Value
    confidence: float
    reason: str
    left_columns: Columns | None = None
    right_columns: Columns | None = None
    alternatives: tuple[int, ...] = ()
    factors: tuple[float, float] = (1.0, 1.0)

    @property
    def is_whole(self) -> bool:
        """True if all columns of both values answer each other."""
        return self.left_columns is None and self.right_columns is None


class Links:
    """All links of two runs, the surest first for each value."""

    def __init__(self, left: Program, right: Program, layouts: Layouts) -> None:
        self._left = left
        self._right = right
        self._layouts = layouts
        self._portion = portion_of(left.run, right.run)
        self.of_left: dict[int, list[Link]] = {}
        self.of_right: dict[int, list[Link]] = {}
        self.units: dict[int, tuple[int, ...]] = {}

    def add_unit(self, op: int, other: int) -> None:
        """A right operation does what a left one does."""
        known = self.units.get(op, ())
        if other not in known:
            self.units[op] = (*known, other)

    def add_pairs(self, pairs: Sequence[Pair], where: str, certainty: float) -> None:
        """Link results of paired units."""
        for pair in pairs:
            limit = min(certainty, self._limit(pair, SURE))
            pieces, ordered = self._layouts.pieces(pair)
            if pieces:
                self._link_pieces(pair, pieces, limit if ordered else AMBIGUOUS, where)
                continue
            for item in pair.shares or (None,):
                a = pair.left[0] if item is None else item.left
                t = pair.right[0] if item is None else item.right
                self.add_unit(a.op, t.op)
                self._link_results(a, t, item, pair, limit, where)

    def add_sources(self, pairs: Sequence[Pair], where: str, certainty: float) -> None:
        """Link what paired units read."""
        for pair in pairs:
            a, t = pair.left[0], pair.right[0]
            if a.role is Role.EXPERTS:  # what it sums comes from the products of single experts
                continue
            if a.role is Role.EMBEDDING and self._looks_up_others(a, t):
                continue
            limit = min(certainty, self._limit(pair, LIKELY))
            reason = f"what the {a.role.value} {where} reads"
            ours, theirs = self._sum_before(self._left, a), self._sum_before(self._right, t)
            if a.role is not Role.EMBEDDING and ours is not None and theirs is not None:
                kinds = [is_float(value.uses[0].tensor) for value in (ours, theirs)]
                if kinds[0] != kinds[1]:  # quantised for this operation alone
                    continue
            self.add(ours, theirs, limit, reason, alternatives=pair.alternatives)

    def _looks_up_others(self, a: Unit, t: Unit) -> bool:
        """True if a module may read other rows than it is given, and the other side is not alike.

        A table of learned positions counts them itself, or begins behind its first rows (OPT). It
        is given a mask, positions, or both.
        """
        ours, theirs = self._left.run.operations[a.op], self._right.run.operations[t.op]
        if any(map(_takes_several, (ours, theirs))):
            return True
        if is_operator(ours) == is_operator(theirs):
            return False
        module = theirs if is_operator(ours) else ours
        return module.type != "Embedding"

    def _link_pieces(self, pair: Pair, pieces: Sequence[Piece], limit: float, where: str) -> None:
        """Link the columns of what one side computes as one."""
        for piece in pieces:
            left, right = piece.left_unit, piece.right_unit
            self.add_unit(left.op, right.op)
            what = f"linear {where}" + (f", {piece.purpose}" if piece.purpose else "")
            if not piece.is_whole:
                what += "; the order of columns is that of the weights or values"
            self.add(
                left.result,
                right.result,
                min(limit, LIKELY if piece.is_whole else BY_VALUES),
                what,
                left_columns=None if piece.left.is_all else piece.left,
                right_columns=None if piece.right.is_all else piece.right,
                alternatives=(*pair.alternatives, *((right.op,) if limit <= AMBIGUOUS else ())),
            )

    def _link_results(
        self, a: Unit, t: Unit, item: Share | None, pair: Pair, limit: float, where: str
    ) -> None:
        reason = f"{a.role.value} {where}"
        alternatives = list(pair.alternatives)
        left_columns = right_columns = None
        if item is not None:
            if item.width != a.fan_out:
                left_columns = Columns(item.left_start, item.width, a.fan_out)
            if item.width != t.fan_out:
                right_columns = Columns(item.right_start, item.width, t.fan_out)
            if item.purpose:
                reason += f", {item.purpose}"
            if item.twins:
                limit = min(limit, AMBIGUOUS)
                alternatives += item.twins
                reason += "; only its order tells it from its twins"
            elif item.evidence:
                limit = min(limit, LIKELY)
        same = results(self._left, a, self._right, t)
        if same is None:
            return
        if self._is_summand(a, t):
            return
        if self._is_all_of(item, a, t) and self._add_multiple(a, t, limit, reason):
            return
        self.add(
            *same,
            limit,
            reason,
            left_columns=left_columns,
            right_columns=right_columns,
            alternatives=tuple(dict.fromkeys(alternatives)),
        )

    @staticmethod
    def _is_all_of(item: Share | None, a: Unit, t: Unit) -> bool:
        return item is None or item.width == a.fan_out == t.fan_out

    def _add_multiple(self, a: Unit, t: Unit, limit: float, reason: str) -> bool:
        """Link results of which one is a multiple of the other one; False if neither is."""
        left, right = multiple_of(self._left, a), multiple_of(self._right, t)
        if left == right or a.result is None or t.result is None:
            return False
        found = multiplied(self._left, a, right), multiplied(self._right, t, left)
        if all(each is None or each[1] for each in found):
            self._append(Link(a.result, t.result, limit, reason, factors=(right, left)))
        # where the other side multiplies next, that result is the same as it is
        for each, mine in zip(found, (t.result, a.result), strict=True):
            if each is not None:
                ours, theirs = (each[0], mine) if mine is t.result else (mine, each[0])
                link = Link(ours, theirs, limit, f"{reason}, multiplied")
                self.of_left.setdefault(ours.number, []).append(link)
                self.of_right.setdefault(theirs.number, []).append(link)
        return True

    def add_choices(self, pairs: Sequence[Pair], where: str) -> None:
        """Link the experts that a router chooses, and their weights."""
        for pair in pairs:
            a, t = pair.left[0], pair.right[0]
            extra = self._right.operations[t.op].outputs[1:]
            if a.role is not Role.LINEAR or a.result is None or not extra:
                continue
            chosen = [
                (use.op, tensor)
                for use in self._left.readers(a.result, {Role.SOFTMAX})
                if self._left.roles[use.op] is Role.TOPK
                for tensor in self._left.operations[use.op].outputs
            ]
            for tensor in extra:
                fits = [
                    (op, mine)
                    for op, mine in chosen
                    if is_float(mine) == is_float(tensor) and width_of(mine) == width_of(tensor)
                ]
                if len(fits) == 1:
                    op, mine = fits[0]
                    what = "weights" if is_float(mine) else "numbers"
                    self.add(
                        self._left.value(op, mine),
                        self._right.value(t.op, tensor),
                        POSSIBLE,
                        f"{what} of the chosen experts {where}",
                    )

    def _limit(self, pair: Pair, most: float) -> float:
        if pair.alternatives:
            return AMBIGUOUS
        covered = sum(item.width for item in pair.shares)
        widths = [sum(unit.fan_out for unit in group) for group in (pair.left, pair.right)]
        whole = max(widths) if self._portion is None else min(widths)
        is_partial = bool(pair.shares) and covered < whole
        return POSSIBLE if is_partial or pair.right[0].role is not pair.left[0].role else most

    def _is_summand(self, a: Unit, t: Unit) -> bool:
        """True if the result of a rank's unit is not yet what the whole program's gives."""
        if self._portion is None or (a.role is not Role.EMBEDDING and a.fan_in == t.fan_in):
            return False
        side, unit = (self._left, a) if self._portion.of_left else (self._right, t)
        return unit.role in (Role.LINEAR, Role.EMBEDDING) and gives_summand(side, unit.op)

    @staticmethod
    def _sum_before(side: Program, unit: Unit) -> Value | None:
        """What a unit reads; of a norm that adds a residual first, the sum where it is written."""
        operation = side.operations[unit.op]
        if unit.role is not Role.NORM or unit.source is None:
            return unit.source
        shape = shape_of(unit.source.uses[0].tensor)
        summands = [t for t in operation.inputs if is_float(t) and shape_of(t) == shape]
        if len(summands) < 2:
            return unit.source
        written = [t for t in operation.outputs[1:] if is_float(t) and shape_of(t) == shape]
        return side.value(unit.op, written[0]) if written else None

    def add_layer(self, left: Block, right: Block, certainty: float) -> None:
        """Link what a layer reads first and what it writes."""
        if left.layer is None or right.layer is None:
            return
        self.add_unit(left.layer, right.layer)
        ours, theirs = _hidden(self._left, left.layer), _hidden(self._right, right.layer)
        limit = min(certainty, LIKELY)
        reason = f"layer {right.number}"
        self.add(ours[1], theirs[1], limit, f"output of {reason}")
        self.add(ours[0], theirs[0], limit, f"input of {reason}")

    def add_splits(self) -> None:
        """Link the pieces of split values."""
        for value in self._left.flow.values:
            total = width_of(value.uses[0].tensor)
            for columns in value.pieces:
                self._link_piece(value, columns.value, columns.start, columns.width, total)
        for whole, piece, start, width, axis in _split(self._left):
            self._link_piece(whole, piece, start, width, axis)
        for whole, piece, start, width, _ in _split(self._right):
            for link in self.of_right.get(whole.number, ()):
                cut = link.right_columns
                if cut is not None and not cut.parts and (cut.start, cut.width) == (start, width):
                    found = replace(link, right=piece, right_columns=None)
                    self.of_right.setdefault(piece.number, []).append(found)

    def _link_piece(self, whole: Value, piece: Value, start: int, width: int, axis: int) -> None:
        """Link one piece of an axis of this width; the axis may be a share of each row."""
        for link in self.of_left.get(whole.number, []):
            cut = link.left_columns
            if cut is not None and (cut.start, cut.width) == (start, width):
                self._append(replace(link, left=piece, left_columns=None))
            elif cut is None and link.right_columns is None:
                total = width_of(whole.uses[0].tensor)
                same = _piece_of(link.right, start, width) if axis == total else None
                if same is not None:
                    self._append(replace(link, left=piece, right=same))
                    continue
                columns = Columns(start, width, total)
                if axis != total:
                    if total % axis or axis % width or start % width:
                        continue
                    parts = total // axis, axis // width, width
                    columns = Columns(start // width, 1, total, parts)
                self._append(replace(link, left=piece, right_columns=columns))

    def rows_of(self, value: Value) -> tuple[int, ...] | None:
        """The rows from which a value was gathered; None if it was not."""
        for use in value.writes:
            unit = self._left.unit_of.get(use.op)
            if unit is None or unit.role is not Role.EMBEDDING or unit.source is None:
                continue
            read = [self._left.value(use.op, each) for each in self._left.operations[use.op].inputs]
            if not any(each is unit.source for each in read):
                continue  # it multiplies what was looked up
            origin = read[0]
            if origin is None or unit.source.writes:
                return None
            if width_of(origin.uses[0].tensor) != width_of(use.tensor):
                continue  # a module that is given a mask first, say
            if origin.writes:  # rows of something computed, not of a table
                indices = integers(unit.source.uses[0].tensor)
                return None if indices is None else tuple(int(i) for i in indices.reshape(-1))
        return None

    def add(
        self,
        left: Value | None,
        right: Value | None,
        confidence: float,
        reason: str,
        *,
        left_columns: Columns | None = None,
        right_columns: Columns | None = None,
        alternatives: tuple[int, ...] = (),
    ) -> None:
        """Link two values; nothing if one of them was not dumped. Arguments as in :class:`Link`."""
        if left is not None and right is not None:
            self._append(
                Link(left, right, confidence, reason, left_columns, right_columns, alternatives)
            )

    def add_also(
        self, left: Value | None, right: Value | None, confidence: float, reason: str
    ) -> None:
        """Link two whole values of which the left one may have a partner already."""
        if left is None or right is None:
            return
        if self.of_left.get(left.number) and not self.of_right.get(right.number):
            link = Link(left, right, confidence, reason)
            self.of_left[left.number].append(link)
            self.of_right.setdefault(right.number, []).append(link)
        else:
            self.add(left, right, confidence, reason)

    def _append(self, link: Link) -> None:
        """Keep a link unless its left value has one already that leaves nothing open."""
        known = self.of_left.setdefault(link.left.number, [])
        if any(other.left_columns is None and other.right_columns is None for other in known):
            return
        if link.left_columns is None and link.right_columns is None:
            if any(other.left_columns is not None for other in known):
                return
            self._drop_columns(known)
        if any(
            other.right is link.right
            and other.left_columns == link.left_columns
            and other.right_columns == link.right_columns
            for other in known
        ):
            return
        known.append(link)
        self.of_right.setdefault(link.right.number, []).append(link)

    def _drop_columns(self, known: list[Link]) -> None:
        """Forget of what a value is a piece if its own counterpart shows it and the whole has one.

        A value of the other side that nothing else answers keeps the link.
        """
        for link in list(known):
            others = self.of_right[link.right.number]
            if any(each.left_columns is None and each.right_columns is None for each in others):
                known.remove(link)
                others.remove(link)


def _piece_of(whole: Value, start: int, width: int) -> Value | None:
    """The value that is these columns of another one; None unless it is the only one."""
    found = [each.value for each in whole.pieces if (each.start, each.width) == (start, width)]
    return found[0] if len(found) == 1 else None


def _split(side: Program) -> Iterator[tuple[Value, Value, int, int, int]]:
    """What operations split along the last axis: whole, piece, its start and width, the axis."""
    for op, role in enumerate(side.roles):
        operation = side.operations[op]
        if role is not Role.SPLIT or not operation.inputs:
            continue
        whole = side.value(op, operation.inputs[0])
        shape = shape_of(operation.inputs[0])
        if whole is None or not shape:
            continue
        if params_of(operation).get("splitDim", -1) not in (-1, len(shape) - 1):
            continue
        start = 0
        for tensor in operation.outputs:
            width = width_of(tensor)
            piece = side.value(op, tensor)
            if piece is not None:
                yield whole, piece, start, width, shape[-1]
            start += width


def _hidden(side: Program, op: int) -> tuple[Value | None, Value | None]:
    """Hidden states that a layer reads, and what it makes of them."""
    operation = side.operations[op]
    result = next((tensor for tensor in operation.outputs if is_float(tensor)), None)
    if result is None:
        return None, None
    shape = shape_of(result)
    if sum(shape_of(tensor) == shape for tensor in operation.outputs if is_float(tensor)) > 1:
        return None, None  # two streams: the hidden states are their sum, which nobody holds
    source = next((t for t in operation.inputs if is_float(t) and shape_of(t) == shape), None)
    return (
        None if source is None else side.value(op, source),
        side.value(op, result),
    )


def _takes_several(operation: Operation) -> bool:
    """True for a table with code of its own that is given several tensors of integers."""
    if is_operator(operation) or operation.type == "Embedding":
        return False
    return sum(not is_float(tensor) for tensor in operation.inputs) > 1
