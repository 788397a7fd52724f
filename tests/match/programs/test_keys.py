"""Axes of keys: what is left of two tensors once the same tokens are picked on both sides."""

from __future__ import annotations

import numpy as np
import pytest

from ait_llm.formats.elements import Array
from ait_llm.match.programs.keys import Axis, Keys, key_views
from ait_llm.match.programs.shapes import make_views
from ait_llm.match.programs.tokens import Tokens
from ait_llm.match.views import apply
from ait_llm.program.rows import Rows

HEADS, DIM = 3, 2
# Two requests of 3 and of 5 tokens, the last of which is new; each element says which it is.
LENGTHS = (3, 5)


def axis(masks: list[list[int]], seq: int, windows: tuple[int, ...] = ()) -> Axis:
    """One side with these masks."""
    batch = len(masks)
    rows = Rows(batch, seq, batch * seq, ())
    real = tuple(tuple(np.flatnonzero(mask).tolist()) for mask in masks)
    return Axis(rows, real, len(masks[0]), frozenset(windows))


def token(request: int, place: int) -> int:
    """A number that stands for a token of a request; 0 is padding."""
    return 100 * (request + 1) + place


def tokens_of(side: Axis, requests: list[int]) -> list[list[int]]:
    """Tokens along the keys of each request of a side."""
    assert side.real is not None
    return [
        [token(r, places.index(at)) if at in places else 0 for at in range(side.total)]
        for r, places in zip(requests, side.real, strict=True)
    ]


def weights(side: Axis, requests: list[int]) -> Array:
    """``[batch, heads, queries, keys]`` in which each element names head, query and key."""
    rows = tokens_of(side, requests)
    seq = side.rows.seq
    return np.array(
        [
            [[[h * 1e6 + q * 1e3 + k for k in row] for q in row[-seq:]] for h in range(HEADS)]
            for row in rows
        ]
    )


def cache(side: Axis, requests: list[int]) -> Array:
    """``[batch, heads, keys, dim]`` in which each element names head, key and column."""
    rows = tokens_of(side, requests)
    return np.array(
        [
            [[[h * 1e6 + k * 1e3 + d for d in range(DIM)] for k in row] for h in range(HEADS)]
            for row in rows
        ]
    )


LEFT_PADDED = axis([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], 1)
RIGHT_PADDED = axis([[1, 1, 0, 0, 1], [1, 1, 1, 1, 1]], 1)
ALONE = axis([[1, 1, 1]], 1)
ALL_AGAIN = axis([[1, 1, 1]], 3)
WIDE = axis([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 1, 1]], 1)


@pytest.mark.parametrize(
    ("left", "right", "requests", "pairs"),
    [
        (LEFT_PADDED, RIGHT_PADDED, [0, 1], [(0, 0), (1, 1)]),
        (LEFT_PADDED, WIDE, [0, 1], [(0, 0), (1, 1)]),
        (ALONE, LEFT_PADDED, [0], [(0, 0)]),
        (ALONE, ALL_AGAIN, [0], [(0, 2)]),
    ],
)
def test_the_same_tokens_are_left_of_weights_and_caches(
    left: Axis, right: Axis, requests: list[int], pairs: list[tuple[int, int]]
) -> None:
    same = tuple((request, request) for request in requests)
    keys = Keys(left, right, same)
    every = [list(range(side.rows.batch)) for side in (left, right)]
    for make in (weights, cache):
        if make is cache and left.rows.seq != right.rows.seq:
            continue
        ours, theirs = make(left, every[0]), make(right, every[1])
        views = key_views(ours.shape, theirs.shape, keys, pairs)
        assert views is not None
        one, other = apply(ours, views[0]), apply(theirs, views[1])
        np.testing.assert_array_equal(one, other)
        # all keys that are real, and no other: for each head, each query has every token
        expected = sum(LENGTHS[request] for request in requests) * HEADS
        assert one.size == expected * (DIM if make is cache else 1)
        assert (one.reshape(-1) % 1e6 > 0).all() or make is cache


