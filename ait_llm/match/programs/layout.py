"""The order of columns in a projection that torch computes as one.

GPT-NeoX keeps query, key and value of each head together, others all queries before all keys. No
module says so. The numbers do: in one order the columns of both sides agree, in the other they have
nothing to do with each other. Only such a wide margin counts, and several layers decide together,
so that a wrong layer cannot choose its own order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.match.programs.align import Pair
from ait_llm.match.programs.fuse import Column, atb_columns
from ait_llm.match.programs.shapes import Columns, make_views
from ait_llm.match.programs.tokens import Tokens
from ait_llm.match.views import apply
from ait_llm.program.describe import params_of, shape_of
from ait_llm.program.program import Side, Unit
from ait_llm.program.roles import Role

_ORDERS = (("query", "key", "value"), ("gate", "up"))
_AGREE, _DIFFER = 0.9, 0.6  # cosine of the right order is near 1, of a wrong one near 0
_LAYERS = 4  # layers that are read


@dataclass(frozen=True, slots=True)
class Piece:
    """Columns of an ATB projection and where they are in the one of torch."""

    unit: Unit
    purpose: str
    atb: Columns
    torch: Columns


class Layouts:
    """Decides the order of columns once for the whole model."""

    def __init__(self, atb: Side, torch: Side, tokens: Tokens | None) -> None:
        self._atb = atb
        self._torch = torch
        self._tokens = tokens
        self._votes: dict[tuple[str, ...], Counter[str]] = {order: Counter() for order in _ORDERS}

    def learn(self, pairs: Sequence[Pair]) -> None:
        """Look at the numbers of the first projections that torch computes as one."""
        for pair in pairs:
            order = self._order(pair)
            votes = self._votes.get(order)
            if votes is None or votes.total() >= _LAYERS:
                continue
            scores = {
                name: self._agreement(pair, pieces)
                for name, pieces in self._candidates(pair, order).items()
            }
            best = max(scores, key=lambda name: scores[name], default=None)
            if best is None or scores[best] < _AGREE:
                continue
            if all(score < _DIFFER for name, score in scores.items() if name != best):
                votes[best] += 1

    def pieces(self, pair: Pair) -> tuple[Sequence[Piece], bool]:
        """The pieces of a projection, and whether their order is certain; none if it is not one.

        Pieces in blocks of one projection on both sides are one piece, which needs no cutting.
        """
        order = self._order(pair)
        if not order:
            return (), True
        candidates = self._candidates(pair, order)
        votes = self._votes[order]
        name = votes.most_common(1)[0][0] if votes else "blocks"
        certain = bool(votes) and votes[name] > votes.total() - votes[name]
        if name == "blocks" and len(pair.atb) == 1:
            return (), certain
        return candidates.get(name, ()), certain

    def _order(self, pair: Pair) -> tuple[str, ...]:
        """The purposes of the columns, () if torch does not compute several as one."""
        if len(pair.torch) != 1 or pair.torch[0].role is not Role.LINEAR:
            return ()
        columns = self._columns(pair)
        purposes = {column.purpose for column in columns}
        if sum(column.width for column in columns) != pair.torch[0].fan_out:
            return ()
        return next((o for o in _ORDERS if purposes == set(o) and len(columns) == len(o)), ())

    def _columns(self, pair: Pair) -> list[Column]:
        return [column for unit in pair.atb for column in atb_columns(self._atb, unit)]

    def _candidates(self, pair: Pair, order: tuple[str, ...]) -> Mapping[str, list[Piece]]:
        """Each possible order, by name."""
        columns = sorted(self._columns(pair), key=lambda column: order.index(column.purpose))
        widths = [column.width for column in columns]
        total = sum(widths)
        starts = [sum(widths[:place]) for place in range(len(widths))]
        blocks = [Columns(s, w, total) for s, w in zip(starts, widths, strict=True)]
        found = {"blocks": self._with(columns, blocks)}
        parts = self._groups(order, widths)
        if parts is not None:
            counts = [width // (parts[0] * parts[2]) for width in widths]
            places = [sum(counts[:place]) for place in range(len(counts))]
            mixed = [Columns(p, c, total, parts) for p, c in zip(places, counts, strict=True)]
            found["groups"] = self._with(columns, mixed)
        return found

    @staticmethod
    def _with(columns: Sequence[Column], others: Sequence[Columns]) -> list[Piece]:
        return [
            Piece(c.unit, c.purpose, Columns(c.start, c.width, c.unit.fan_out), other)
            for c, other in zip(columns, others, strict=True)
        ]

    def _groups(self, order: tuple[str, ...], widths: list[int]) -> tuple[int, int, int] | None:
        """Groups, members of each, and width of a member, where each group holds all purposes."""
        if order == ("gate", "up"):
            return widths[0], 2, 1
        heads = self._heads()
        if heads is None or widths[1] % heads:
            return None
        dim = widths[1] // heads
        if widths[0] % (dim * heads) or widths[1] != widths[2]:
            return None
        return heads, widths[0] // (dim * heads) + 2, dim

    def _heads(self) -> int | None:
        """Key-value heads, from the parameters of attention."""
        for op, role in enumerate(self._atb.roles):
            if role is not Role.CORE:
                continue
            params = params_of(self._atb.operations[op])
            for key in ("kvHeadNum", "headNum"):
                number = params.get(key)
                if isinstance(number, int) and number > 0:
                    return number
        return None

    def _agreement(self, pair: Pair, pieces: Sequence[Piece]) -> float:
        """The smallest cosine of all pieces, -1 if they cannot be compared."""
        return min((self._cosine(pair.torch[0], piece) for piece in pieces), default=-1.0)

    def _cosine(self, torch: Unit, piece: Piece) -> float:
        if piece.unit.result is None or torch.result is None:
            return -1.0
        left, right = piece.unit.result.uses[0].tensor, torch.result.uses[0].tensor
        shapes = shape_of(left), shape_of(right)
        if shapes[0] is None or shapes[1] is None:
            return -1.0
        views = make_views(shapes[0], shapes[1], self._tokens, piece.atb, piece.torch)
        if views is None:
            return -1.0
        try:
            a, b = apply(left.nd(), views.atb), apply(right.nd(), views.torch)
        except (AitError, ValueError):
            return -1.0
        return _cosine(a, b)


def _cosine(a: Array, b: Array) -> float:
    left, right = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
    finite = np.isfinite(left) & np.isfinite(right)
    left, right = left[finite], right[finite]
    norms = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(left @ right) / norms if norms else -1.0
