"""The number at which values are capped is told by what came of them, or nobody tells it."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from ait_llm.core import DType
from ait_llm.judge.caps import cap_of

DRAW = np.random.default_rng(3).normal(size=(1, 5, 40)) * 20


def _capped(values: np.ndarray, cap: float) -> np.ndarray:
    """By the standard library, element by element."""
    made = [cap * math.tanh(float(each) / cap) for each in values.reshape(-1)]
    return np.array(made).reshape(values.shape)


@pytest.mark.parametrize("cap", [1.0, 30.0, 50.0])
def test_the_cap_of_values_of_float32_is_told(cap: float) -> None:
    values = DRAW.astype(np.float32)
    found = cap_of(values, _capped(values, cap).astype(np.float32), DType.FLOAT32)
    assert found is not None
    assert found.number == pytest.approx(cap, rel=1e-4)
    assert found.permits(1 / cap)
    assert not found.permits(1.01 / cap)


def test_the_cap_of_values_of_bfloat16_is_told_as_well_as_they_are_rounded() -> None:
    values = (4 * DRAW).astype(ml_dtypes.bfloat16)
    capped = _capped(values.astype(np.float32), 30.0).astype(ml_dtypes.bfloat16)
    found = cap_of(values, capped, DType.BFLOAT16)
    assert found is not None
    assert found.permits(1 / 30)
    assert not found.permits(1.1 / 30)


def test_small_values_tell_no_cap() -> None:
    values = (DRAW / 1e4).astype(np.float32)
    assert cap_of(values, _capped(values, 30.0).astype(np.float32), DType.FLOAT32) is None


@pytest.mark.parametrize("kind", ["same", "half", "clipped", "one other"])
def test_what_was_not_capped_tells_none(kind: str) -> None:
    values = DRAW.astype(np.float32)
    others = {"same": values, "half": values / 2, "clipped": values.clip(-30, 30)}
    wrong = _capped(values, 30.0).astype(np.float32)
    wrong[0, 0, 0] *= 1.1
    assert cap_of(values, others.get(kind, wrong), DType.FLOAT32) is None


def test_values_that_are_no_numbers_tell_none() -> None:
    values = DRAW.astype(np.float32)
    capped = _capped(values, 30.0).astype(np.float32)
    capped[0, 0, 0] = np.nan
    assert cap_of(values, capped, DType.FLOAT32) is None
