"""Axes that the tokens alone do not tell, tried on arrays whose elements say where they belong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ait_llm.match.programs.row_spaces import Shape
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


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 4, 4, 12), (2, 4, 9, 12)),  # requests, heads, tokens
        ((8, 4, 12), (8, 9, 12)),  # heads of all requests on one axis
        ((2, 4, 4, 12), (8, 9, 12)),
        ((8, 4, 12), (2, 4, 9, 12)),
    ],
)
def test_the_other_side_tells_heads_from_as_many_tokens(left: Shape, right: Shape) -> None:
    pairs = tuple((4 * row + at, 9 * row + at) for row in range(2) for at in range(4))
    tokens = Tokens(Rows(2, 4, 8, (3, 7)), Rows(2, 9, 18, (8, 17)), pairs, "given", True)
    views = make_views(left, right, replace(tokens, is_one_program=True))
    assert views is not None
    numbers = np.arange(2 * 9 * 4 * 12).reshape(2, 9, 4, 12)  # requests, tokens, heads
    whole = numbers.transpose(0, 2, 1, 3)
    ours, theirs = whole[:, :, :4].reshape(left), whole.reshape(right)
    np.testing.assert_array_equal(apply(ours, views.left), apply(theirs, views.right))
