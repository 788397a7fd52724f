"""What one tensor holds, against a count in float64."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.core import DType
from ait_llm.errcheck.reading import flags, read
from ait_llm.errors import FormatError
from ait_llm.formats import Statistics

TYPES = {
    DType.FLOAT16: np.float16,
    DType.BFLOAT16: ml_dtypes.bfloat16,
    DType.FLOAT32: np.float32,
    DType.FLOAT64: np.float64,
}
SPECIAL = st.sampled_from([0.0, 1.0, -3.5, np.nan, np.inf, -np.inf, "end", "-end"])


@dataclass
class Given:
    """A tensor of the protocol, with values or statistics."""

    values: Any = None
    dtype: DType = DType.FLOAT16
    statistics: Statistics | None = None
    shape: tuple[int, ...] = (2, 3)
    ir_name: str | None = None

    def __post_init__(self) -> None:
        if self.values is not None:
            self.shape = self.values.shape

    @property
    def has_data(self) -> bool:
        return self.values is not None

    def numpy(self, *, mmap: bool | None = None) -> Any:
        return self.values


def end_of(dtype: DType) -> float:
    return float(ml_dtypes.finfo(TYPES[dtype]).max)


@given(st.sampled_from(list(TYPES)), st.lists(SPECIAL, min_size=1, max_size=40))
def test_counts_and_the_first_place_are_those_of_a_loop(dtype: DType, given_: list[Any]) -> None:
    end = end_of(dtype)
    plain = [{"end": end, "-end": -end}.get(v, v) if isinstance(v, str) else v for v in given_]
    values = np.array(plain, TYPES[dtype])
    found = read(Given(values, dtype))  # type: ignore[arg-type]
    nan = [v != v for v in plain]
    inf = [abs(v) == np.inf for v in plain]
    ends = [abs(v) == end for v in plain]
    odd = [any(each) for each in zip(nan, inf, ends, strict=True)]
    assert (found.nan, found.inf, found.saturated) == (sum(nan), sum(inf), sum(ends))
    assert found.first == ((odd.index(True),) if any(odd) else None)
    assert flags(Given(values, dtype)).tolist() == odd  # type: ignore[arg-type]
    lowest = any(odd) and all(v < 0 for v, is_odd in zip(plain, odd, strict=True) if is_odd)
    assert found.lowest_only == lowest


@pytest.mark.parametrize("hidden", [-np.inf, -65504.0])
def test_a_tensor_of_zeros_and_lowest_values_is_a_mask(hidden: float) -> None:
    mask = np.triu(np.full((4, 4), hidden, np.float16), 1)
    assert read(Given(np.nan_to_num(mask, nan=0.0, neginf=hidden))).mask  # type: ignore[arg-type]
    mask[2, 0] = 0.5
    assert not read(Given(mask)).mask  # type: ignore[arg-type]
    assert not read(Given(np.full(3, hidden, np.float16))).mask  # type: ignore[arg-type]


def test_int8_at_its_ends_is_counted_and_is_no_error() -> None:
    found = read(Given(np.array([127, -128, 3], np.int8), DType.INT8))  # type: ignore[arg-type]
    assert (found.state, found.narrow, found.bad) == ("exempt", 2, 0)


def test_complex_numbers_are_looked_at_in_both_parts() -> None:
    values = np.array([1 + 2j, complex(0, np.nan), 3], np.complex64)
    tensor = Given(values, DType.COMPLEX64)
    found = read(tensor)  # type: ignore[arg-type]
    assert (found.nan, found.first) == (1, (1,))
    assert flags(tensor).tolist() == [False, True, False]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("statistics", "expected"),
    [
        (Statistics(-1, 2, 0, 3, nan=0, inf=0), (0, 0, 0)),
        (Statistics(-1, 2, 0, 3, nan=4, inf=1), (4, 1, 0)),
        (Statistics(-1, 65504, 0, 3, nan=0, inf=0), (0, 0, 1)),
        # msprobe lets NaN and infinities into the extremes and counts neither
        (Statistics(np.nan, np.nan, np.nan, np.nan), (1, 0, 0)),
        (Statistics(-1, np.inf, np.inf, np.inf), (0, 1, 0)),
        (Statistics(None, None, None, None, nan=6, inf=0), (6, 0, 0)),
    ],
)
def test_statistics_alone_tell_that_something_is_odd(
    statistics: Statistics, expected: tuple[int, int, int]
) -> None:
    found = read(Given(statistics=statistics))  # type: ignore[arg-type]
    assert found.state == "statistics"
    assert (found.nan, found.inf, found.saturated) == expected
    assert found.first is None


def test_a_mask_is_known_by_its_statistics() -> None:
    found = read(Given(statistics=Statistics(-65504, 0, -9, 9, 0, 0)))  # type: ignore[arg-type]
    assert found.mask
    assert not read(Given(statistics=Statistics(-65504, 7, -9, 9, 0, 0))).mask  # type: ignore[arg-type]


def test_what_cannot_be_read_is_a_reason() -> None:
    class Damaged(Given):
        def numpy(self, *, mmap: bool | None = None) -> Any:
            raise FormatError(Path("x.bin"), "is cut off")

    found = read(Damaged(np.ones(3, np.float16)))  # type: ignore[arg-type]
    assert (found.state, found.reason) == ("unread", "x.bin: is cut off")
    assert read(Given()).state == "unread"  # type: ignore[arg-type]
