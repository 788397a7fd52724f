"""Kinds that arrays alone tell, on residuals made here, independent of any operator."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ait_llm.core import DType
from ait_llm.diagnosis import Diagnosis, Kind, Residual, diagnose_arrays

Array = NDArray[np.float64]
STORAGE: dict[DType, Any] = {DType.FLOAT16: np.float16, DType.BFLOAT16: ml_dtypes.bfloat16}
DTYPES = st.sampled_from(list(STORAGE))
SEEDS = st.integers(0, 2**16)
few = settings(deadline=None, max_examples=15)


def exact_values(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def stored(values: Array, dtype: DType) -> Array:
    rounded: Array = values.astype(STORAGE[dtype]).astype(np.float64)
    return rounded


def diagnosed(exact: Array, mine: Array, dtype: DType) -> Diagnosis:
    return diagnose_arrays(Residual(stored(mine, dtype), exact, dtype))


@few
@given(seed=SEEDS, dtype=DTYPES, width=st.sampled_from([16, 64, 256]))
def test_a_correctly_rounded_result_is_rounding_only(seed: int, dtype: DType, width: int) -> None:
    exact = exact_values(seed, 12, width)
    assert diagnosed(exact, exact, dtype).kind is Kind.ROUNDING


@few
@given(seed=SEEDS, dtype=DTYPES, factor=st.floats(0.25, 4))
def test_a_constant_factor_is_named_with_its_value(seed: int, dtype: DType, factor: float) -> None:
    assume(abs(factor - 1) > 0.02)
    exact = exact_values(seed, 16, 64)
    found = diagnosed(exact, factor * stored(exact, dtype), dtype)
    assert found.kind is Kind.SCALE
    assert found.parameters["factor"] == pytest.approx(factor, rel=2e-3)
    assert found.explained > 0.9


@few
@example(seed=410, dtype=DType.FLOAT16, offset=0.1, sign=1)  # near -0.1 the sum is exact
@given(seed=SEEDS, dtype=DTYPES, offset=st.floats(0.1, 2), sign=st.sampled_from([1, -1]))
def test_a_constant_offset_is_named_with_its_value(
    seed: int, dtype: DType, offset: float, sign: int
) -> None:
    exact = exact_values(seed, 16, 64)
    found = diagnosed(exact, stored(exact, dtype) + sign * offset, dtype)
    assert found.kind is Kind.OFFSET
    assert found.parameters["offset"] == pytest.approx(sign * offset, rel=0.02)


@few
@given(seed=SEEDS, dtype=DTYPES, rows=st.permutations(range(12)))
def test_permuted_rows_are_named(seed: int, dtype: DType, rows: list[int]) -> None:
    assume(rows != sorted(rows))
    exact = exact_values(seed, 12, 32)
    found = diagnosed(exact, exact[list(rows)], dtype)
    # All rows moved by the same number of places, with the ends exchanged, are a permutation too.
    assert found.kind is Kind.SWAPPED_ROWS


@few
@given(seed=SEEDS, dtype=DTYPES, one=st.integers(0, 7), other=st.integers(0, 7))
def test_swapped_heads_are_named(seed: int, dtype: DType, one: int, other: int) -> None:
    assume(one != other)
    exact = exact_values(seed, 20, 8, 16)
    mine = exact.copy()
    mine[:, [one, other]] = exact[:, [other, one]]
    found = diagnosed(exact.reshape(20, 128), mine.reshape(20, 128), dtype)
    assert found.kind is Kind.SWAPPED_HEADS
    assert {found.parameters["first"], found.parameters["from"]} == {one, other}


@few
@given(seed=SEEDS, dtype=DTYPES)
def test_a_transposed_result_is_named(seed: int, dtype: DType) -> None:
    exact = exact_values(seed, 24, 40)
    assert diagnosed(exact, exact.T.reshape(24, 40), dtype).kind is Kind.TRANSPOSED


@few
@given(seed=SEEDS, dtype=DTYPES, step=st.sampled_from([1, -1]))
def test_rows_moved_by_one_position_are_named(seed: int, dtype: DType, step: int) -> None:
    exact = exact_values(seed, 12, 32)
    mine = exact.copy()
    if step == 1:
        mine[1:] = exact[:-1]
    else:
        mine[:-1] = exact[1:]
    assert diagnosed(exact, mine, dtype).kind is Kind.SHIFTED


@few
@given(seed=SEEDS, dtype=DTYPES, step=st.sampled_from([1, -1, 2]))
def test_elements_moved_within_rows_are_named(seed: int, dtype: DType, step: int) -> None:
    exact = exact_values(seed, 12, 64)
    found = diagnosed(exact, np.roll(exact, step, -1), dtype)
    assert found.kind is Kind.SHIFTED
    assert found.parameters["step"] == step


@few
@given(seed=SEEDS, dtype=DTYPES, row=st.integers(0, 11), start=st.integers(0, 40))
def test_a_region_of_zeros_is_named_with_its_place(
    seed: int, dtype: DType, row: int, start: int
) -> None:
    exact = exact_values(seed, 12, 64)
    mine = exact.copy()
    mine[row, start : start + 20] = 0
    found = diagnosed(exact, mine, dtype)
    assert found.kind is Kind.STALE
    assert f"{row} of axis 0" in found.evidence
    assert "zeros" in found.evidence


@few
@given(seed=SEEDS, dtype=DTYPES)
def test_a_row_that_holds_a_copy_of_another_is_stale(seed: int, dtype: DType) -> None:
    exact = exact_values(seed, 12, 32)
    mine = exact.copy()
    mine[-1] = exact[-3]
    assert diagnosed(exact, mine, dtype).kind is Kind.STALE


@few
@given(seed=SEEDS, dtype=DTYPES, limit=st.floats(0.5, 1.5))
def test_values_cut_at_a_limit_are_saturated(seed: int, dtype: DType, limit: float) -> None:
    exact = exact_values(seed, 16, 64)
    bound = float(stored(np.array(limit), dtype))
    found = diagnosed(exact, np.clip(exact, -bound, bound), dtype)
    assert found.kind is Kind.SATURATED
    assert found.parameters["limit"] == bound


@few
@given(seed=SEEDS, dtype=DTYPES, place=st.integers(0, 16 * 64 - 1))
def test_one_wrong_sign_is_named_with_its_place(seed: int, dtype: DType, place: int) -> None:
    exact = exact_values(seed, 16, 64)
    assume(abs(exact.flat[place]) > 0.1)
    mine = exact.copy()
    mine.flat[place] *= -1
    found = diagnosed(exact, mine, dtype)
    assert found.kind is Kind.ELEMENTS
    row, column = divmod(place, 64)
    assert f"[{row}, {column}] has the wrong sign" in found.evidence


@few
@given(seed=SEEDS)
def test_float16_through_bfloat16_is_rounded_twice(seed: int) -> None:
    exact = exact_values(seed, 16, 64)
    found = diagnosed(exact, stored(exact, DType.BFLOAT16), DType.FLOAT16)
    assert found.kind is Kind.DOUBLE_ROUNDING
    assert found.parameters["through"] == "bfloat16"


@few
@given(seed=SEEDS, dtype=DTYPES)
def test_values_cut_off_toward_zero_are_named(seed: int, dtype: DType) -> None:
    exact = exact_values(seed, 16, 64)
    digits = {DType.FLOAT16: 10, DType.BFLOAT16: 7}[dtype]
    _, exponent = np.frexp(exact)
    gap = np.ldexp(1.0, exponent - 1 - digits)
    found = diagnosed(exact, np.trunc(exact / gap) * gap, dtype)
    assert found.kind is Kind.DOUBLE_ROUNDING
    assert found.parameters["through"] == "toward zero"


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS, dtype=DTYPES, size=st.floats(0.01, 3))
def test_noise_is_unknown(seed: int, dtype: DType, size: float) -> None:
    exact = exact_values(seed, 16, 64)
    mine = exact + size * exact_values(seed + 1, 16, 64)
    assert diagnosed(exact, mine, dtype).kind is Kind.UNKNOWN


@settings(deadline=None, max_examples=40)
@given(
    seed=SEEDS,
    dtype=DTYPES,
    how=st.sampled_from(["tanh", "row factors", "column factors", "noisy scale", "noisy rows"]),
)
def test_errors_of_no_known_kind_are_unknown(seed: int, dtype: DType, how: str) -> None:
    exact, other = exact_values(seed, 16, 64), exact_values(seed + 1, 16, 64)
    mine = {
        "tanh": np.tanh(exact),
        "row factors": exact * (1 + 0.3 * other[:, :1]),
        "column factors": exact * (1 + 0.3 * other[:1]),
        "noisy scale": 1.1 * exact + 0.1 * other,
        "noisy rows": exact[::-1] + 0.5 * other,
    }[how]
    assert diagnosed(exact, mine, dtype).kind is Kind.UNKNOWN


def test_two_kinds_that_explain_equally_well_are_unknown() -> None:
    exact = np.full((8, 16), 2.0)  # twice as much or two more
    found = diagnosed(exact, 2 * exact, DType.FLOAT16)
    assert found.kind is Kind.UNKNOWN
    assert "constant scale and constant offset" in found.evidence


def test_what_is_unknown_is_told_with_its_place() -> None:
    exact = exact_values(0, 16, 64)
    mine = exact.copy()
    mine[3:5] += exact_values(1, 2, 64)
    found = diagnosed(exact, mine, DType.FLOAT16)
    assert found.kind is Kind.UNKNOWN
    assert "all in 3 to 4 of axis 0" in found.evidence
