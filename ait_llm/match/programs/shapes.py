"""The views under which a packed tensor and a padded one have the same elements."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ait_llm.match.programs.tokens import Tokens
from ait_llm.match.views import Part, Reorder, Reshape, Rows, View

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

    atb: tuple[View, ...]
    torch: tuple[View, ...]


def make_views(
    atb: Shape,
    torch: Shape,
    tokens: Tokens | None,
    atb_columns: Columns | None = None,
    torch_columns: Columns | None = None,
    rows: tuple[int, ...] | None = None,
) -> Views | None:
    """Views that give both tensors one shape; None if no rule covers their shapes.

    Args:
        atb, torch: shapes as dumped.
        tokens: alignment of the tokens, None if unknown.
        atb_columns, torch_columns: which share of the last axis is meant; all of it without.
        rows: ATB rows that the ATB tensor was gathered from, None if it has all of them.
    """
    whole = all(columns is None or columns.is_all for columns in (atb_columns, torch_columns))
    if whole and atb == torch and (tokens is None or tokens.is_plain or not _has_rows(atb, tokens)):
        return Views((), ())
    if tokens is None:
        return _without_tokens(atb, torch, atb_columns, torch_columns)
    spaces = _atb_spaces(atb, tokens, rows)
    for atb_prefix, atb_places in spaces:
        for torch_prefix, torch_places, positions in _torch_spaces(torch, tokens):
            chosen = _same_places(atb_places, torch_places, positions, tokens)
            if chosen is None:
                continue
            left = _finish(atb, atb_prefix, len(atb_places), chosen[0], atb_columns)
            right = _finish(torch, torch_prefix, torch_places, chosen[1], torch_columns)
            if left is not None and right is not None and left[1] == right[1]:
                return Views(left[0], right[0])
    return None


def _has_rows(shape: Shape, tokens: Tokens) -> bool:
    return len(shape) > 1 and shape[0] == tokens.count


def _without_tokens(
    atb: Shape, torch: Shape, atb_columns: Columns | None, torch_columns: Columns | None
) -> Views | None:
    """Same number of rows and no padding known: leading axes are taken as one."""
    if not atb or not torch:
        return None
    rows = prod(atb[:-1])
    if rows != prod(torch[:-1]):
        return None
    every = tuple(range(rows))
    left = _finish(atb, (), rows, every, atb_columns)
    right = _finish(torch, (), rows, every, torch_columns)
    if left is None or right is None or left[1] != right[1]:
        return None
    return Views(left[0], right[0])


def _atb_spaces(
    shape: Shape, tokens: Tokens, rows: tuple[int, ...] | None
) -> list[tuple[tuple[View, ...], tuple[int, ...]]]:
    """Ways to see a tensor as rows: views to apply first, and the ATB row of each row."""
    every = tuple(range(tokens.count))
    if not shape:
        return []
    if rows is not None:
        return [((), rows)] if shape[0] == len(rows) else []
    spaces: list[tuple[tuple[View, ...], tuple[int, ...]]] = []
    if shape[0] == tokens.count or shape[:2] == (tokens.batch, tokens.seq):
        spaces.append(((), every))
    elif shape[0] == len(tokens.last):
        spaces.append(((), tokens.last))
    else:
        # one batch of all tokens, or heads among the rows, as norms of queries and keys see them
        is_batch = shape[0] == 1 and shape[1:2] == (tokens.count,)
        if is_batch or shape[0] % tokens.count == 0:
            spaces.append(((), every))
    return spaces


def _torch_spaces(shape: Shape, tokens: Tokens) -> list[tuple[tuple[View, ...], int, str]]:
    """Ways to see a tensor as rows: views to apply first, number of rows, and what they are."""
    batch, seq = tokens.batch, tokens.seq
    spaces: list[tuple[tuple[View, ...], int, str]] = []
    if shape[:2] == (batch, seq):
        spaces.append(((), batch * seq, "all"))
    if len(shape) == 4 and (shape[0], shape[2]) == (batch, seq):
        spaces.append(((Reorder((0, 2, 1, 3)),), batch * seq, "all"))
    if shape and shape[0] == batch * seq:
        spaces.append(((), batch * seq, "all"))
    if len(shape) > 1 and shape[:2] == (1, seq):
        spaces.append(((), seq, "positions"))
    if shape and shape[0] == batch:
        spaces.append(((), batch, "last"))
    return spaces


def _same_places(
    atb: tuple[int, ...], torch_rows: int, kind: str, tokens: Tokens
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Rows to take of each side so that they are the same tokens."""
    place = tokens.rows or tuple(range(tokens.batch * tokens.seq))
    every = tuple(range(len(atb)))
    if kind == "all":
        return every, tuple(place[row] for row in atb)
    if kind == "positions":
        return every, tuple(place[row] % tokens.seq for row in atb)
    sequences = [place[row] // tokens.seq for row in tokens.last]
    if sorted(sequences) != list(range(torch_rows)):
        return None
    index = {row: number for number, row in enumerate(atb)}
    if any(row not in index for row in tokens.last):
        return None
    return tuple(index[row] for row in tokens.last), tuple(sequences)


def _finish(
    shape: Shape,
    prefix: tuple[View, ...],
    rows: int,
    chosen: tuple[int, ...],
    columns: Columns | None,
) -> tuple[tuple[View, ...], Shape] | None:
    """Views down to ``[rows, columns]``, and that shape."""
    if not rows or prod(shape) % rows:
        return None
    width = prod(shape) // rows
    views = list(prefix)
    current = _moved(shape, prefix)
    if current != (rows, width):
        views.append(Reshape((rows, width)))
    if chosen != tuple(range(rows)):
        views.append(Rows(0, chosen))
    if columns is None or columns.is_all:
        if columns is not None and columns.total != width:
            return None
        return tuple(views), (len(chosen), width)
    if columns.total != width:
        return None
    if columns.parts:
        views += [
            Reshape((len(chosen), *columns.parts)),
            Part(2, columns.start, columns.start + columns.width),
            Reshape((len(chosen), columns.width * columns.parts[0] * columns.parts[2])),
        ]
        return tuple(views), (len(chosen), columns.width * columns.parts[0] * columns.parts[2])
    views.append(Part(1, columns.start, columns.start + columns.width))
    return tuple(views), (len(chosen), columns.width)


def _moved(shape: Shape, prefix: tuple[View, ...]) -> Shape:
    for view in prefix:
        if isinstance(view, Reorder):
            shape = tuple(shape[axis] for axis in view.axes)
    return shape
