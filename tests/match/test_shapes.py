"""Shapes that go together, and those that do not."""

from __future__ import annotations

import numpy as np
import pytest
from memory_runs import array_tensor

from ait_llm.core import FORMAT_FRACTAL_NZ
from ait_llm.dumps.model import Tensor
from ait_llm.formats.layout import nd_to_nz
from ait_llm.match.shapes import Aligned, align, align_shapes, batch_ratio
from ait_llm.match.views import Part, Repeat, Reshape, apply, shape_after
from ait_llm.program.describe import logical_shape


@pytest.mark.parametrize(
    ("golden", "mine", "ratio", "expected"),
    [
        ((3, 4), (3, 4), 1, Aligned()),
        ((3, 4), (12, 4), 4, Repeat(0, 4)),
        ((1, 8, 4), (4, 8, 4), 4, Repeat(0, 4)),
        ((8, 1, 4), (8, 4, 4), 4, Repeat(1, 4)),
    ],
)
def test_a_smaller_golden_batch_is_repeated(
    golden: tuple[int, ...], mine: tuple[int, ...], ratio: int, expected: Aligned | Repeat
) -> None:
    aligned = align_shapes(golden, mine, ratio)
    assert isinstance(aligned, Aligned)
    assert aligned.golden == (() if isinstance(expected, Aligned) else (expected,))
    assert shape_after(golden, aligned.golden) == shape_after(mine, aligned.mine)
    swapped = align_shapes(mine, golden, -ratio)
    assert isinstance(swapped, Aligned)
    assert swapped.mine == aligned.golden


@pytest.mark.parametrize(
    ("golden", "mine", "ratio"),
    [
        ((3, 4), (4, 3), 1),
        ((3, 4), (12, 4), 2),
        ((3, 4), (12, 4), -4),
        ((8, 2, 4), (8, 8, 4), 4),
        ((0, 4), (3, 4), 1),
        ((3, 4), (12,), 1),
    ],
)
def test_other_shapes_are_refused_with_both_shapes(
    golden: tuple[int, ...], mine: tuple[int, ...], ratio: int
) -> None:
    refusal = align_shapes(golden, mine, ratio)
    assert refusal == f"shapes {list(golden)} and {list(mine)} differ"


def test_dims_of_one_do_not_count() -> None:
    assert align_shapes((1, 3, 4), (3, 4)) == Aligned((), (Reshape((1, 3, 4)),), "dims of 1 differ")


@pytest.mark.parametrize(
    ("pairs", "ratio"),
    [
        ([((7, 4), (28, 4))] * 3 + [((5, 2), (35, 2))], 4),
        ([((28, 4), (7, 4))], -4),
        ([((7, 4), (7, 4))] * 2 + [((1, 16), (9, 16))], 1),
        ([((7, 4), (9, 4))], 0),
        ([((7, 4), (28, 5))], 1),
        ([], 1),
    ],
)
def test_the_batch_ratio_is_that_of_most_outputs(
    pairs: list[tuple[tuple[int, ...], tuple[int, ...]]], ratio: int
) -> None:
    assert abs(batch_ratio(pairs)) == abs(ratio)
    assert batch_ratio(pairs) == ratio


def _nz(array: np.ndarray) -> Tensor:
    """A tensor whose header holds the dims of FRACTAL_NZ storage, as the device dumps it."""
    return array_tensor("in", 0, nd_to_nz(array[None], 16), format=FORMAT_FRACTAL_NZ)


def test_a_padded_private_format_is_cut_to_the_dims_of_the_other_side() -> None:
    array = np.arange(20 * 40, dtype=np.float16).reshape(20, 40)
    stored, plain = _nz(array), array_tensor("in", 0, array[None])
    assert logical_shape(stored) == stored.nd().shape == (1, 32, 48)
    aligned = align(plain, stored)
    assert isinstance(aligned, Aligned)
    assert aligned.mine == (Part(1, 0, 20), Part(2, 0, 40))
    np.testing.assert_array_equal(apply(stored.nd(), aligned.mine), plain.nd())
    other = align(stored, plain)
    assert isinstance(other, Aligned)
    assert other.golden == aligned.mine


def test_two_private_formats_of_one_shape_need_no_view() -> None:
    stored = _nz(np.ones((16, 32), np.float16))
    assert align(stored, stored) == Aligned()
