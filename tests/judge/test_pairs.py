"""What passes, what fails, and what the verdict says about it."""

import math

import ml_dtypes
import numpy as np
import pytest

from ait_llm.core import DType, Verdict
from ait_llm.errors import UsageError
from ait_llm.formats.loaded import dtype_of
from ait_llm.judge import Tolerance, judge_pair, parse_tolerance, tolerance_for
from ait_llm.metrics import measure_pair

BF16 = ml_dtypes.bfloat16


def judged(golden, mine, tolerance=None):
    types = dtype_of(golden), dtype_of(mine)
    limits = tolerance_for(*types, tolerance)
    measured = measure_pair(golden, mine, max_element=limits.max_element)
    return judge_pair(measured, *types, tolerance)


@pytest.fixture
def activations():
    """Hidden states of a model: normal with a few channels that are much larger."""
    generator = np.random.default_rng(8)
    values = generator.standard_normal((64, 512))
    values[:, ::97] *= 20
    return values.astype(np.float32)


def walked(values, dtype, roundings, seed=0):
    """Values after that many independent roundings to a type."""
    generator = np.random.default_rng(seed)
    unit = float(ml_dtypes.finfo(dtype).eps) / 2
    walk = values.astype(np.float64)
    for _ in range(roundings):
        walk = walk * (1 + unit * generator.uniform(-0.73, 0.73, values.shape))
    return walk.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float16, BF16])
@pytest.mark.parametrize("twin", ["same", "float32"])
def test_a_faithful_model_of_16_layers_passes(activations, dtype, twin):
    mine = walked(activations, dtype, 11 * 16, seed=1)
    golden = activations if twin == "float32" else walked(activations, dtype, 11 * 16, seed=2)
    assert judged(golden, mine).verdict is Verdict.PASS


def test_a_scale_of_one_per_cent_fails_in_fp16(activations):
    golden = activations.astype(np.float16)
    result = judged(golden, (activations * 1.01).astype(np.float16))
    assert result.verdict is Verdict.FAIL
    assert result.reason == "relative Euclidean distance 0.0101 exceeds 0.004"


def test_an_epsilon_a_thousand_times_too_large_fails_in_fp16(activations):
    mean_square = np.mean(activations**2, axis=-1, keepdims=True)
    golden, mine = (
        (activations / np.sqrt(mean_square) / np.sqrt(1 + epsilon)).astype(np.float16)
        for epsilon in (1e-5, 1e-2)
    )
    assert judged(golden, mine).verdict is Verdict.FAIL


