"""The layout that made some parts of a tensor is found again, whatever one rank holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm.compare.api.shards.inferring import Layouts, infer
from ait_llm.compare.api.shards.judging import judge_pieces
from ait_llm.compare.api.shards.layout import Layout
from ait_llm.core import DType
from ait_llm.formats.elements import Array

RANKS = 8
RNG = np.random.default_rng(5)
WHOLE = RNG.standard_normal((6, 96, 16)).astype(np.float32)


def qkv(whole: Array, axis: int, heads: tuple[int, int, int], copies: int = 1) -> list[Array]:
    """Query, key and value of each rank, heads of one row each."""
    q, k, v = np.split(whole, np.cumsum(heads)[:2], axis)
    parts = [np.split(q, RANKS, axis), *(np.split(each, RANKS // copies, axis) for each in (k, v))]
    return [
        np.concatenate([parts[0][rank], *(each[rank // copies] for each in parts[1:])], axis)
        for rank in range(RANKS)
    ]


def summands(whole: Array) -> list[Array]:
    parts = [RNG.standard_normal(whole.shape).astype(np.float32) for _ in range(RANKS - 1)]
    return [*parts, (whole - np.sum(parts, axis=0, dtype=np.float64)).astype(np.float32)]


PADDED = np.concatenate([WHOLE[:, :, :15], np.zeros((6, 96, 1), np.float32)], 2)
CASES = {
    "replicate": (WHOLE, [WHOLE.copy() for _ in range(RANKS)]),
    "sum": (WHOLE, summands(WHOLE)),
    "shard 1": (WHOLE, np.split(WHOLE, RANKS, 1)),
    "shard 2": (PADDED[:, :, :15], np.split(PADDED, RANKS, 2)),
    "shard 0": (WHOLE, np.array_split(WHOLE, RANKS, 0)),  # uneven, two of them empty
    "shard 1 groups 2": (WHOLE, np.split(WHOLE, 4, 1) * 2),
    "shard 1 blocks 24x2": (WHOLE, [each for each in np.split(WHOLE, 4, 1) for _ in range(2)]),
    "shard 1 blocks 4+4+4": (WHOLE, qkv(WHOLE, 1, (32, 32, 32))),
    "shard 1 blocks 8+2+2": (WHOLE, qkv(WHOLE, 1, (64, 16, 16))),
    "shard 1 blocks 8+4x2+4x2": (WHOLE, qkv(WHOLE, 1, (64, 16, 16), copies=2)),
    "transposed shard 0": (WHOLE[0], [each.T.copy() for each in np.split(WHOLE[0], RANKS, 0)]),
}


@pytest.mark.parametrize("text", list(CASES))
def test_each_layout_is_found_and_its_parts_pass(text: str) -> None:
    whole, parts = CASES[text]
    found = infer([whole], parts)
    assert found is not None
    assert str(found.layouts) == text
    judged = judge_pieces(found.choice.pieces, DType.FLOAT32, DType.FLOAT32, whole_is_golden=True)
    assert (judged.off, judged.reason) == ((), "")


@pytest.mark.parametrize("text", [each for each in CASES if each != "sum"])
@pytest.mark.parametrize("wrong", ["one element", "all of it", "nan"])
def test_a_wrong_rank_is_named_and_does_not_decide_the_layout(text: str, wrong: str) -> None:
    whole, parts = CASES[text]
    rank = 3
    changed = [part.copy() for part in parts]
    if wrong == "all of it":
        changed[rank] = RNG.standard_normal(changed[rank].shape).astype(np.float32)
    else:
        changed[rank].reshape(-1)[0] += 9.0 if wrong == "one element" else np.nan
    found = infer([whole], changed)
    assert found is not None
    assert str(found.layouts) == text
    judged = judge_pieces(found.choice.pieces, DType.FLOAT32, DType.FLOAT32, whole_is_golden=True)
    assert judged.off == (rank,)


@pytest.mark.parametrize("factor", [-1.0, 3.0])
def test_a_part_of_a_sum_that_is_wrong_by_a_factor_leaves_it_a_sum(factor: float) -> None:
    whole, parts = CASES["sum"]
    found = infer(
        [whole], [part * factor if rank == 2 else part for rank, part in enumerate(parts)]
    )
    assert found is not None
    assert found.layouts.many.kind == "sum"


def test_unrelated_values_have_no_layout() -> None:
    parts = [RNG.standard_normal(WHOLE.shape) for _ in range(RANKS)]
    assert infer([WHOLE], parts) is None
    assert infer([WHOLE], np.split(RNG.standard_normal(WHOLE.shape), RANKS, 1)) is None


def test_shapes_that_fit_nothing_have_no_layout() -> None:
    assert infer([WHOLE], [WHOLE[:5]] * RANKS) is None


def test_a_layout_of_an_earlier_call_holds_for_values_that_are_wrong_everywhere() -> None:
    remembered = Layouts(Layout("replicate"), Layout("shard", 1))
    parts = np.split(RNG.standard_normal(WHOLE.shape), RANKS, 1)
    found = infer([WHOLE], parts, remembered=remembered)
    assert found is not None
    assert found.layouts == remembered


@pytest.mark.parametrize(
    ("text", "few"),
    [
        ("replicate", [WHOLE] * 4),
        ("shard 1 | shard 1", np.split(WHOLE, 4, 1)),
        ("shard 1 blocks 8+8+8 | shard 1 blocks 4+4+4", None),
        ("sum | sum", [WHOLE * share for share in (0.1, 0.2, 0.3, 0.4)]),
    ],
)
def test_both_sides_may_have_several_ranks(text: str, few: list[Array] | None) -> None:
    many = CASES[text.rpartition("| ")[2]][1]
    if few is None:
        thirds = [np.split(each, 4, 1) for each in np.split(WHOLE, 3, 1)]
        few = [np.concatenate([third[rank] for third in thirds], 1) for rank in range(4)]
    found = infer(few, many)
    assert found is not None
    assert str(found.layouts) == text


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 8), st.integers(0, 2), st.sampled_from(["f2", "f4", "i4", "c8"]), st.data())
def test_any_cut_along_any_axis_is_found(ranks: int, axis: int, code: str, data: object) -> None:
    assert isinstance(data, st.DataObject)
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=ranks, max_size=ranks))
    shape = [4, 3, 5]
    shape[axis] = sum(sizes)
    whole = (np.random.default_rng(sum(sizes)).standard_normal(shape) * 1000).astype(code)
    found = infer([whole], np.split(whole, np.cumsum(sizes)[:-1], axis))
    assert found is not None
    assert found.choice.distance == 0
    assert found.layouts.many.axis == axis


@pytest.mark.parametrize("elsewhere", [0.0, 7.0])
def test_one_row_of_a_table_that_one_of_two_ranks_has_is_no_copy(elsewhere: float) -> None:
    row = np.array([[1.0, -2.0, 3.0]], np.float32)
    other = np.full_like(row, elsewhere)  # what a rank finds where the table is not its own
    ids = np.array([5])
    found = infer([row], [other, row], None, None, [Layout("rows", rows=(4, 4))], ids)
    assert found is not None
    assert found.layouts.many.kind == ("rows" if elsewhere else "sum")
    assert found.choice.distance == 0
