"""Views carried out block by block give what carrying them out at once gives."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_runs import array_tensor

from ait_llm.compare import blocks
from ait_llm.compare.alignment import Aligned, align, pairs
from ait_llm.compare.blocks import blocks_of, elements_of
from ait_llm.compare.values import Values
from ait_llm.core import DType, TensorRecord
from ait_llm.match.value_views import Dequantise
from ait_llm.match.views import Part, Plus, Reorder, Repeat, Reshape, Rows, View, apply

RECORD = TensorRecord("residual", "", "Add", "output_0", "out", 0, "")

shapes = st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 12)


@st.composite
def arrays_with_views(draw: st.DrawFn) -> tuple[np.ndarray, list[View]]:
    shape = draw(shapes)
    array: np.ndarray[Any, Any] = np.arange(prod(shape), dtype=np.int16).reshape(shape)
    views: list[View] = []
    for _ in range(draw(st.integers(0, 3))):
        now = apply(array, views)
        axis = draw(st.integers(0, now.ndim - 1))
        length = now.shape[axis]
        kind = draw(st.sampled_from(["part", "rows", "reshape", "reorder", "repeat"]))
        if kind == "part":
            start = draw(st.integers(0, length - 1))
            views.append(Part(axis, start, draw(st.integers(start + 1, length))))
        elif kind == "rows":
            places = st.lists(st.integers(0, length - 1), min_size=1, max_size=5)
            views.append(Rows(axis, tuple(draw(places))))
        elif kind == "reshape":
            views.append(Reshape((now.size,) if draw(st.booleans()) else (now.size, 1)))
        elif kind == "reorder":
            views.append(Reorder(tuple(draw(st.permutations(range(now.ndim))))))
        else:
            views.append(Repeat(axis, draw(st.integers(1, 3))))
    if draw(st.booleans()):
        now = apply(array, views)
        axis = -draw(st.integers(1, now.ndim))
        count = draw(st.sampled_from([1, now.shape[axis]]))
        scale = tuple(float(place + 1) for place in range(count))
        views.append(Dequantise(scale, (0.5,), axis))
    return array, views


@st.composite
def sums_with_views(draw: st.DrawFn) -> tuple[np.ndarray, list[View]]:
    array, views = draw(arrays_with_views())
    place = draw(st.integers(0, len(views)))
    try:
        shape = apply(array, views[:place]).shape
    except ValueError:
        shape = array.shape
    other = np.arange(prod(shape), dtype=np.int16)[::-1] % 100
    packed = draw(st.booleans())
    tensor = array_tensor("out", 0, other if packed else other.reshape(shape))
    plus = Plus(RECORD, tensor, (Reshape(shape),) if packed else ())
    return array, [*views[:place], plus, *views[place:]]


def joined(array: np.ndarray, views: list[View], *, flat: bool) -> np.ndarray:
    elements = elements_of(array, views)
    parts = [
        elements.take(block) for block in blocks_of(elements.shape, flat=flat and elements.is_flat)
    ]
    assert all(part.ndim == 1 and part.flags.c_contiguous for part in parts)
    return np.concatenate(parts).reshape(elements.shape)


@given(arrays_with_views(), st.booleans())
def test_blocks_in_a_row_are_the_whole(case: tuple[np.ndarray, list[View]], flat: bool) -> None:
    array, views = case
    np.testing.assert_array_equal(joined(array, views, flat=flat), apply(array, views))


@given(sums_with_views(), st.booleans())
def test_a_sum_in_blocks_is_the_whole(case: tuple[np.ndarray, list[View]], flat: bool) -> None:
    array, views = case
    np.testing.assert_array_equal(joined(array, views, flat=flat), apply(array, views))


@given(shapes, st.booleans())
def test_blocks_cover_all_elements_once_and_are_small(shape: tuple[int, ...], flat: bool) -> None:
    found = list(blocks_of(shape, flat=flat))
    ends = [0, *(block.stop for block in found)]
    assert [block.start for block in found] == ends[:-1]
    assert ends[-1] == prod(shape)
    row = shape[-1] if not flat and len(shape) > 1 else 1
    assert all(block.stop - block.start <= max(12, row) for block in found)


@given(arrays_with_views(), arrays_with_views())
def test_both_sides_are_cut_at_the_same_places(
    first: tuple[np.ndarray, list[View]], second: tuple[np.ndarray, list[View]]
) -> None:
    target = apply(*first).shape
    array, views = second
    whole = np.resize(apply(array, views), target)
    golden = Aligned(Values(first[0], DType.INT16), first[1])
    mine = Aligned(Values(np.asfortranarray(whole), DType.INT16))
    assert align(golden, mine) == target
    theirs, ours = zip(*pairs(golden, mine), strict=True)
    np.testing.assert_array_equal(np.concatenate(theirs).reshape(target), apply(*first))
    np.testing.assert_array_equal(np.concatenate(ours).reshape(target), whole)


@given(arrays_with_views())
def test_axes_of_length_one_may_be_anywhere(case: tuple[np.ndarray, list[View]]) -> None:
    array, views = case
    whole = apply(array, views)
    golden = Aligned(Values(whole[None, ..., None], DType.INT16))
    mine = Aligned(Values(array, DType.INT16), views)
    assert align(golden, mine) == (1, *whole.shape, 1)
    np.testing.assert_array_equal(mine.whole(), whole[None, ..., None])


@pytest.mark.parametrize(
    "view",
    [Rows(0, (9,)), Reshape((5,)), Dequantise((1.0, 2.0), (0.0,), -1), Part(1, 0, 9)],
)
def test_views_that_do_not_fit_are_refused(view: View) -> None:
    with pytest.raises(ValueError, match=r"reaches beyond|cannot be taken|do not fit"):
        elements_of(np.zeros((2, 3), np.int8), [view])


def test_summands_of_other_dims_are_refused() -> None:
    plus = Plus(RECORD, array_tensor("out", 0, np.ones((3, 2))))
    with pytest.raises(ValueError, match=r"\[3, 2\] cannot be added to \[2, 3\]"):
        elements_of(np.zeros((2, 3)), [plus])


def test_a_repeated_tensor_is_not_copied() -> None:
    array = np.zeros((4, 6), np.float32)
    elements = elements_of(array, [Repeat(0, 1000), Reshape((4000, 6, 1))])
    assert elements.shape == (4000, 6, 1)
    [block, *_] = blocks_of(elements.shape, flat=True)
    assert np.shares_memory(elements.take(block), array)


def test_large_booleans_of_a_device_are_true_whatever_their_byte() -> None:
    values = Values(np.array([0, 1, 255, 2], np.uint8), DType.BOOL)
    assert Aligned(values).whole().tolist() == [False, True, True, True]