def test_a_scale_of_one_per_cent_cannot_be_told_from_rounding_in_bf16(activations):
    assert judged(activations.astype(BF16), (activations * 1.01).astype(BF16)).verdict is (
        Verdict.PASS
    )
    assert judged(activations.astype(BF16), (activations * 1.05).astype(BF16)).verdict is (
        Verdict.FAIL
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
def test_one_element_of_the_wrong_sign_fails(activations, dtype):
    golden = activations.astype(dtype)
    mine = golden.copy()
    place = int(np.argmin(np.abs(np.abs(activations.ravel()) - 1)))
    mine.ravel()[place] *= dtype(-1)
    result = judged(golden, mine)
    assert result.verdict is Verdict.FAIL
    assert "an element is" in result.reason


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
def test_a_dropped_tail_fails(activations, dtype):
    golden = activations.astype(dtype)
    mine = golden.copy()
    mine[-1, -16:] = 0
    assert judged(golden, mine).verdict is Verdict.FAIL


def test_needed_limits_would_just_have_passed(activations):
    golden, mine = activations.astype(np.float16), (activations * 1.02).astype(np.float16)
    needed = judged(golden, mine).needed
    just = Tolerance(needed["relative_euclidean_distance"], needed["max_element_error"])
    assert judged(golden, mine, just).verdict is Verdict.PASS
    for tighter in (
        Tolerance(just.relative_euclidean * 0.999, just.max_element),
        Tolerance(just.relative_euclidean, just.max_element * 0.999),
    ):
        assert judged(golden, mine, tighter).verdict is Verdict.FAIL


def test_nan_on_one_side_fails_whatever_the_tolerance(activations):
    mine = activations.copy()
    mine[3, 4] = np.nan
    result = judged(activations, mine, Tolerance(1e9, 1e9))
    assert result.verdict is Verdict.FAIL
    assert result.reason == (
        f"NaN or Inf at one place where the other side differs, at flat index {3 * 512 + 4}"
    )
    assert math.isinf(result.needed["relative_euclidean_distance"])


def test_nan_on_both_sides_passes(activations):
    activations[0] = np.nan
    assert judged(activations, activations.copy()).verdict is Verdict.PASS


def test_integers_must_be_equal():
    golden = np.arange(100)
    mine = golden.copy()
    mine[7] += 1
    result = judged(golden, mine)
    assert (result.verdict, result.reason) == (Verdict.FAIL, "1 of 100 elements differ")
    assert result.tolerance == {"max_absolute_error": 0}
    assert result.needed == {"max_absolute_error": 1}
    assert judged(golden, golden.astype(np.int32)).verdict is Verdict.PASS


def test_integers_beyond_the_digits_of_float64_must_be_equal():
    golden = np.array([2**62])
    assert judged(golden, golden + 1).verdict is Verdict.FAIL


def test_integers_get_a_tolerance_when_told():
    golden = np.arange(1, 101)
    assert judged(golden, golden + 1, parse_tolerance("int64=0.1")).verdict is Verdict.PASS


def test_golden_of_zeros_against_something_fails_with_no_limit_that_would_pass():
    result = judged(np.zeros(4, np.float16), np.full(4, 1e-3, np.float16))
    assert result.reason == "golden is zero everywhere and mine is not"
    assert math.isinf(result.needed["relative_euclidean_distance"])


def test_a_difference_that_the_coarser_type_cannot_hold_passes():
    golden = np.full(4, 2e-8, np.float32)
    assert judged(golden, golden.astype(np.float16)).verdict is Verdict.PASS


def test_empty_tensors_of_equal_shapes_pass():
    assert judged(np.zeros(0), np.zeros(0)).verdict is Verdict.PASS


def test_quantised_against_float_has_a_limit_of_its_own(activations):
    plain = np.random.default_rng(0).standard_normal(4096).astype(np.float16)
    quantised = np.round(plain.astype(np.float32) * 20).astype(np.int8)
    assert judged(quantised, (plain * 20).astype(np.float16)).verdict is Verdict.PASS
    assert tolerance_for(DType.INT8, DType.FLOAT16).relative_euclidean == 0.1


def test_a_stricter_limit_than_measured_for_is_a_mistake_of_the_caller(activations):
    mine = activations + np.float32(1e-5)
    measured = measure_pair(activations, mine, max_element=1.0)
    with pytest.raises(ValueError, match="the tolerance that it is judged by"):
        judge_pair(measured, DType.FLOAT32, DType.FLOAT32, Tolerance(1e-9))


def test_tolerance_for_all_types_and_for_one():
    tolerance = parse_tolerance("1e-3, bf16=2e-2")
    assert tolerance_for(DType.FLOAT16, DType.FLOAT32, tolerance).relative_euclidean == 1e-3
    limits = tolerance_for(DType.BFLOAT16, DType.FLOAT16, tolerance)
    assert (limits.relative_euclidean, limits.max_element) == (2e-2, 0.2)
    default = tolerance_for(DType.FLOAT16, DType.FLOAT16, parse_tolerance("bf16=2e-2"))
    assert default.relative_euclidean == 4e-3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fast", "'fast' is not a number"),
        ("fp16=", "is not a number"),
        ("fp17=1e-3", "unknown type 'fp17'"),
        ("-1", "must be a number from 0"),
        ("nan", "must be a number from 0"),
    ],
)
def test_a_wrong_tolerance_is_one_clear_error(text, message):
    with pytest.raises(UsageError, match=message):
        parse_tolerance(text)


def test_limits_follow_from_the_model_of_roundings():
    walk = math.sqrt(2 * 11 * 16)
    sums = math.sqrt(4096) * 2.0**-24
    for dtype, unit in (
        (DType.FLOAT32, 2.0**-24),
        (DType.FLOAT16, 2.0**-11),
        (
            DType.BFLOAT16,
            2.0**-8,
        ),
    ):
        model = walk * (0.42 * unit + sums)
        limit = tolerance_for(dtype, dtype).relative_euclidean
        assert model < limit < 1.2 * model
