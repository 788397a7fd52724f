"""The rows of a program in a tensor: which of its axes are tokens, and which rows are the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ait_llm.match.programs.tokens import Tokens
from ait_llm.match.views import Reorder, Reshape, View
from ait_llm.program import rows as layout

_MATRIX, _REPEATED = 2, 5  # dims of a matrix, and of heads that are repeated
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """One way to see a tensor as rows.

    Attributes:
        views: applied first.
        rows: flat row of the program for each row of the tensor.
        shared: True if the rows are positions that all requests share.
    """

    views: tuple[View, ...]
    rows: tuple[int, ...]
    shared: bool = False


def left_spaces(
    shape: Shape, rows: layout.Rows, gathered: tuple[int, ...] | None
) -> Iterator[Space]:
    if gathered is None:
        yield from spaces(shape, rows)
    elif shape and shape[0] == len(gathered):
        yield Space((), gathered)


def spaces(shape: Shape, rows: layout.Rows) -> Iterator[Space]:
    """Ways to see a tensor as rows of a program, the most telling first."""
    every = tuple(range(rows.count))
    batch, seq = rows.batch, rows.seq
    if not shape:
        return
    if batch and shape[:2] == (batch, seq):
        yield Space((), every)
    if batch and len(shape) == 4 and (shape[0], shape[2]) == (batch, seq):
        yield Space((Reorder((0, 2, 1, 3)),), every)
    if batch and len(shape) == _REPEATED and (shape[0], shape[3]) == (batch, seq):
        yield Space((Reorder((0, 3, 1, 2, 4)),), every)
    if shape[0] == rows.count or (shape[0] == 1 and shape[1:2] == (rows.count,)):
        yield Space((), every)
    elif len(shape) == 4 and shape[0] == 1 and shape[2] == rows.count:
        yield Space((Reorder((0, 2, 1, 3)),), every)
    elif not batch and shape[0] % rows.count == 0 and shape[0]:
        yield Space((), every)  # heads among the rows, as norms of queries and keys see them
    if batch > 1 and shape[:2] == (1, seq):
        yield Space((), tuple(range(seq)), shared=True)
    newest = len(rows.last)
    if 0 < newest < rows.count and (shape[0] == newest or is_newest(shape, rows)):
        yield Space((), rows.last)
    if rows.count == 1:
        yield Space((), every)  # of one token, heads lie one behind the other as columns do
    if batch > 1 and len(shape) == 3 and shape[1] == seq and shape[0] % batch == 0 < shape[0]:
        heads = shape[0] // batch  # of all requests on one axis, as products of batches take them
        yield Space((Reshape((batch, heads, *shape[1:])), Reorder((0, 2, 1, 3))), every)


def same_tokens(
    left: Space, right: Space, tokens: Tokens
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


def is_newest(shape: Shape, rows: layout.Rows) -> bool:
    """True for what a program that pads one request has of its newest tokens alone."""
    newest = len(rows.last)
    shapes = ((newest,), shape[:1]) if len(shape) == _MATRIX else ((1, newest), shape[:2])
    return rows.batch == 1 and len(shape) >= _MATRIX and shapes[0] == shapes[1]


def _index(space: Space) -> dict[int, int]:
    return {row: number for number, row in enumerate(space.rows)}