def test_a_window_keeps_the_newest_keys() -> None:
    cut = axis([[1, 1, 1, 1, 1]], 1, (2,))
    whole = axis([[1, 1, 1, 1, 1]], 5, (2,))
    ours, theirs = weights(cut, [0])[..., -2:], weights(whole, [0])
    views = key_views(ours.shape, theirs.shape, Keys(cut, whole, ((0, 0),)), [(0, 4)])
    assert views is not None
    np.testing.assert_array_equal(apply(ours, views[0]), apply(theirs, views[1]))
    # 3 is no window of this program: nothing says which keys these are
    odd = weights(cut, [0])[..., -3:]
    assert key_views(odd.shape, theirs.shape, Keys(cut, whole, ((0, 0),)), [(0, 4)]) is None


def test_a_cache_before_the_pass_lacks_the_new_token() -> None:
    left, right = LEFT_PADDED, WIDE
    ours, theirs = cache(left, [0, 1])[:, :, :-1], cache(right, [0, 1])[:, :, :-1]
    keys = Keys(left, right, ((0, 0), (1, 1)))
    views = key_views(ours.shape, theirs.shape, keys, [(0, 0), (1, 1)])
    assert views is not None
    one, other = apply(ours, views[0]), apply(theirs, views[1])
    np.testing.assert_array_equal(one, other)
    assert one.size == (2 + 4) * HEADS * DIM


def test_caches_of_one_shape_may_be_padded_on_other_sides() -> None:
    sides = LEFT_PADDED, RIGHT_PADDED
    ours, theirs = (cache(side, [0, 1]) for side in sides)
    pairs = ((0, 0), (1, 1))
    tokens = Tokens(sides[0].rows, sides[1].rows, pairs, "given", True, Keys(*sides, pairs))
    assert tokens.is_plain
    views = make_views(ours.shape, theirs.shape, tokens)
    assert views is not None
    np.testing.assert_array_equal(apply(ours, views.left), apply(theirs, views.right))


@pytest.mark.parametrize("times", [0, 1, 3])
def test_places_of_padding_are_left_out_of_caches_that_are_padded_alike(times: int) -> None:
    """What they hold is up to the implementation of the attention; heads may be repeated."""
    pairs = ((0, 0), (1, 1))
    sides = LEFT_PADDED, LEFT_PADDED
    tokens = Tokens(sides[0].rows, sides[1].rows, pairs, "given", True, Keys(*sides, pairs))
    ours = cache(LEFT_PADDED, [0, 1])
    theirs = ours.copy()
    for request, real in enumerate(LEFT_PADDED.real or ()):
        padding = [place for place in range(LEFT_PADDED.total) if place not in real]
        theirs[request][:, padding] = -1
    assert (theirs != ours).any()
    if times:
        ours, theirs = (np.repeat(each[:, :, None], times, 2) for each in (ours, theirs))
    views = make_views(ours.shape, theirs.shape, tokens)
    assert views is not None
    np.testing.assert_array_equal(apply(ours, views.left), apply(theirs, views.right))
    assert apply(ours, views.left).size == sum(LENGTHS[:2]) * HEADS * DIM * max(1, times)


def test_rows_that_each_token_has_several_times_are_no_rows_of_a_padded_batch() -> None:
    """Experts sort the copies of tokens, those of padding among them."""
    padded = Rows(2, 4, 8, LEFT_PADDED.rows.last)
    tokens = Tokens(padded, padded, tuple((row, row) for row in range(2, 8)), "given", True)
    assert make_views((16, DIM), (16, DIM), tokens) is None
    assert make_views((DIM, 16), (DIM, 16), tokens) is not None


@pytest.mark.parametrize("shape", [(5, 5), (5, 5, 4), (1, 4, 5, 5), (1, 4, 1, 5)])
def test_a_table_that_all_requests_of_a_padded_batch_share_is_compared_whole(
    shape: tuple[int, ...],
) -> None:
    rows = Rows(2, 5, 10, ())
    pairs = tuple((row, row) for row in range(10) if row not in (5, 6))
    tokens = Tokens(rows, rows, pairs, "by the attention mask", True)
    views = make_views(shape, shape, tokens)
    assert views is not None
    assert (views.left, views.right) == ((), ())
