"""Views of tensors one axis of which the tokens alone do not tell, and both sides together do."""

from __future__ import annotations

from ait_llm.match.programs.row_spaces import Shape
from ait_llm.match.programs.tokens import Tokens
from ait_llm.match.views import Rows, View
from ait_llm.program import rows as layout

_MATRIX = 2  # dims of a matrix
Two = tuple[tuple[View, ...], tuple[View, ...]]


def has_heads_like_tokens(shape: Shape, rows: layout.Rows) -> bool:
    """True if two axes of heads of one request are as long as there are tokens."""
    several = rows.batch == 1 < rows.count
    return several and len(shape) > _MATRIX and shape[:-1].count(rows.count) > 1


def told_by_other(left: Shape, right: Shape, tokens: Tokens) -> Two | None:
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
    return (Rows(axis, ours),), (Rows(axis, theirs),)


def between_positions(left: Shape, right: Shape, tokens: Tokens) -> Two | None:
    """What batches of other padding have between the same positions: biases of distances, say.

    Such tables, ``[positions, positions, ...]``, are shared by the requests of a batch.
    """
    sizes = tokens.left.seq, tokens.right.seq
    if any(shape[:2] != (size, size) for shape, size in zip((left, right), sizes, strict=True)):
        return None
    if left == right or left[2:] != right[2:] or not (tokens.left.batch and tokens.right.batch):
        return None
    positions = sorted(
        {(tokens.left.position(one), tokens.right.position(other)) for one, other in tokens.pairs}
    )
    if len({other - one for one, other in positions}) != 1:
        return None  # requests that are padded otherwise
    ours, theirs = zip(*positions, strict=True)
    return (Rows(0, ours), Rows(1, ours)), (Rows(0, theirs), Rows(1, theirs))
