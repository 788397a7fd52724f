"""The views under which a tensor of each side holds the same tokens and columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from ait_llm.match.programs.keys import key_views
from ait_llm.match.programs.shards import Portion
from ait_llm.match.programs.tokens import Tokens
from ait_llm.match.views import Part, Reorder, Reshape, Rows, View
from ait_llm.program import rows as layout

_SEVERAL = 2  # requests of a batch
_MATRIX, _REPEATED = 2, 5  # dims of a matrix, and of heads that are repeated
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Columns:
    """A stretch of the last axis once everything behind the rows is one axis.

    Attributes:
        start, width: of the stretch.
        total: of the whole axis.
        parts: axes behind the rows into which the whole is cut first, for interleaved layouts:
            ``(heads, 3, dim)``; the stretch is then of the middle axis.
        turn: axes into which the stretch is cut, of which the last two change places, for
            another rotary layout: ``(heads, dim / 2, 2)``; empty if they stay.
    """

    start: int
    width: int
    total: int
    parts: tuple[int, ...] = ()
    turn: tuple[int, ...] = ()

    @property
    def is_all(self) -> bool:
        """True if nothing is cut off."""
        return not self.parts and not self.turn and self.start == 0 and self.width == self.total


@dataclass(frozen=True, slots=True)
class Views:
    """What to do to each side."""

    left: tuple[View, ...]
    right: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class _Space:
    """One way to see a tensor as rows.

    Attributes:
        views: applied first.
        rows: flat row of the program for each row of the tensor.
        shared: True if the rows are positions that all requests share.
    """

    views: tuple[View, ...]
    rows: tuple[int, ...]
    shared: bool = False


def make_views(
    left: Shape,
    right: Shape,
    tokens: Tokens | None,
    left_columns: Columns | None = None,
    right_columns: Columns | None = None,
    rows: tuple[int, ...] | None = None,
    portion: Portion | None = None,
) -> Views | None:
    """Views that give both tensors one shape; None if no rule covers their shapes.

    Args:
        left, right: shapes as dumped.
        tokens: alignment of the tokens, None if unknown.
        left_columns, right_columns: which share of the last axis is meant; all of it without.
        rows: left rows that the left tensor was gathered from, None if it has all of them.
        portion: which rank one side is, None if both compute all.
    """
    if _may_be_turned(left, right):
        return None
    whole = all(columns is None or columns.is_all for columns in (left_columns, right_columns))
    keys = tokens.keys if tokens is not None and whole and rows is None else None
    if tokens is not None and keys is not None:
        joined = _heads_joined(left), _heads_joined(right)
        found = key_views(*joined, keys, tokens.pairs) if keys.differ_in_past(*joined) else None
        if found is not None:
            before = reshaped(left, joined[0]), reshaped(right, joined[1])
            return Views((*before[0], *found[0]), (*before[1], *found[1]))
    is_same = whole and left == right and (tokens is None or _needs_no_rows(left, tokens))
    if is_same and not (tokens is not None and _may_be_of_another_end(left, tokens)):
        return Views((), ())
    if whole and portion is not None and (tokens is None or tokens.is_same_layout):
        axis = portion.axis(left, right)
        if axis is not None:
            return Views(*portion.cut(left, right, axis))
    if tokens is None:
        return _without_tokens(left, right, left_columns, right_columns)
    if tokens.by_request and any(
        _has_heads_like_tokens(shape, side)
        for shape, side in ((left, tokens.left), (right, tokens.right))
    ):
        # which of the axes are tokens is not known of that side
        return _told_by_other(left, right, tokens) if whole and rows is None else None
    for ours in _left_spaces(left, tokens.left, rows):
        for theirs in _spaces(right, tokens.right):
            chosen = _same_tokens(ours, theirs, tokens)
            if chosen is None:
                continue
            one = _finish(left, ours, chosen[0], left_columns)
            other = _finish(right, theirs, chosen[1], right_columns)
            if one is None or other is None:
                continue
            if one[1] == other[1]:
                return Views(one[0], other[0])
            if whole and portion is not None and portion.axis(one[1], other[1]) == 1:
                cut = portion.cut(one[1], other[1], 1)
                return Views((*one[0], *cut[0]), (*other[0], *cut[1]))
    views = None if keys is None else key_views(left, right, keys, tokens.pairs)
    if views is not None:
        return Views(*views)
    if tokens.tells_newest and (_is_newest(left, tokens.left) or _is_newest(right, tokens.right)):
        return None  # rows of tokens, and not of the same
    if len(left) != len(right) and (number := _joined_rows(left)) == _joined_rows(right):
        return _of_rows(number, left, right, left_columns, right_columns)
    if tokens.is_plain and not whole and left[:-1] == right[:-1]:
        # no rows of tokens, and the same on both sides: of experts, or a bias of distances
        return _of_rows(prod(left[:-1]), left, right, left_columns, right_columns)
    table = _without_leading_ones(left)
    is_table = whole and table and table == _without_leading_ones(right)
    if not is_table or not all(_is_one_for_all(each, tokens) for each in (left, right)):
        return None
    return Views((), ()) if left == right else Views(reshaped(left, table), reshaped(right, table))


def _has_heads_like_tokens(shape: Shape, rows: layout.Rows) -> bool:
    """True if two axes of heads of one request are as long as there are tokens."""
    several = rows.batch == 1 < rows.count
    return several and len(shape) > _MATRIX and shape[:-1].count(rows.count) > 1


def _told_by_other(left: Shape, right: Shape, tokens: Tokens) -> Views | None:
    """The rows of shared tokens of one request, on the only axis that differs, if those are tokens.

    As many heads as tokens do not matter where the other side has as many heads and other tokens.
    """
    if len(left) != len(right) or not tokens.left.batch == tokens.right.batch == 1:
        return None
    differ = [axis for axis, sizes in enumerate(zip(left, right, strict=True)) if len({*sizes}) > 1]
    if len(differ) != 1 or differ[0] == len(left) - 1 or not tokens.pairs:
        return None
    axis = differ[0]
    if (left[axis], right[axis]) != (tokens.left.count, tokens.right.count):
        return None
    ours, theirs = zip(*tokens.pairs, strict=True)
    return Views((Rows(axis, ours),), (Rows(axis, theirs),))


def share_no_token(left: Shape, right: Shape, tokens: Tokens) -> bool:
    """True if both shapes are rows of their programs, and none of them are the same tokens."""
    ours, theirs = [*_spaces(left, tokens.left)], [*_spaces(right, tokens.right)]
    return bool(ours and theirs) and all(
        _same_tokens(one, other, tokens) is None for one in ours for other in theirs
    )


def _may_be_turned(left: Shape, right: Shape) -> bool:
    """True for a matrix and one with both axes exchanged.

    Heads of as many numbers as there are tokens look like that where they stand among the rows,
    and so does a transposed matrix, which has the same elements in another order.
    """
    return len(left) == 2 and left != right == left[::-1] and 1 not in left


def _heads_joined(shape: Shape) -> Shape:
    """Heads that are repeated, ``[batch, heads, times, keys, dim]``, on one axis."""
    if len(shape) != _REPEATED:
        return shape
    return (shape[0], shape[1] * shape[2], *shape[3:])


def reshaped(before: Shape, after: Shape) -> tuple[View, ...]:
    """The view that gives elements another shape; none where it is the same."""
    return () if before == after else (Reshape(after),)


def _needs_no_rows(shape: Shape, tokens: Tokens) -> bool:
    """True if tensors of this shape on both sides have the same rows, or none.

    A matrix with a multiple of the rows has each of them several times, for each of its experts.
    """
    if tokens.is_plain:
        return True
    sides = (tokens.left, tokens.right)
    if tokens.tells_newest and any(_is_newest(shape, side) for side in sides):
        return False
    return not any(
        shape[:1] == (side.count,)
        or shape[:2] == (side.batch, side.seq)
        or side.seq in shape
        or (side.batch and len(shape) == _MATRIX and shape[0] % side.count == 0)
        for side in sides
    )


def _may_be_of_another_end(shape: Shape, tokens: Tokens) -> bool:
    """True for what may be kept from pass to pass, where the passes end with other tokens.

    A window of keys, or the state of a scan, has no axis of tokens, and is that of the last one.
    """
    is_kept = len(shape) > _MATRIX and shape[0] == tokens.left.batch == tokens.right.batch
    return tokens.tells_newest and is_kept and not tokens.ends_alike


def _is_newest(shape: Shape, rows: layout.Rows) -> bool:
    """True for what a program that pads one request has of its newest tokens alone."""
    newest = len(rows.last)
    shapes = ((newest,), shape[:1]) if len(shape) == _MATRIX else ((1, newest), shape[:2])
    return rows.batch == 1 and len(shape) >= _MATRIX and shapes[0] == shapes[1]


def _joined_rows(shape: Shape) -> int:
    """Requests and positions, joined, of what is no row of the tokens; 0 if its dims do not tell.

    So products of matrices see frames, patches and other sequences: ``[requests, positions,
    columns]`` and the same in heads, as one row each.
    """
    if len(shape) == _MATRIX:
        return shape[0]
    is_told = len(shape) == _MATRIX + 1 or (len(shape) == _MATRIX + 2 and shape[1] != shape[2])
    return shape[0] * shape[1] if is_told else 0


def _without_leading_ones(shape: Shape) -> Shape:
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape


def _is_one_for_all(shape: Shape, tokens: Tokens) -> bool:
    """True for a table over positions that all requests of two batches padded alike share.

    A bias of distances, say: it has an axis of columns and none of requests.
    """
    sides = (tokens.left, tokens.right)
    return (
        (tokens.left.batch, tokens.left.seq) == (tokens.right.batch, tokens.right.seq)
        and all(left == right for left, right in tokens.pairs)
        and not any(each.batch < _SEVERAL or each.batch in shape for each in sides)
        and (shape[0] == tokens.left.seq or shape[0] % tokens.left.batch != 0)
    )


def _without_tokens(
    left: Shape, right: Shape, left_columns: Columns | None, right_columns: Columns | None
) -> Views | None:
    """Same number of rows and no padding known: leading axes are taken as one."""
    if not left or not right or prod(left[:-1]) != prod(right[:-1]):
        return None
    return _of_rows(prod(left[:-1]), left, right, left_columns, right_columns)


def _of_rows(
    rows: int,
    left: Shape,
    right: Shape,
    left_columns: Columns | None,
    right_columns: Columns | None,
) -> Views | None:
    """Views of tensors that have the same rows in the same order."""
    every = tuple(range(rows))
    one = _finish(left, _Space((), every), every, left_columns)
    other = _finish(right, _Space((), every), every, right_columns)
    if one is None or other is None or one[1] != other[1]:
        return None
    return Views(one[0], other[0])


def _left_spaces(
    shape: Shape, rows: layout.Rows, gathered: tuple[int, ...] | None
) -> Iterator[_Space]:
    if gathered is None:
        yield from _spaces(shape, rows)
    elif shape and shape[0] == len(gathered):
        yield _Space((), gathered)


def _spaces(shape: Shape, rows: layout.Rows) -> Iterator[_Space]:
    """Ways to see a tensor as rows of a program, the most telling first."""
    every = tuple(range(rows.count))
    batch, seq = rows.batch, rows.seq
    if not shape:
        return
    if batch and shape[:2] == (batch, seq):
        yield _Space((), every)
    if batch and len(shape) == 4 and (shape[0], shape[2]) == (batch, seq):
        yield _Space((Reorder((0, 2, 1, 3)),), every)
    if batch and len(shape) == _REPEATED and (shape[0], shape[3]) == (batch, seq):
        yield _Space((Reorder((0, 3, 1, 2, 4)),), every)
    if shape[0] == rows.count or (shape[0] == 1 and shape[1:2] == (rows.count,)):
        yield _Space((), every)
    elif len(shape) == 4 and shape[0] == 1 and shape[2] == rows.count:
        yield _Space((Reorder((0, 2, 1, 3)),), every)
    elif not batch and shape[0] % rows.count == 0 and shape[0]:
        yield _Space((), every)  # heads among the rows, as norms of queries and keys see them
    if batch > 1 and shape[:2] == (1, seq):
        yield _Space((), tuple(range(seq)), shared=True)
    newest = len(rows.last)
    if 0 < newest < rows.count and (shape[0] == newest or _is_newest(shape, rows)):
        yield _Space((), rows.last)
    if rows.count == 1:
        yield _Space((), every)  # of one token, heads lie one behind the other as columns do
    if batch > 1 and len(shape) == 3 and shape[1] == seq and shape[0] % batch == 0 < shape[0]:
        heads = shape[0] // batch  # of all requests on one axis, as products of batches take them
        yield _Space((Reshape((batch, heads, *shape[1:])), Reorder((0, 2, 1, 3))), every)


def _same_tokens(
    left: _Space, right: _Space, tokens: Tokens
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Rows to take of each tensor so that they are the same tokens; None if they share none."""
    ours, theirs = _index(left), _index(right)
    if left.shared and right.shared and tokens.left.seq == tokens.right.seq:
        every = tuple(range(tokens.left.seq))
        return every, every
    found: list[tuple[int, int]] = []
    for one, other in tokens.pairs:
        a = ours.get(tokens.left.position(one) if left.shared else one)
        b = theirs.get(tokens.right.position(other) if right.shared else other)
        if a is not None and b is not None:
            found.append((a, b))
    found = sorted(dict.fromkeys(found)) if left.shared and right.shared else found
    if not found:
        return None
    return tuple(a for a, _ in found), tuple(b for _, b in found)


