"""What makes two linked tensors comparable."""

from __future__ import annotations

from math import prod

from ait_llm.dumps.model import Tensor
from ait_llm.match.programs.columns import Columns
from ait_llm.match.programs.links import Link, Links
from ait_llm.match.programs.row_spaces import Shape
from ait_llm.match.programs.shapes import Views, make_views, reshaped, share_no_token
from ait_llm.match.programs.shards import Portion
from ait_llm.match.programs.tokens import Tokens
from ait_llm.match.value_views import Times
from ait_llm.program.describe import shape_of
from ait_llm.program.flow import Value

_SHAPES = 4  # of one value that are tried
# Both shapes, the columns of each side, and the rows that a tensor was gathered from.
_Sought = tuple[Shape, Shape, Columns | None, Columns | None, tuple[int, ...] | None]


class LinkViews:
    """Views of linked tensors, by their shapes.

    Args:
        tokens: alignment of the rows of both sides.
        links: all of them.
        portion: how both sides share a model.
    """

    def __init__(self, tokens: Tokens | None, links: Links, portion: Portion | None) -> None:
        self._tokens = tokens
        self._links = links
        self._portion = portion
        self._known: dict[_Sought, Views | None] = {}

    def of(self, left: Tensor, right: Tensor, link: Link) -> Views | None:
        """What brings two tensors to the same; None if nothing does."""
        shapes = shape_of(left), shape_of(right)
        if shapes[0] is None or shapes[1] is None:
            return Views((), ())  # whoever reads it says what is wrong with it
        rows = self._links.rows_of(link.left)
        key = (shapes[0], shapes[1], link.left_columns, link.right_columns, rows)
        if key not in self._known:
            self._known[key] = make_views(
                shapes[0],
                shapes[1],
                self._tokens,
                link.left_columns,
                link.right_columns,
                rows,
                self._portion,
            )
        views = self._known[key] or self._elsewhere(shapes[0], shapes[1], link)
        if views is None or link.factors == (1.0, 1.0):
            return views
        times = [() if factor == 1.0 else (Times(factor),) for factor in link.factors]
        return Views((*views.left, *times[0]), (*views.right, *times[1]))

    def are_of_other_tokens(self, link: Link, *, left: Tensor | None, right: Tensor | None) -> bool:
        """True for two tensors whose rows are known, and that have none of them in common.

        An engine computes logits of the last token of each chunk of a prompt.

        Args:
            link: of the two values.
            left, right: how they are seen; None for the first look at each.
        """
        shapes = (
            shape_of(link.left.uses[0].tensor if left is None else left),
            shape_of(link.right.uses[0].tensor if right is None else right),
        )
        if self._tokens is None or shapes[0] is None or shapes[1] is None:
            return False
        return self._tokens.tells_newest and share_no_token(shapes[0], shapes[1], self._tokens)

    def are_several_of_each_token(self, tensor: Tensor, link: Link) -> bool:
        """True for rows of which each token has as many on both sides, in passes of other sizes.

        Experts are given the rows that the router sent them, one expert after the other.
        """
        shapes = shape_of(tensor), shape_of(link.right.uses[0].tensor)
        if self._tokens is None or not shapes[0] or not shapes[1] or shapes[0][1:] != shapes[1][1:]:
            return False
        counts = self._tokens.left.count, self._tokens.right.count
        if 0 in counts or counts[0] == counts[1] or shapes[0][0] % counts[0]:
            return False
        times = shapes[0][0] // counts[0]
        return times > 1 and shapes[1][0] == times * counts[1]

    def _elsewhere(self, left: Shape, right: Shape, link: Link) -> Views | None:
        """Views in other shapes that the two values have, those where they are written first.

        A row-major stretch is one value in whatever shape an operator looks at it.
        """
        rows = self._links.rows_of(link.left)
        for first in _shapes_of(link.left, left):
            for second in _shapes_of(link.right, right):
                if (first, second) == (left, right):
                    continue
                columns = link.left_columns, link.right_columns
                views = make_views(first, second, self._tokens, *columns, rows)
                if views is not None:
                    return Views(
                        (*reshaped(left, first), *views.left),
                        (*reshaped(right, second), *views.right),
                    )
        return None


def _shapes_of(value: Value, shape: Shape) -> list[Shape]:
    """The shapes in which operators look at all of a value, that of its first use first."""
    shapes = dict.fromkeys(shape_of(use.tensor) for use in value.uses)
    return [each for each in shapes if each is not None and prod(each) == prod(shape)][:_SHAPES]
