"""The words in brackets, against what they mean in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.match.mapping.relations import Joined, read_word, views_of
from ait_llm.match.mapping.spelling import words_for
from ait_llm.match.value_views import Dequantise, FirstUse, Hidden, Shift
from ait_llm.match.views import Part, Reorder, Repeat, Reshape, Rows, View, apply, shape_after

X = np.arange(2 * 3 * 24).reshape(2, 3, 24)


def _done(words: str, array: np.ndarray, joined: Joined | None = None) -> np.ndarray:
    return apply(array, views_of([read_word(words)], array.shape, joined))


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("columns 8:12", X[..., 8:12]),
        ("rows 1:2", X[1:2]),
        ("transposed", X.swapaxes(1, 2)),
        ("last", X[:, -1:]),
        ("part 1 0:2", X[:, :2]),
        ("pick 1 0:2,1", X[:, [0, 1, 1]]),
        ("shape 6x24", X.reshape(6, 24)),
        ("axes 2,0,1", X.transpose(2, 0, 1)),
    ],
)
def test_words_that_need_no_parts(word: str, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(_done(word, X), expected)


def test_columns_of_parts_in_their_order() -> None:
    q, k, v = X[..., :16], X[..., 16:20], X[..., 20:]
    shapes = tuple(each.shape for each in (q, k, v))
    for place, part in enumerate((q, k, v)):
        np.testing.assert_array_equal(_done("columns", X, Joined(shapes, place)), part)


def test_rows_of_parts_of_a_weight() -> None:
    gate, up = X[0, :, :].T[:8], X[0, :, :].T[8:]
    joined = np.concatenate([gate, up])
    for place, part in enumerate((gate, up)):
        found = _done("rows", joined, Joined((gate.shape, up.shape), place))
        np.testing.assert_array_equal(found, part)


def test_heads_that_hold_queries_keys_and_values_each() -> None:
    heads = 4
    q, k, v = (np.random.default_rng(seed).normal(size=(5, heads, 6)) for seed in range(3))
    k, v = k[..., :2], v[..., :2]
    joined = np.concatenate([q, k, v], axis=-1).reshape(5, -1)
    shapes = ((5, 24), (5, 8), (5, 8))
    for place, part in enumerate((q, k, v)):
        found = _done(f"interleaved heads={heads}", joined, Joined(shapes, place))
        np.testing.assert_array_equal(found, part.reshape(5, -1))


def test_rotary_halves_and_pairs_undo_each_other() -> None:
    halves = X[..., :8].reshape(2, 3, 2, 4)  # two heads: x0 x1 y0 y1
    pairs = halves[..., [0, 2, 1, 3]].reshape(2, 3, 8)
    np.testing.assert_array_equal(_done("rotary halves heads=2", X[..., :8]), pairs)
    np.testing.assert_array_equal(_done("rotary pairs heads=2", pairs), X[..., :8])


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("columns 20:30", "does not fit shape"),
        ("columns", "no parts on the other side"),
        ("rotary pairs heads=5", "24 columns are not pairs in 5 heads"),
        ("shape 5x5", "does not fit shape"),
        ("pick 1 0:999999999", "axis 1 has 3 elements"),
    ],
)
def test_words_that_do_not_fit(word: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        _done(word, X)


def test_parts_that_are_not_the_whole() -> None:
    with pytest.raises(ValueError, match=r"\[columns\] does not fit .*: the parts have 16 \+ 4"):
        _done("columns", X, Joined(((2, 3, 16), (2, 3, 4)), 0))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("colums 0:4", "no relation; there are columns, rows"),
        ("columns 4", r"not written like \[columns 0:64\]"),
        ("interleaved", r"not written like \[interleaved heads=8\]"),
        ("rotary both", r"not written like \[rotary halves heads=8\]"),
        ("", "no relation"),
    ],
)
def test_what_is_no_word(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_word(text)


def _views() -> st.SearchStrategy[View]:
    n = st.integers(0, 3)
    return st.one_of(
        st.builds(Part, st.integers(0, 1), st.just(0), st.integers(0, 4)),
        st.builds(Rows, st.integers(0, 1), st.lists(n, max_size=6).map(tuple)),
        st.just(Reshape((2, 8))),
        st.just(Reshape((16,))),
        st.sampled_from([Reorder((1, 0)), Reorder((0, 1))]),
        st.builds(Repeat, st.integers(0, 1), st.integers(1, 3)),
        st.builds(Shift, st.just(0), st.just(2), st.integers(-9, 9)),
        st.just(FirstUse()),
        st.builds(Hidden, st.floats(allow_nan=False)),
        st.builds(Dequantise, st.tuples(st.floats(-1, 1)), st.tuples(st.floats(-1, 1))),
    )


@given(st.lists(_views(), max_size=4))
def test_every_view_has_words_that_mean_it(views: list[View]) -> None:
    shape = (4, 4)
    try:
        shape_after(shape, views)
    except (IndexError, ValueError):
        return
    words = words_for(views, shape)
    read = views_of([read_word(each) for each in words[1:-1].split("][") if each], shape, None)
    assert read == tuple(views)
