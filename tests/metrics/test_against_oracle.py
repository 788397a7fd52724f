"""Every implementation against float64 formulas, over types, sizes and special values."""

import metric_oracle as oracle
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from metric_implementations import choose

from ait_llm.metrics import measure_pair

TYPES = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float64": np.float64,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "uint64": np.uint64,
    "bool": np.bool_,
    "int4": ml_dtypes.int4,
    "float4_e2m1fn": ml_dtypes.float4_e2m1fn,
}
# A sum of 64 float32 terms per lane rounds by 64 * 2**-24 at worst.
RELATIVE = 4e-6
KL_RELATIVE = 2e-4  # of weights with a relative error of 7.5e-5
KL_ABSOLUTE = 1e-6  # of the largest value: logarithms of sums cancel against it


def cast(values, dtype):
    if np.dtype(dtype).kind == "u":
        values = np.abs(values)
    with np.errstate(all="ignore"):
        return values.astype(np.float32).astype(dtype)


def check(golden, mine):
    measured = measure_pair(golden, mine)
    with np.errstate(all="ignore"):
        expected = oracle.metrics(golden, mine)
    for name, value in expected.items():
        got = measured.values[name]
        if name == "kl_divergence":
            largest = max(measured.golden.max, -measured.golden.min, measured.mine.max, 1)
            assert got == pytest.approx(value, rel=KL_RELATIVE, abs=KL_ABSOLUTE * largest), name
        elif name == "cosine_similarity":
            assert got == pytest.approx(value, abs=1e-6), name
        else:
            assert got == pytest.approx(value, rel=RELATIVE, abs=1e-300), name
    for name in set(expected) ^ set(measured.values):
        assert name in measured.missing or "ulp" in name or name == "pass_rate"
    bad = oracle.bad_places(golden, mine)
    assert measured.bad == bad.size
    assert measured.first_bad == (int(bad[0]) if bad.size else None)
    for side, array in ((measured.golden, golden), (measured.mine, mine)):
        check_side(side, array.astype(np.float64).ravel())
    g, m, finite = oracle.finite_places(golden, mine)
    if finite.any():
        with np.errstate(all="ignore"):
            error = np.where(finite, np.abs(m - g), -1)
        assert error[measured.worst] >= error.max() * (1 - 2.0**-22)
        assert measured.worst_values == (g[measured.worst], m[measured.worst])
        assert measured.finite == np.count_nonzero(finite)
    else:
        assert measured.worst is None


def check_side(side, values):
    assert side.nan == np.count_nonzero(np.isnan(values))
    assert side.inf == np.count_nonzero(np.isinf(values))
    values = values[np.isfinite(values)]
    if not values.size:
        assert (side.max, side.min, side.mean, side.norm) == (None, None, None, None)
        return
    assert (side.max, side.min) == (values.max(), values.min())
    scale = np.abs(values).mean()
    assert side.mean == pytest.approx(values.mean(), rel=RELATIVE, abs=RELATIVE * scale)
    assert side.norm == pytest.approx(np.linalg.norm(values), rel=RELATIVE)


@pytest.mark.parametrize("mine_type", ["same", "float32", "float16"])
@pytest.mark.parametrize("golden_type", TYPES)
def test_pairs_of_types_agree_with_the_oracle(implementation, golden_type, mine_type):
    generator = np.random.default_rng(7)
    base = generator.standard_normal(2300) * 3
    mine_type = TYPES[golden_type if mine_type == "same" else mine_type]
    for noise in (1e-3, 2.0):
        golden = cast(base, TYPES[golden_type])
        check(golden, cast(base + noise * generator.standard_normal(base.size), mine_type))


@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1e-4, 100, 3e4, 1e20])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_values_of_any_size_with_infinities_and_nan(implementation, dtype, scale):
    generator = np.random.default_rng(3)
    base = generator.standard_normal(4200) * scale
    golden = cast(base, TYPES[dtype])
    mine = cast(base * (1 + 1e-3 * generator.standard_normal(base.size)), TYPES[dtype])
    golden[7] = mine[7] = np.inf
    golden[9] = np.nan
    mine[3000] = np.nan
    golden[3500:3600] = -np.inf
    mine[3500:3601] = -np.inf
    check(golden, mine)
    check(golden, mine[::-1].copy())


SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-8, 6e-8, 65504.0, 3e38, -3e38]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    data=st.data(),
    dtype=st.sampled_from(["float32", "float16", "bfloat16", "float64", "float8_e5m2"]),
    size=st.integers(0, 200),
    repeats=st.sampled_from([1, 11]),
)
def test_special_values_anywhere(data, dtype, size, repeats, monkeypatch):
    values = st.one_of(st.sampled_from(SPECIAL), st.floats(-100, 100, width=32))
    sides = [
        np.tile(data.draw(st.lists(values, min_size=size, max_size=size)), repeats)
        for _ in range(2)
    ]
    golden, mine = (cast(side, TYPES[dtype]) for side in sides)
    for name in ("numpy", ""):
        choose(name, monkeypatch)
        check(golden, mine)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("mine_type", ["same", np.float32])
