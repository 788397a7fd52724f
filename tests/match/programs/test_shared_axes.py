"""Axes that the tokens alone do not tell, tried on arrays whose elements say where they belong."""

from __future__ import annotations

import numpy as np

from ait_llm.match.programs.shapes import make_views
from ait_llm.match.programs.tokens import Tokens
from ait_llm.match.views import apply
from ait_llm.program.rows import Rows

# One request of five tokens, and two of eight of which the second is that one.
ALONE, BATCH = Rows(1, 5, 5, (4,)), Rows(2, 8, 16, (7, 15))


def second_is(first: int) -> Tokens:
    """The tokens of the request begin at a position of the second one of the batch."""
    pairs = tuple((token, 8 + first + token) for token in range(5))
    return Tokens(ALONE, BATCH, pairs, "given", True)


def distances(size: int, heads: int) -> np.ndarray:
    """A bias of distances: ``[positions, positions, heads]``."""
    places = np.arange(size)
    return (places[None, :] - places[:, None])[..., None] * 10 + np.arange(heads)


def test_distances_between_positions_are_those_beside_padding() -> None:
    one, other = distances(5, 3), distances(8, 3)
    for first in (0, 3):
        views = make_views(one.shape, other.shape, second_is(first))
        assert views is not None
        found = apply(one, views.left), apply(other, views.right)
        assert found[0].shape == (5, 5, 3)
        np.testing.assert_array_equal(*found)


def test_requests_with_padding_of_their_own_share_no_table_of_positions() -> None:
    alone = Rows(2, 5, 10, (4, 9))
    first, second = [(row, row) for row in range(5)], [(5 + row, 9 + row) for row in range(5)]
    tokens = Tokens(alone, BATCH, (*first, *second), "given", True)
    assert make_views((5, 5), (8, 8), tokens) is None
