"""Statistics of tensors without data."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm.formats import Statistics, measure
from ait_llm.formats import statistics as module


def test_values_of_a_small_tensor() -> None:
    found = measure(np.array([3.0, -4.0], dtype=np.float16))
    assert found == Statistics(min=-4.0, max=3.0, mean=-0.5, l2norm=5.0, nan=0, inf=0)


def test_other_than_finite_elements_are_counted_and_left_out() -> None:
    array = np.array([1, np.nan, np.inf, -np.inf, 3], dtype=ml_dtypes.bfloat16)
    assert measure(array) == Statistics(1.0, 3.0, 2.0, math.sqrt(10), nan=1, inf=2)


@pytest.mark.parametrize("array", [np.array([]), np.array([np.nan])])
def test_no_finite_element_gives_no_values(array: np.ndarray[tuple[int], np.dtype]) -> None:
    found = measure(array)
    assert (found.min, found.max, found.mean, found.l2norm) == (None, None, None, None)
    assert (found.nan, found.inf) == (array.size, 0)


def test_integers_and_booleans() -> None:
    assert measure(np.array([[-7], [5]], dtype=np.int8)).mean == -1
    assert measure(np.array([True, False])).mean == 0.5


def test_complex_elements_have_no_order() -> None:
    with pytest.raises(TypeError, match="complex64"):
        measure(np.zeros(1, dtype=np.complex64))


@settings(deadline=None)
@given(st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=30), st.integers(1, 7))
def test_blocks_do_not_change_the_result(values: list[float], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", block)
        found = measure(np.array(values))
    assert found.min == min(values)
    assert found.max == max(values)
    assert found.mean == pytest.approx(math.fsum(values) / len(values), abs=1e88)
    assert found.l2norm == pytest.approx(math.sqrt(math.fsum(v * v for v in values)))
