"""Closeups of failing pairs: right cells, right elements, right neighbours, and bounded."""

from __future__ import annotations

import base64
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from ait_llm import compare
from ait_llm.compare import closeups
from ait_llm.compare.alignment import Aligned
from ait_llm.compare.closeups import CELLS, WORST, error_codes, look_closely
from ait_llm.compare.values import Values
from ait_llm.core import DType
from ait_llm.core.closeup import ERROR_DECADES, WINDOW, Closeup
from ait_llm.formats.elements import Array

NUMBERS = st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, math.nan, math.inf, -math.inf])


def looked_at(golden: Array, mine: Array) -> Closeup:
    sides = (Aligned(Values(side, DType.FLOAT32)) for side in (golden, mine))
    return look_closely(7, *sides, golden.shape)


def error(golden: float, mine: float) -> float:
    """The definition in words."""
    if golden == mine or (math.isnan(golden) and math.isnan(mine)):
        return 0.0
    return abs(mine - golden) if math.isfinite(golden) and math.isfinite(mine) else math.inf


@given(st.data(), array_shapes(min_dims=0, max_dims=2, max_side=50))
def test_each_cell_has_the_largest_error_of_its_part_of_the_matrix(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    golden = data.draw(arrays(np.float32, shape, elements=NUMBERS, fill=NUMBERS))
    mine = data.draw(arrays(np.float32, shape, elements=NUMBERS, fill=NUMBERS))
    found = looked_at(golden, mine)
    columns = shape[-1] if shape else 1
    rows = golden.size // columns
    down, across = min(rows, CELLS[0]), min(columns, CELLS[1])
    finite = [float(value) for value in golden.reshape(-1) if math.isfinite(value)]
    root = math.sqrt(math.fsum(value * value for value in finite) / len(finite)) if finite else 0.0
    expected = np.zeros((down, across))
    for number, (g, m) in enumerate(zip(golden.reshape(-1), mine.reshape(-1), strict=True)):
        row, column = divmod(number, columns)
        at = row * down // rows, column * across // columns
        expected[at] = max(expected[at], error(float(g), float(m)) / (root or 1.0))
    assert (found.index, found.shape, found.cells) == (7, shape, (down, across))
    codes = np.frombuffer(base64.b64decode(found.errors), np.uint8).reshape(down, across)
    assert np.abs(codes.astype(int) - error_codes(expected)).max() <= 1  # one step of 1/253
    assert ((codes == 0) == (expected == 0)).all()
    assert ((codes == 255) == np.isinf(expected)).all()


@given(st.data(), array_shapes(min_dims=1, max_dims=3, max_side=9))
def test_the_worst_elements_come_first_with_their_neighbours_in_the_matrix(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    golden = data.draw(arrays(np.float32, shape, elements=NUMBERS))
    mine = data.draw(arrays(np.float32, shape, elements=NUMBERS))
    found = looked_at(golden, mine)
    flat = golden.reshape(-1), mine.reshape(-1)
    errors = [error(float(g), float(m)) for g, m in zip(*flat, strict=True)]
    order = sorted(range(len(errors)), key=lambda number: (-errors[number], number))
    assert found.worst == tuple(number for number in order[:WORST] if errors[number] > 0)
    rows, columns = golden.size // shape[-1], shape[-1]
    for side, windows in zip(flat, (found.golden_windows, found.my_windows), strict=True):
        expected = []
        for number in found.worst:
            for down in range(-(WINDOW[0] // 2), WINDOW[0] // 2 + 1):
                for across in range(-(WINDOW[1] // 2), WINDOW[1] // 2 + 1):
                    row, column = number // columns + down, number % columns + across
                    inside = 0 <= row < rows and 0 <= column < columns
                    expected.append(float(side[row * columns + column]) if inside else math.nan)
        assert np.array_equal(windows, expected, equal_nan=True)


def test_codes_span_the_decades_and_keep_none_and_not_finite_apart() -> None:
    first, last = ERROR_DECADES
    errors = np.array([0.0, 10.0**first / 1e6, 10.0**first, 1e-5, 10.0**last, 1e300, math.inf])
    assert error_codes(errors).tolist() == [0, 1, 1, 1 + round(253 * 4 / 12), 254, 254, 255]


def test_values_are_counted_between_the_lowest_and_the_highest_of_both_sides() -> None:
    golden = np.zeros((4, 8), np.float32)
    mine = golden.copy()
    mine[0] = [32, 31.5, 16, math.nan, math.inf, 0, 0, 0]
    found = looked_at(golden, mine)
    assert (found.low, found.high) == (0.0, 32.0)
    assert found.golden_counts == (32, *[0] * 31)
    assert found.my_counts == (27, *[0] * 15, 1, *[0] * 14, 2)


def test_a_large_transposed_pair_is_looked_at_block_by_block() -> None:
    golden = np.arange(1 << 20, dtype=np.float32).reshape(1 << 10, 1 << 10)
    mine = golden.copy()
    mine[1000, 17] += 5e5
    found = looked_at(golden.T, mine.T)
    assert found.worst == (17 * 1024 + 1000,)
    assert found.my_windows[7] - found.golden_windows[7] == 5e5
    assert found.golden_windows[6] == golden[999, 17]


def pair_of_files(folder: Path, golden: Array, mine: Array) -> tuple[Path, Path]:
    paths = folder / "golden.npy", folder / "mine.npy"
    for path, array in zip(paths, (golden, mine), strict=True):
        np.save(path, array)
    return paths


def test_a_failing_comparison_has_a_closeup_and_one_that_passes_has_none(tmp_path: Path) -> None:
    golden = np.ones((4, 6), np.float32)
    wrong = golden.copy()
    wrong[2, 3] = 5
    (found,) = compare(*pair_of_files(tmp_path, golden, wrong)).closeups
    assert (found.index, found.worst) == (0, (2 * 6 + 3,))
    assert compare(*pair_of_files(tmp_path, golden, golden)).closeups == ()


def test_complex_numbers_have_none(tmp_path: Path) -> None:
    golden = np.ones(4, np.complex64)
    report = compare(*pair_of_files(tmp_path, golden, golden * 2))
    assert report.verdict.value == "FAIL"
    assert report.closeups == ()


def test_what_is_larger_than_the_room_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closeups, "MAX_ELEMENTS", 3)
    report = compare(*pair_of_files(tmp_path, np.ones(4, np.float32), np.zeros(4, np.float32)))
    assert report.verdict.value == "FAIL"
    assert report.closeups == ()
