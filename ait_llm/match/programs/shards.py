"""What one of several ranks holds of a tensor of the whole program, by shapes.

A rank has the same tensor, or an equal share of it along one axis, in the order of the ranks. Where
there are more ranks than such shares (heads of keys and values), neighbours have the same one.
"""

from __future__ import annotations

from dataclasses import dataclass

from ait_llm.match.views import Part
from ait_llm.program.one_pass import Pass

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Portion:
    """The place of a rank among those that compute a program together.

    Attributes:
        rank: of the program that is a rank.
        ranks: how many there are.
        of_left: True if the left program is the rank.
    """

    rank: int
    ranks: int
    of_left: bool

    def axis(self, left: Shape, right: Shape) -> int | None:
        """The axis of which the rank has a share; None if the shapes are equal or do not fit."""
        own, whole = self.ordered(left, right)
        if len(own) != len(whole):
            return None
        axes = [axis for axis in range(len(own)) if own[axis] != whole[axis]]
        if len(axes) != 1 or not own[axes[0]]:
            return None
        shares, rest = divmod(whole[axes[0]], own[axes[0]])
        return None if rest or self.ranks % shares else axes[0]

    def cut(self, left: Shape, right: Shape, axis: int) -> tuple[tuple[Part, ...], ...]:
        """Views of the left and the right that leave of the whole what the rank has of an axis."""
        own, whole = self.ordered(left, right)
        shares = whole[axis] // own[axis]
        start = self.rank // (self.ranks // shares) * own[axis]
        part = (Part(axis, start, start + own[axis]),)
        return ((), part) if self.of_left else (part, ())

    def stretch(self, left: int, right: int) -> tuple[int, int, int] | None:
        """Columns that both have: the first one on the left and on the right, and how many.

        Args:
            left, right: how many there are on either side.
        """
        if left == right:
            return 0, 0, left
        if self.axis((left,), (right,)) is None:
            return None
        ours, theirs = self.cut((left,), (right,), 0)
        return (ours[0].start if ours else 0), (theirs[0].start if theirs else 0), min(left, right)

    def ordered(self, left: Shape, right: Shape) -> tuple[Shape, Shape]:
        """The shape that the rank has, then that of the whole program."""
        return (left, right) if self.of_left else (right, left)


def portion_of(left: Pass, right: Pass) -> Portion | None:
    """How two passes share a model; None if both compute the same of it."""
    if left.share == right.share:
        return None
    of_left = left.share[1] > 1
    rank, ranks = left.share if of_left else right.share
    return Portion(rank, ranks, of_left)


def computes_several(name: str) -> bool:
    """True for the name of a module that is several projections in one."""
    last = name.rpartition(".")[2].lower()
    return any(word in last for word in ("qkv", "query_key_value", "c_attn", "gate_up", "fused_"))
