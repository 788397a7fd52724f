"""The views under which a tensor of each side holds the same tokens and columns."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ait_llm.match.programs.columns import Columns, of_columns
from ait_llm.match.programs.keys import key_views
from ait_llm.match.programs.row_spaces import (
    Shape,
    Space,
    is_newest,
    left_spaces,
    same_tokens,
    spaces,
)
from ait_llm.match.programs.shards import Portion
from ait_llm.match.programs.shared_axes import (
    between_positions,
    has_heads_like_tokens,
    told_by_other,
)
from ait_llm.match.programs.tokens import Tokens
from ait_llm.match.views import Reorder, Reshape, View
from ait_llm.program import rows as layout

_SEVERAL = 2  # requests of a batch
_MATRIX, _REPEATED = 2, 5  # dims of a matrix, and of heads that are repeated


@dataclass(frozen=True, slots=True)
class Views:
    """What to do to each side."""

    left: tuple[View, ...]
    right: tuple[View, ...]


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
        has_heads_like_tokens(shape, side)
        for shape, side in ((left, tokens.left), (right, tokens.right))
    ):
        # which of the axes are tokens is not known of that side
        told = told_by_other(left, right, tokens) if whole and rows is None else None
        return None if told is None else Views(*told)
    for ours, theirs in _pairs_of_spaces(left, right, tokens, rows):
        chosen = same_tokens(ours, theirs, tokens)
        if chosen is None:
            continue
        one = of_columns(left, ours, chosen[0], left_columns)
        other = of_columns(right, theirs, chosen[1], right_columns)
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
    if whole and rows is None:
        between = between_positions(left, right, tokens)
        if between is not None:
            return Views(*between)
    if tokens.tells_newest and (_has_newest(left, tokens.left) or _has_newest(right, tokens.right)):
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


def _pairs_of_spaces(
    left: Shape, right: Shape, tokens: Tokens, rows: tuple[int, ...] | None
) -> list[tuple[Space, Space]]:
    """Ways to see both as rows, the likeliest first.

    Of one program, a side that has other tokens tells where those of as many heads as tokens are.
    """
    pairs = [
        (ours, theirs)
        for ours in left_spaces(left, tokens.left, rows)
        for theirs in spaces(right, tokens.right)
    ]
    if tokens.is_one_program:
        pairs.sort(key=lambda pair: _axes_of(pair[0]) != _axes_of(pair[1]))
    return pairs


def _axes_of(space: Space) -> list[tuple[int, ...]]:
    return [view.axes for view in space.views if isinstance(view, Reorder)]


def share_no_token(left: Shape, right: Shape, tokens: Tokens) -> bool:
    """True if both shapes are rows of their programs, and none of them are the same tokens."""
    ours, theirs = [*spaces(left, tokens.left)], [*spaces(right, tokens.right)]
    return bool(ours and theirs) and all(
        same_tokens(one, other, tokens) is None for one in ours for other in theirs
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
    if tokens.tells_newest and any(_has_newest(shape, side) for side in sides):
        return False
    return not any(
        shape[:1] == (side.count,)
        or shape[:2] == (side.batch, side.seq)
        or side.seq in shape
        or (side.batch and len(shape) == _MATRIX and shape[0] % side.count == 0)
        for side in sides
    )


def _has_newest(shape: Shape, rows: layout.Rows) -> bool:
    """True for what may have a row for the newest token of each request, and for no other.

    A part of a prompt has such a row, too, which the whole prompt has not: its logits are not used.
    """
    newest = len(rows.last)
    is_packed = not rows.batch and 0 < newest < rows.count and shape[:1] == (newest,)
    return is_packed or is_newest(shape, rows)


def _may_be_of_another_end(shape: Shape, tokens: Tokens) -> bool:
    """True for what may be kept from pass to pass, where the passes end with other tokens.

    A window of keys, or the state of a scan, has no axis of tokens, and is that of the last one.
    """
    is_kept = len(shape) > _MATRIX and shape[0] == tokens.left.batch == tokens.right.batch
    return tokens.tells_newest and is_kept and not tokens.ends_alike


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
    one = of_columns(left, Space((), every), every, left_columns)
    other = of_columns(right, Space((), every), every, right_columns)
    if one is None or other is None or one[1] != other[1]:
        return None
    return Views(one[0], other[0])
