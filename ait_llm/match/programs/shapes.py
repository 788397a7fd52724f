"""The views under which a tensor of each side holds the same tokens and columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from ait_llm.match.programs.tokens import Tokens
from ait_llm.match.views import Part, Reorder, Reshape, Rows, View
from ait_llm.program import rows as layout

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Columns:
    """A stretch of the last axis once everything behind the rows is one axis.

    Attributes:
        start, width: of the stretch.
        total: of the whole axis.
        parts: axes behind the rows into which the whole is cut first, for interleaved layouts:
            ``(heads, 3, dim)``; the stretch is then of the middle axis.
    """

    start: int
    width: int
    total: int
    parts: tuple[int, ...] = ()

    @property
    def is_all(self) -> bool:
        """True if nothing is cut off."""
        return not self.parts and self.start == 0 and self.width == self.total


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
) -> Views | None:
    """Views that give both tensors one shape; None if no rule covers their shapes.

    Args:
        left, right: shapes as dumped.
        tokens: alignment of the tokens, None if unknown.
        left_columns, right_columns: which share of the last axis is meant; all of it without.
        rows: left rows that the left tensor was gathered from, None if it has all of them.
    """
    whole = all(columns is None or columns.is_all for columns in (left_columns, right_columns))
    if whole and left == right and (tokens is None or _needs_no_rows(left, tokens)):
        return Views((), ())
    if tokens is None:
        return _without_tokens(left, right, left_columns, right_columns)
    for ours in _left_spaces(left, tokens.left, rows):
        for theirs in _spaces(right, tokens.right):
            chosen = _same_tokens(ours, theirs, tokens)
            if chosen is None:
                continue
            one = _finish(left, ours, chosen[0], left_columns)
            other = _finish(right, theirs, chosen[1], right_columns)
            if one is not None and other is not None and one[1] == other[1]:
                return Views(one[0], other[0])
    return None


def shares(
    left: Shape, right: Shape, left_share: tuple[int, int], right_share: tuple[int, int]
) -> Views | None:
    """Views where one side holds an equal share of the other along one axis, by rank.

    Args:
        left, right: shapes of tensors that are one in a program that is not cut over ranks.
        left_share, right_share: rank and number of ranks of each side.
    """
    if len(left) != len(right):
        return None
    axes = [axis for axis in range(len(left)) if left[axis] != right[axis]]
    if len(axes) != 1:
        return None
    axis = axes[0]
    if left[axis] > right[axis]:
        found = shares(right, left, right_share, left_share)
        return None if found is None else Views(found.right, found.left)
    rank, ranks = left_share
    if left[axis] * ranks != right[axis]:
        return None
    return Views((), (Part(axis, rank * left[axis], (rank + 1) * left[axis]),))


def _needs_no_rows(shape: Shape, tokens: Tokens) -> bool:
    """True if tensors of this shape on both sides have the same rows, or none."""
    if tokens.is_plain:
        return True
    sides = (tokens.left, tokens.right)
    return not any(
        shape[:1] == (side.count,) or shape[:2] == (side.batch, side.seq) or side.seq in shape
        for side in sides
    )


def _without_tokens(
    left: Shape, right: Shape, left_columns: Columns | None, right_columns: Columns | None
) -> Views | None:
    """Same number of rows and no padding known: leading axes are taken as one."""
    if not left or not right:
        return None
    rows = prod(left[:-1])
    if rows != prod(right[:-1]):
        return None
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
    if shape[0] == rows.count or (shape[0] == 1 and shape[1:2] == (rows.count,)):
        yield _Space((), every)
    elif len(shape) == 4 and shape[0] == 1 and shape[2] == rows.count:
        yield _Space((Reorder((0, 2, 1, 3)),), every)
    elif not batch and shape[0] % rows.count == 0 and shape[0]:
        yield _Space((), every)  # heads among the rows, as norms of queries and keys see them
    if batch > 1 and shape[:2] == (1, seq):
        yield _Space((), tuple(range(seq)), shared=True)
    if rows.last and shape[0] == len(rows.last):
        yield _Space((), rows.last)


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
        return None
    if columns is None or columns.is_all:
        return tuple(views), (len(chosen), width)
    if columns.parts:
        kept = columns.width * columns.parts[0] * columns.parts[2]
        views += [
            Reshape((len(chosen), *columns.parts)),
            Part(2, columns.start, columns.start + columns.width),
            Reshape((len(chosen), kept)),
        ]
        return tuple(views), (len(chosen), kept)
    views.append(Part(1, columns.start, columns.start + columns.width))
    return tuple(views), (len(chosen), columns.width)


def _moved(shape: Shape, views: tuple[View, ...]) -> Shape:
    for view in views:
        if isinstance(view, Reorder):
            shape = tuple(shape[axis] for axis in view.axes)
    return shape
