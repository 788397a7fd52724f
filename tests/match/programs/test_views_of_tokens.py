"""Packed against padded: the views, tried on arrays whose elements say where they belong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.match.programs.columns import Columns
from ait_llm.match.programs.shapes import Views, make_views
from ait_llm.match.programs.tokens import Tokens
from ait_llm.match.views import Reshape, apply
from ait_llm.match.views import Rows as RowsView
from ait_llm.program.rows import Rows

Lengths = list[int]


def _places(lengths: Lengths, seq: int, left: bool) -> list[tuple[int, int]]:
    """Sequence and position of each packed row, by hand."""
    rows = []
    for sequence, length in enumerate(lengths):
        first = seq - length if left else 0
        rows += [(sequence, first + position) for position in range(length)]
    return rows


def _tokens(lengths: Lengths, seq: int, left: bool) -> Tokens:
    places = _places(lengths, seq, left)
    rows = tuple(sequence * seq + position for sequence, position in places)
    last = tuple(int(end) - 1 for end in np.cumsum(lengths))
    padded = Rows(len(lengths), seq, len(lengths) * seq, tuple(rows[row] for row in last))
    axes = (len(lengths), seq) if len(rows) == padded.count else (0, len(rows))
    return Tokens(Rows(*axes, len(rows), last), padded, tuple(enumerate(rows)), "given", True)


_CASES = st.tuples(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(0, 3),
    st.booleans(),
    st.integers(1, 3),
    st.integers(1, 4),
)


@given(_CASES)
def test_hidden_states_are_compared_token_by_token(
    case: tuple[Lengths, int, bool, int, int],
) -> None:
    lengths, extra, left, heads, dim = case
    seq = max(lengths) + extra
    rng = np.random.default_rng(0)
    padded = rng.random((len(lengths), seq, heads * dim))
    packed = np.stack([padded[place] for place in _places(lengths, seq, left)])
    views = make_views(packed.shape, padded.shape, _tokens(lengths, seq, left))
    assert views is not None
    np.testing.assert_array_equal(apply(packed, views.left), apply(padded, views.right))


@given(_CASES)
def test_heads_may_stand_before_the_positions(case: tuple[Lengths, int, bool, int, int]) -> None:
    lengths, extra, left, heads, dim = case
    seq = max(lengths) + extra
    heads += seq  # as many heads as positions cannot be told apart
    padded = np.random.default_rng(0).random((len(lengths), heads, seq, dim))
    packed = np.stack([padded[s, :, p].reshape(-1) for s, p in _places(lengths, seq, left)])
    views = make_views(packed.shape, padded.shape, _tokens(lengths, seq, left))
    assert views is not None
    np.testing.assert_array_equal(apply(packed, views.left), apply(padded, views.right))


@given(_CASES)
def test_logits_of_last_tokens_are_found_among_those_of_all(
    case: tuple[Lengths, int, bool, int, int],
) -> None:
    lengths, extra, left, heads, dim = case
    seq = max(lengths) + extra
    tokens = _tokens(lengths, seq, left)
    padded = np.random.default_rng(0).random((len(lengths), seq, heads * dim))
    places = _places(lengths, seq, left)
    last = np.stack([padded[places[row]] for row in tokens.left.last])
    views = make_views(last.shape, padded.shape, tokens, rows=tokens.left.last)
    assert views is not None
    np.testing.assert_array_equal(apply(last, views.left), apply(padded, views.right))


@given(_CASES)
def test_last_tokens_of_torch_are_found_among_all_of_atb(
    case: tuple[Lengths, int, bool, int, int],
) -> None:
    lengths, extra, left, heads, dim = case
    seq = max(lengths) + extra + 1
    tokens = _tokens(lengths, seq, left)
    packed = np.random.default_rng(0).random((sum(lengths), heads * dim))
    last = np.stack([packed[row] for row in tokens.left.last])[:, None]
    views = make_views(packed.shape, last.shape, tokens)
    assert views is not None
    np.testing.assert_array_equal(apply(packed, views.left), apply(last, views.right))


@given(_CASES)
def test_tables_shared_by_the_batch_are_read_by_position(
    case: tuple[Lengths, int, bool, int, int],
) -> None:
    lengths, extra, left, heads, dim = case
    seq = max(lengths) + extra
    shared = np.random.default_rng(0).random((1, seq, heads * dim))
    places = _places(lengths, seq, left)
    packed = np.stack([shared[0, position] for _, position in places])
    views = make_views(packed.shape, shared.shape, _tokens(lengths, seq, left))
    assert views is not None
    np.testing.assert_array_equal(apply(packed, views.left), apply(shared, views.right))


@given(_CASES, st.integers(1, 3))
def test_groups_of_queries_keys_and_values_are_taken_apart(
    case: tuple[Lengths, int, bool, int, int], shared: int
) -> None:
    lengths, extra, left, heads, dim = case
    seq = max(lengths) + extra
    rows = _places(lengths, seq, left)
    padded = np.random.default_rng(0).random((len(lengths), seq, heads, shared + 2, dim))
    blocks = [padded[:, :, :, :shared], padded[:, :, :, shared], padded[:, :, :, shared + 1]]
    packed = np.stack(
        [np.concatenate([block[place].reshape(-1) for block in blocks]) for place in rows]
    )
    total = heads * (shared + 2) * dim
    sizes = (heads * shared * dim, heads * dim, heads * dim)
    start = 0
    for place, (size, count) in enumerate(zip(sizes, (shared, 1, 1), strict=True)):
        views = make_views(
            packed.shape,
            (len(lengths), seq, total),
            _tokens(lengths, seq, left),
            Columns(start, size, total),
            Columns((0, shared, shared + 1)[place], count, total, (heads, shared + 2, dim)),
        )
        assert views is not None
        start += size
        theirs = apply(padded.reshape(len(lengths), seq, total), views.right)
        np.testing.assert_array_equal(apply(packed, views.left), theirs)


def test_equal_shapes_need_no_views() -> None:
    views = make_views((2, 256), (2, 256), _tokens([7, 4], 7, left=False))
    assert views is not None
    assert (views.left, views.right) == ((), ())


def test_heads_of_a_single_token_lie_as_its_columns_do() -> None:
    heads = np.random.default_rng(0).random((4, 1, 16))  # as a product of heads returns them
    row = heads.reshape(1, 1, 64)
    views = make_views(heads.shape, row.shape, _tokens([1], 1, left=False))
    assert views is not None
    np.testing.assert_array_equal(apply(heads, views.left), apply(row, views.right))


def test_nothing_but_a_reshape_without_padding() -> None:
    views = make_views((8, 64), (2, 4, 64), _tokens([4, 4], 4, left=False))
    assert views is not None
    assert (views.left, views.right) == ((), (Reshape((8, 64)),))


@pytest.mark.parametrize(
    ("atb", "torch"), [((11, 64), (2, 7, 32)), ((11, 64), (3, 5, 64)), ((11, 64), ()), ((), (2, 7))]
)
def test_shapes_that_do_not_fit_have_no_views(atb: tuple[int, ...], torch: tuple[int, ...]) -> None:
    assert make_views(atb, torch, _tokens([7, 4], 7, left=False)) is None


def test_without_known_tokens_only_equal_numbers_of_rows_fit() -> None:
    views = make_views((8, 64), (2, 4, 64), None)
    assert views is not None
    assert views.right == (Reshape((8, 64)),)
    assert make_views((7, 64), (2, 4, 64), None) is None


def test_a_matrix_is_no_view_of_one_with_exchanged_axes() -> None:
    rows = Rows(0, 48, 48, (47,))
    tokens = Tokens(rows, rows, tuple((each, each) for each in range(48)), "given", True)
    assert make_views((48, 96), (96, 48), tokens) is None
    assert make_views((48, 96), (96, 48), None) is None
    heads = make_views((48, 96), (144, 32), tokens)  # three heads of each token
    assert heads is not None
    one = make_views((48, 1), (1, 48), tokens)
    assert one is not None


def _batch(count: int, seq: int) -> Tokens:
    """Both sides have the same requests, none of them padded."""
    rows = Rows(count, seq, count * seq, tuple((each + 1) * seq - 1 for each in range(count)))
    pairs = tuple((row, row) for row in range(rows.count))
    return Tokens(rows, rows, pairs, "given", True)


@given(st.integers(2, 4), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))
def test_heads_of_all_requests_may_be_one_axis(count: int, seq: int, heads: int, dim: int) -> None:
    heads += seq  # as many heads as positions cannot be told apart
    whole = np.random.default_rng(0).random((count, heads, seq, dim))
    joined = whole.reshape(count * heads, seq, dim)
    for sides in ((joined, whole), (whole, joined)):
        views = make_views(sides[0].shape, sides[1].shape, _batch(count, seq))
        assert views is not None
        np.testing.assert_array_equal(apply(sides[0], views.left), apply(sides[1], views.right))


@given(st.integers(2, 4), st.integers(5, 8))
def test_positions_of_all_requests_may_have_an_axis_before_them(count: int, seq: int) -> None:
    places = np.arange(seq)
    views = make_views((seq,), (1, seq), _batch(count, seq))
    assert views is not None
    np.testing.assert_array_equal(apply(places, views.left), apply(places[None], views.right))
    assert make_views((seq,), (1, seq + 1), _batch(count, seq)) is None


@given(st.integers(1, 3), st.integers(5, 9), st.integers(1, 3), st.integers(1, 4))
def test_rows_of_another_sequence_may_be_joined_and_cut_in_heads(
    batch: int, frames: int, heads: int, dim: int
) -> None:
    tokens = _tokens([4], 4, left=True)  # of the decoder; frames are no rows of it
    whole = np.random.default_rng(0).random((batch, frames, heads * dim))
    shapes = ((batch * frames, heads * dim), (batch, frames, heads, dim))
    for shape in shapes:
        views = make_views(shape, whole.shape, tokens)
        assert views is not None
        np.testing.assert_array_equal(
            apply(whole.reshape(shape), views.left), apply(whole, views.right)
        )


def test_columns_of_each_head_are_cut_where_the_last_axis_is_that_of_one_head() -> None:
    whole = np.random.default_rng(0).random((1, 1, 4, 16))
    tokens = _tokens([1], 1, left=True)
    half = whole[..., 8:].reshape(1, 4, 1, 8)
    views = make_views(half.shape, whole.shape, tokens, None, Columns(8, 8, 16))
    assert views is not None
    np.testing.assert_array_equal(apply(half, views.left), apply(whole, views.right))


def test_the_logits_of_a_part_of_a_prompt_answer_no_logits_of_the_whole() -> None:
    part, whole = Rows(0, 7, 7, (3, 6)), Rows(0, 13, 13, (9, 12))  # 4 of 10 tokens, and 3 of 3
    pairs = (*((row, row) for row in range(4)), *((4 + row, 10 + row) for row in range(3)))
    tokens = Tokens(part, whole, pairs, "by requests", certain=True, by_request=True)
    views = make_views((2, 128), (2, 128), tokens)
    assert views == Views((RowsView(0, (1,)),), (RowsView(0, (1,)),))
    none = Tokens(part, whole, pairs[:4], "by requests", certain=True, by_request=True)
    assert make_views((2, 128), (2, 128), none) is None
