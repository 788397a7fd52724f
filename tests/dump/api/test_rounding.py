"""Mean and norm are rounded to the type of the tensor as NumPy and ml_dtypes round."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.dump.api.numbers import _ROUNDING


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        (torch.float32, np.float32),
        (torch.float16, np.float16),
        (torch.bfloat16, ml_dtypes.bfloat16),
    ],
)
@given(value=st.floats(allow_nan=False))
def test_numbers_are_rounded_to_the_nearest_or_kept_where_the_type_has_none(
    dtype: torch.dtype, kind: type, value: float
) -> None:
    with np.errstate(over="ignore"):
        nearest = float(kind(value))
    expected = value if math.isinf(nearest) or not nearest else nearest
    assert _ROUNDING[dtype](value) == expected
