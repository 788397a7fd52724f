"""Values recorded from the tools that defined these metrics, and what every edge gives."""

import numpy as np
import pytest

from ait_llm.metrics import METRIC_NAMES, measure_pair, metrics


def values(golden, mine, dtype=np.float32):
    return measure_pair(np.array(golden, dtype), np.array(mine, dtype)).values


def missing(golden, mine, dtype=np.float32):
    return measure_pair(np.array(golden, dtype), np.array(mine, dtype)).missing


def test_recorded_example(implementation):
    got = values([1, 2, 3, 4], [1, 2, 3, 4.2])
    assert got["cosine_similarity"] == pytest.approx(0.9997049718, abs=1e-9)
    assert got["max_relative_error"] == pytest.approx(0.05, rel=1e-5)
    assert got["mean_relative_error"] == pytest.approx(0.0125, rel=1e-5)
    assert got["max_absolute_error"] == pytest.approx(0.2, rel=1e-5)
    assert got["mean_absolute_error"] == pytest.approx(0.05, rel=1e-5)
    assert got["kl_divergence"] == pytest.approx(0.00449251, rel=1e-4)
    assert got["relative_euclidean_distance"] == pytest.approx(0.0365148, rel=1e-5)


def test_equal_zeros_are_equal(implementation):
    got = values([0, 0], [0, 0])
    assert got["cosine_similarity"] == 1
    assert {got[name] for name in METRIC_NAMES if "error" in name} == {0}
    assert got["kl_divergence"] == 0
    assert got["relative_euclidean_distance"] == 0
    assert got["pass_rate"] == 1


def test_errors_where_golden_is_zero_are_not_hidden(implementation):
    got = values([0, 0], [1, 2])
    assert got["max_absolute_error"] == 2
    assert got["max_relative_error"] == 2 * 2.0**23
    assert got["kl_divergence"] == pytest.approx(0.120, abs=1e-3)
    reasons = missing([0, 0], [1, 2])
    assert reasons["cosine_similarity"] == "all the values in golden are zeros"
    assert reasons["relative_euclidean_distance"] == "all the values in golden are zeros"


def test_mine_of_zeros(implementation):
    got = values([1, 2], [0, 0])
    assert (got["max_relative_error"], got["max_absolute_error"]) == (1, 2)
    assert got["kl_divergence"] == pytest.approx(0.111, abs=1e-3)
    assert got["relative_euclidean_distance"] == 1
    assert missing([1, 2], [0, 0]) == {"cosine_similarity": "all the values in mine are zeros"}


def test_error_beside_a_tiny_golden_value_is_not_hidden(implementation):
    got = values([1e-8, 1], [5, 1])
    assert got["cosine_similarity"] == pytest.approx(0.196, abs=1e-3)
    assert got["max_absolute_error"] == pytest.approx(5)
    assert got["kl_divergence"] == pytest.approx(2.36, abs=1e-2)
    assert got["relative_euclidean_distance"] == pytest.approx(5)


def test_divergence_does_not_see_a_shift(implementation):
    got = values([10, 11, 12], [0, 1, 2])
    assert got["kl_divergence"] == pytest.approx(0, abs=1e-12)
    assert got["cosine_similarity"] == pytest.approx(0.819, abs=1e-3)
    assert got["relative_euclidean_distance"] == pytest.approx(0.907, abs=1e-3)


def test_scalars_have_all_metrics(implementation):
    got = measure_pair(np.array(1.0, np.float32), np.array(2.0, np.float32)).values
    assert got["cosine_similarity"] == 1
    assert got["max_relative_error"] == got["max_absolute_error"] == 1
    assert got["kl_divergence"] == 0
    assert got["max_ulp_error"] == 2**23


def test_empty_tensors_have_no_value_and_say_why(implementation):
    measured = measure_pair(np.zeros((0, 4), np.float16), np.zeros((0, 4), np.float16))
    assert not measured.values
    assert set(measured.missing.values()) == {"the tensors are empty"}
    assert measured.golden.max is None
    assert measured.worst is None


def test_tensors_without_a_finite_place_have_no_value(implementation):
    measured = measure_pair(np.full(3, np.nan), np.full(3, np.nan))
    assert set(measured.missing.values()) == {"no place is finite on both sides"}
    assert measured.bad == 0
    assert measured.golden.nan == 3


def test_one_nan_leaves_the_other_numbers(implementation):
    golden, mine = np.arange(9, dtype=np.float16), np.arange(9, dtype=np.float16)
    mine[4] = np.nan
    measured = measure_pair(golden, mine)
    assert measured.values["max_absolute_error"] == 0
    assert (measured.bad, measured.first_bad) == (1, 4)
    assert measured.values["pass_rate"] == pytest.approx(8 / 9)
    assert measured.mine.nan == 1


def test_infinities_of_one_sign_are_equal_and_of_two_are_not(implementation):
    measured = measure_pair(np.array([np.inf, -np.inf]), np.array([np.inf, np.inf]))
    assert (measured.bad, measured.first_bad) == (1, 1)


def test_bools_count_as_zero_and_one(implementation):
    got = values([True, False, True, True], [True, True, True, True], np.bool_)
    assert got["mean_absolute_error"] == 0.25
    assert "max_ulp_error" not in got


def test_large_integers_differ_by_one(implementation):
    golden = np.array([2**62, 2**62], np.int64)
    measured = measure_pair(golden, golden + np.array([0, 1]))
    assert measured.unequal == 1
    assert measured.values["max_absolute_error"] == 1


def test_extreme_integers_have_their_distance(implementation):
    golden = np.array([np.iinfo(np.int64).min], np.int64)
    mine = np.array([np.iinfo(np.int64).max], np.int64)
    assert measure_pair(golden, mine).values["max_absolute_error"] == float(2**64 - 1)


def test_complex_numbers_are_compared_part_by_part(implementation):
    golden = np.array([1 + 2j, 3 + 4j], np.complex64)
    measured = measure_pair(golden, golden + np.array([0, 0.5j], np.complex64))
    assert measured.values["max_absolute_error"] == 0.5
    assert measured.worst == 1
    assert measured.worst_values == (4, 4.5)


def test_doubles_whose_squares_overflow(implementation):
    golden = np.array([1e300, -2e300, 1e299])
    measured = measure_pair(golden, golden * 1.001)
    assert measured.values["relative_euclidean_distance"] == pytest.approx(1e-3)
    assert measured.values["cosine_similarity"] == pytest.approx(1)
    assert measured.golden.norm == pytest.approx(np.sqrt(5.01) * 1e300)


def test_doubles_whose_squares_vanish(implementation):
    golden = np.array([1e-300, -2e-300])
    measured = measure_pair(golden, golden * 1.001)
    assert measured.values["relative_euclidean_distance"] == pytest.approx(1e-3)


def test_pass_rate_uses_the_limits_of_the_coarser_type(implementation):
    golden = np.full(10, 1.0, np.float32)
    mine = np.linspace(1, 1.0018, 10).astype(np.float32)
    assert measure_pair(golden, mine).values["pass_rate"] == pytest.approx(0.1)
    halves = measure_pair(golden.astype(np.float16), mine)
    assert halves.values["pass_rate"] == pytest.approx(0.6)  # rtol 1e-3, steps of 2e-4


def test_registry_has_the_documented_names():
    assert sorted(METRIC_NAMES) == metrics.names()