def _index(space: _Space) -> dict[int, int]:
    return {row: number for number, row in enumerate(space.rows)}


def _finish(
    shape: Shape, space: _Space, chosen: tuple[int, ...], columns: Columns | None
) -> tuple[tuple[View, ...], Shape] | None:
    """Views down to ``[rows, columns]``, and that shape."""
    rows = len(space.rows)
    if not rows or prod(shape) % rows:
        return None
    width = prod(shape) // rows
    views = list(space.views)
    if _moved(shape, space.views) != (rows, width):
        views.append(Reshape((rows, width)))
    if chosen != tuple(range(rows)):
        views.append(Rows(0, chosen))
    if columns is not None and columns.total != width:
        return _of_each_head(views, len(chosen), width, columns)
    if columns is None or columns.is_all:
        return tuple(views), (len(chosen), width)
    if columns.parts:
        kept = columns.width * columns.parts[0] * columns.parts[2]
        views += [
            Reshape((len(chosen), *columns.parts)),
            Part(2, columns.start, columns.start + columns.width),
            Reshape((len(chosen), kept)),
        ]
        views += turned(columns, (len(chosen),), kept)
        return tuple(views), (len(chosen), kept)
    if columns.width != width:
        views.append(Part(1, columns.start, columns.start + columns.width))
    views += turned(columns, (len(chosen),), columns.width)
    return tuple(views), (len(chosen), columns.width)


