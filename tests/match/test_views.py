"""What is done to a tensor before it is compared."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_runs import array_tensor

from ait_llm.core import TensorRecord
from ait_llm.match.value_views import Dequantise, FirstUse, Hidden, Shift
from ait_llm.match.views import (
    Part,
    Plus,
    Reorder,
    Repeat,
    Reshape,
    Rows,
    View,
    apply,
    describe,
    shape_after,
    summands,
)

RECORD = TensorRecord("model.layers.1", "", "DecoderLayer", "output_1", "out", 1, "")
ARRAY = np.arange(24).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (Part(1, 1, 3), ARRAY[:, 1:3]),
        (Rows(2, (3, 0)), ARRAY[..., [3, 0]]),
        (Reshape((6, 4)), ARRAY.reshape(6, 4)),
        (Reorder((2, 0, 1)), ARRAY.transpose(2, 0, 1)),
        (Repeat(0, 3), np.concatenate([ARRAY] * 3)),
        (Shift(0, 2, 100), ARRAY + np.array([0, 100]).reshape(2, 1, 1)),
        (FirstUse(), ARRAY),
        (Hidden(3.0), np.where(ARRAY == 3, -np.inf, ARRAY)),
        (Dequantise((0.5,), (1.0,)), (ARRAY - 1) * 0.5),
        (Dequantise((1, 2, 3, 4)), ARRAY * [1, 2, 3, 4]),
        (Dequantise((1, 2, 3), (1, 0, 0), -2), (ARRAY - [[1], [0], [0]]) * [[1], [2], [3]]),
    ],
)
def test_a_view_and_the_shape_it_gives(view: View, expected: np.ndarray) -> None:
    array = ARRAY.astype(np.float64) if isinstance(view, Hidden) else ARRAY
    result = apply(array, [view])
    np.testing.assert_array_equal(result, expected)
    assert shape_after(ARRAY.shape, [view]) == result.shape


@pytest.mark.parametrize(
    "view",
    [
        Part(1, 1, 4),
        Part(3, 0, 1),
        Rows(0, (2,)),
        Reshape((5, 5)),
        Reorder((0, 1)),
        Shift(1, 2, 1),
        Dequantise((1, 2), axis=-1),
    ],
)
def test_a_view_that_does_not_fit_is_refused_with_and_without_an_array(view: View) -> None:
    with pytest.raises(ValueError, match=r".+"):
        apply(ARRAY, [view])
    with pytest.raises(ValueError, match="does not fit shape"):
        shape_after(ARRAY.shape, [view])


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.permutations(range(10)))
def test_the_order_of_first_use_survives_any_renaming_of_places(
    addresses: list[int], places: list[int]
) -> None:
    moved = np.array([places[address] for address in addresses])
    np.testing.assert_array_equal(FirstUse().apply(moved), FirstUse().apply(np.array(addresses)))


def test_a_slot_used_twice_shows_in_the_order_of_first_use() -> None:
    assert FirstUse().apply(np.array([7, 7, 3])).tolist() == [0, 0, 1]


def test_dequantised_values_are_float32_of_their_own() -> None:
    stored = np.array([[-128, 127]], np.int8)
    result = Dequantise((0.25,), (-3.0,)).apply(stored)
    assert result.dtype == np.float32
    assert result.tolist() == [[-31.25, 32.5]]
    assert stored.tolist() == [[-128, 127]]


def test_views_in_words() -> None:
    views = [Repeat(0, 4), Shift(0, 4, 7), FirstUse(), Dequantise((0.5,)), Dequantise((1, 2))]
    assert describe(views) == (
        "4 times along axis 0, addresses moved by 7 per repetition, by first use, "
        "dequantised with scale 0.5, dequantised by channel"
    )


def test_the_value_that_hides_becomes_minus_infinity_in_any_type() -> None:
    mask = np.array([0, -65504, -65472], np.float16)
    assert Hidden(-65504.0).apply(mask).tolist() == [0, -np.inf, -65472]
    masked = Hidden(1.0).apply(np.array([0, 1, 0.5], ml_dtypes.bfloat16))
    assert masked.astype(np.float64).tolist() == [0, -np.inf, 0.5]


def _plus(values: np.ndarray, *views: View) -> Plus:
    return Plus(RECORD, array_tensor("out", 1, values), views)


def test_a_sum_of_two_streams_of_other_layouts() -> None:
    packed = np.arange(6, dtype=np.float16).reshape(6, 1)
    views = [Reshape((2, 3, 1)), _plus(packed, Reshape((2, 3, 1))), Part(0, 1, 2)]
    assert apply(np.full(6, 10, np.float16), views).tolist() == [[[13], [14], [15]]]
    assert shape_after((6,), views) == (1, 3, 1)
    assert describe(views[1:2]) == "plus model.layers.1 output_1 (as [2, 3, 1])"
    assert [tensor.name for tensor in summands(views)] == ["outtensor1"]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.int32])
def test_a_sum_is_not_rounded_to_the_type_of_16_bit_summands(dtype: type) -> None:
    total = _plus(np.array([1], dtype)).apply(np.array([4096], dtype))
    assert total.dtype == np.float32
    assert total.tolist() == [4097]
    assert _plus(np.array([1], dtype)).apply(np.array([0.5])).dtype == np.float64


def test_a_sum_of_other_dims_is_refused_with_and_without_an_array() -> None:
    plus = _plus(np.zeros((4, 3, 2)))
    with pytest.raises(ValueError, match="cannot be added"):
        apply(ARRAY, [plus])
    with pytest.raises(ValueError, match="does not fit shape"):
        shape_after(ARRAY.shape, [plus])


def test_sums_are_equal_by_the_names_of_their_summands() -> None:
    one, other = _plus(np.zeros(1)), _plus(np.ones(1))
    assert one == other
    assert hash(one) == hash(other)
    assert one != _plus(np.zeros(1), Reshape((1,)))