def test_ulp_distance_counts_numbers_of_the_coarser_type(implementation, dtype, mine_type):
    generator = np.random.default_rng(11)
    base = generator.standard_normal(3000) * np.exp(generator.standard_normal(3000) * 4)
    golden = np.clip(base, -6e4, 6e4).astype(dtype)
    mine = (np.clip(base, -6e4, 6e4) * (1 + 0.004 * generator.standard_normal(3000))).astype(
        np.float32
    )
    mine[::100] *= -1
    mine[5], golden[5] = 0.0, -0.0
    mine = mine.astype(dtype if mine_type == "same" else mine_type)
    measured = measure_pair(golden, mine)
    distances = oracle.ulp_distances(golden, mine, dtype)
    assert measured.values["max_ulp_error"] == distances.max()
    assert measured.values["ulp_error_rate"] == np.mean(distances > 1)
    assert measure_pair(golden, mine, ulp_limit=3).values["ulp_error_rate"] == np.mean(
        distances > 3
    )


def test_all_halves_are_read_right(implementation):
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    every[np.isnan(every)] = np.nan  # NumPy warns of those that signal
    check(every, every.astype(np.float32))
    check(every, np.roll(every, 1))


def test_divergence_of_numbers_much_larger_than_one(implementation):
    golden = np.array([3e20, 1e20], np.float32)
    mine = golden - np.float32(2**61)
    assert measure_pair(golden, mine).values["kl_divergence"] == pytest.approx(0, abs=1e-12)


def test_small_divergence_keeps_its_digits(implementation):
    generator = np.random.default_rng(5)
    golden = generator.standard_normal(5000).astype(np.float32)
    mine = golden + (1e-4 * generator.standard_normal(5000)).astype(np.float32)
    g, m = golden.astype(np.float64), mine.astype(np.float64)
    expected = oracle.kl_divergence(g, m)
    assert expected < 1e-8
    assert measure_pair(golden, mine).values["kl_divergence"] == pytest.approx(expected, rel=2e-4)


def test_large_constant_tensors_add_up_without_drift(implementation):
    golden = np.full(1 << 16, 0.1, np.float32)
    measured = measure_pair(golden, golden * np.float32(1.001))
    assert measured.golden.mean == pytest.approx(float(np.float32(0.1)), rel=RELATIVE)
    check(golden, golden * np.float32(1.001))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_sides_of_one_sign_have_their_extremes(implementation, dtype):
    sizes = np.abs(np.random.default_rng(8).standard_normal(4096)) + 0.01
    for golden_sign, my_sign in ((1, 1), (-1, -1), (1, -1)):
        check(cast(golden_sign * sizes, TYPES[dtype]), cast(my_sign * sizes[::-1], TYPES[dtype]))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_zeros_of_both_signs_are_equal(implementation, dtype):
    golden = cast(np.zeros(4096), TYPES[dtype])
    measured = measure_pair(golden, cast(np.full(4096, -0.0), TYPES[dtype]))
    assert measured.unequal == 0
    assert measured.values["max_ulp_error"] == 0
    assert np.copysign(1, measured.mine.max) == np.copysign(1, measured.mine.min) == 1


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("noise", [0.01, 2.0])
def test_equal_stretches_count_as_the_rest_does(implementation, dtype, noise):
    generator = np.random.default_rng(9)
    base = generator.standard_normal(12_000)
    other = base.copy()
    other[5000:7000] += noise * generator.standard_normal(2000)
    check(cast(base, TYPES[dtype]), cast(other, TYPES[dtype]))


@pytest.mark.parametrize("offset", [-3e5, -12_000, 12_000, 3e5])
def test_divergence_of_numbers_far_from_zero(implementation, offset):
    generator = np.random.default_rng(10)
    golden = (generator.standard_normal(8192) + offset).astype(np.float32)
    mine = (golden + 0.03 * np.sign(generator.standard_normal(8192))).astype(np.float32)
    golden[:2048] = mine[:2048]
    expected = oracle.kl_divergence(golden.astype(np.float64), mine.astype(np.float64))
    assert measure_pair(golden, mine).values["kl_divergence"] == pytest.approx(expected, rel=3e-4)


@pytest.mark.parametrize("peaks", [(200, 200), (200, 0), (0, 200)])
def test_blocks_without_weight_beside_a_peak(implementation, peaks):
    generator = np.random.default_rng(12)
    golden = generator.standard_normal(12_000)
    mine = golden + 1e-3 * generator.standard_normal(golden.size)
    golden[77] += peaks[0]
    mine[77] += peaks[1]
    check(golden.astype(np.float32), mine.astype(np.float32))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"])
def test_ulp_distance_of_small_types_is_that_of_numpy(dtype, monkeypatch):
    generator = np.random.default_rng(13)
    largest = float(ml_dtypes.finfo(TYPES[dtype]).max)
    spread = np.exp(generator.uniform(np.log(largest) - 25, np.log(largest), 6000))
    mine = (spread * generator.choice([-1, 1], spread.size)).astype(np.float32)
    golden = (mine * generator.uniform(-0.2, 1, mine.size)).astype(TYPES[dtype])
    mine[:2000] = (golden[:2000].astype(np.float32) + golden[1:2001].astype(np.float32)) / 2
    choose("numpy", monkeypatch)
    expected = measure_pair(golden, mine).values
    choose("", monkeypatch)
    got = measure_pair(golden, mine).values
    assert got["max_ulp_error"] == expected["max_ulp_error"] > 3
    assert got["ulp_error_rate"] == expected["ulp_error_rate"]
