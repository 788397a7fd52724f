"""Totals in the precision of the values, in every implementation, against float64."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from metric_implementations import choose

from ait_llm.metrics.ratios import measure_ratios

TYPES = [np.float16, ml_dtypes.bfloat16, np.float32, ml_dtypes.float8_e4m3fn, np.float64, np.int32]
IMPLEMENTATIONS = ["numpy", "portable", "avx2", "avx512"]
TOTALS = ("dot", "golden_squares", "my_squares", "squares", "max_absolute")


def expected(golden: np.ndarray, mine: np.ndarray) -> dict[str, float]:
    """The totals by definition, for finite arrays."""
    g, m = golden.astype(np.float64), mine.astype(np.float64)
    short = all(each.dtype.itemsize < 4 or each.dtype == np.float32 for each in (golden, mine))
    common: Any = np.float32 if short else np.float64
    b, n = golden.astype(common), mine.astype(common)
    epsilon = np.where(b == 0, np.finfo(common).eps, 0).astype(common)
    with np.errstate(over="ignore"):
        relative = np.abs(((n + epsilon) - (b + epsilon)) / (b + epsilon))
    return {
        "dot": math.fsum(g * m),
        "golden_squares": math.fsum(g * g),
        "my_squares": math.fsum(m * m),
        "squares": math.fsum((m - g) ** 2),
        "max_absolute": float(np.abs(m - g).max(initial=0)),
        "max_relative": float(relative.max(initial=0)),
        "thousandth": int((relative < 0.001).sum()),
        "five_thousandths": int((relative < 0.005).sum()),
    }


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 63, 1024, 70_001])
def test_totals_are_those_of_float64(
    name: str, dtype: Any, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(name, monkeypatch)
    random = np.random.default_rng(size)
    golden = (random.normal(size=size) * 8).astype(dtype)
    mine = (golden.astype(np.float64) * (1 + random.normal(size=size) * 0.004)).astype(dtype)
    golden[:: max(1, size // 7)] = 0
    found = measure_ratios(golden, mine)
    assert (found.count, found.misplaced) == (size, 0)
    for total, value in expected(golden, mine).items():
        tolerance = 1e-12 if total in TOTALS else 1e-6
        assert getattr(found, total) == pytest.approx(value, rel=tolerance, abs=1e-30), total


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_what_is_not_finite_agrees_with_itself_only(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(name, monkeypatch)
    golden = np.array([np.nan, np.inf, -np.inf, np.inf, np.nan, 1, 2], np.float32)
    mine = np.array([np.nan, np.inf, -np.inf, -np.inf, 3, np.nan, 2], np.float32)
    found = measure_ratios(golden, mine)
    assert found.misplaced == 3
    assert (found.dot, found.squares, found.thousandth) == (4.0, 0.0, 7)


@settings(max_examples=40, deadline=None)
@given(
    arrays.arrays(
        np.float32,
        st.tuples(st.just(2), st.integers(1, 200)),
        elements=st.floats(-1e6, 1e6, width=32, allow_subnormal=False),
    )
)
def test_any_floats_are_measured_as_defined(pair: np.ndarray) -> None:
    found = measure_ratios(pair[0], pair[1])
    for total, value in expected(pair[0], pair[1]).items():
        assert getattr(found, total) == pytest.approx(value, rel=1e-6, abs=1e-25), total


def test_strided_and_complex_arrays_are_measured_whole() -> None:
    golden = np.arange(12, dtype=np.complex64).reshape(3, 4).T + 1
    found = measure_ratios(golden, golden + 1j)
    assert found.squares == pytest.approx(12.0)
    assert found.max_absolute == pytest.approx(1.0)


def test_pieces_are_released_in_order() -> None:
    golden = np.ones(3_000_000, np.float16)
    seen: list[int] = []
    measure_ratios(golden, golden, release=lambda g, m: seen.append(g.size))
    assert sum(seen) == golden.size
    assert len(seen) > 1