def _of_each_head(
    views: list[View], rows: int, width: int, columns: Columns
) -> tuple[tuple[View, ...], Shape] | None:
    """Views down to a stretch of each head, and their shape, where it is the last axis alone."""
    heads, rest = divmod(width, columns.total)
    if rest or not heads or columns.parts or columns.turn:
        return None
    kept = heads * columns.width
    views += [
        Reshape((rows, heads, columns.total)),
        Part(2, columns.start, columns.start + columns.width),
        Reshape((rows, kept)),
    ]
    return tuple(views), (rows, kept)


def turned(columns: Columns, lead: Shape, width: int, rest: Shape = ()) -> Iterator[View]:
    """Views that bring ``[*lead, width, *rest]`` into the rotary order of the other side."""
    if columns.turn:
        first = len(lead)
        axes = (*range(first + 1), first + 2, first + 1)
        yield Reshape((*lead, *columns.turn, *rest))
        yield Reorder((*axes, *range(len(axes), len(axes) + len(rest))))
        yield Reshape((*lead, width, *rest))


def _moved(shape: Shape, views: tuple[View, ...]) -> Shape:
    for view in views:
        if isinstance(view, Reorder):
            shape = tuple(shape[axis] for axis in view.axes)
        elif isinstance(view, Reshape):
            shape = view.shape
    return shape
