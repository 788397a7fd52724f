"""A stretch of the columns of a tensor, once its rows are known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from ait_llm.match.programs.row_spaces import Shape, Space
from ait_llm.match.views import Part, Reorder, Reshape, Rows, View


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


def of_columns(
    shape: Shape, space: Space, chosen: tuple[int, ...], columns: Columns | None
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
