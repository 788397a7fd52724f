"""Histograms of relative errors: right bins, a bounded sample, and never without the worst."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.compare import compare_data
from ait_llm.compare.histogram import SAMPLE, bin_counts
from ait_llm.core.comparison import HISTOGRAM_BINS, HISTOGRAM_EDGES

NUMBERS = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf, -math.inf])


def expected_bin(g: float, m: float) -> int:
    """The definition in words, one element at a time."""
    if not (math.isfinite(g) and math.isfinite(m)):
        return HISTOGRAM_BINS - 1
    if g == m:
        return 0
    error = abs(m - g) / abs(g) if g else math.inf
    return 1 + sum(error >= edge for edge in HISTOGRAM_EDGES)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=20))
def test_every_element_is_in_the_bin_of_its_relative_error(
    pairs: list[tuple[float, float]],
) -> None:
    golden, mine = (np.array([pair[side] for pair in pairs], np.float32) for side in (0, 1))
    counts = bin_counts(golden, mine)
    expected = [0] * HISTOGRAM_BINS
    for pair in pairs:
        expected[expected_bin(*pair)] += 1
    assert counts.tolist() == expected


def test_a_failing_pair_has_all_elements_of_a_small_tensor_in_its_histogram() -> None:
    golden = np.arange(1, 1001, dtype=np.float32).reshape(10, 100)
    mine = golden.copy()
    mine[3, :50] *= 1.5
    mine[4, 0] = np.nan
    found = compare_data(golden, mine).histogram
    assert found is not None
    assert (found[0], found[11], found[15], sum(found)) == (949, 50, 1, 1000)


def test_a_pair_that_passes_has_none() -> None:
    assert compare_data(np.ones(4, np.float32), np.ones(4, np.float32)).histogram is None


@pytest.mark.parametrize("transposed", [False, True])
def test_of_a_large_tensor_a_sample_is_counted_that_has_the_worst_element(
    transposed: bool,
) -> None:
    golden = np.full((1500, 1500), 2.0, np.float16)
    mine = golden.copy()
    mine[777, 333] = 200.0
    mine[778, 333] = np.inf
    if transposed:
        golden, mine = golden.T, mine.T
    found = compare_data(golden, mine).histogram
    assert found is not None
    assert SAMPLE // 2 <= sum(found) <= 2 * SAMPLE
    assert found[13] == 1  # 99 times too large
    assert found[15] == 1
    assert found[0] == sum(found) - 2


def test_complex_numbers_have_no_place_on_the_scale() -> None:
    golden = np.ones(4, np.complex64)
    found = compare_data(golden, golden * 3)
    assert found.verdict.value == "FAIL"
    assert found.histogram is None
