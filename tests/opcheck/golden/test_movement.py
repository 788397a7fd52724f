"""Gather, Transpose, Split, Concat and Slice move bits and change none."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import Result, golden_ops

Run = Callable[..., Result]


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)


def _special(*shape: int) -> Tensor:
    """float16 with NaN payloads, infinities and signed zeros among the values."""
    return torch.randint(0, 2**16, shape, dtype=torch.int32).to(torch.int16).view(torch.float16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.uint32])
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_gather_takes_rows_of_any_dtype(
    run: Run, dtype: torch.dtype, index_dtype: torch.dtype
) -> None:
    x = torch.arange(24).reshape(6, 4).to(dtype)
    index = torch.tensor([[5, 0, 3], [3, 3, 1]], dtype=index_dtype)
    (y,) = run("GatherOperation", [x, index], {"axis": 0, "batchDims": 0}).outputs
    assert y.dtype == dtype
    assert y.to(torch.int64).tolist() == [
        [[4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3] for i in row] for row in index.tolist()
    ]


def test_gather_pairs_the_batch_dimensions(run: Run) -> None:
    """Disagreement 19: a selection per batch entry."""
    x, index = torch.randn(2, 3, 5, 4).half(), torch.randint(0, 5, (2, 6), dtype=torch.int32)
    (y,) = run("GatherOperation", [x, index], {"axis": 2, "batchDims": 1}).outputs
    assert y.shape == (2, 3, 6, 4)
    for b, i, j, k in itertools.product(range(2), range(3), range(6), range(4)):
        assert y[b, i, j, k] == x[b, i, index[b, j], k]


def test_gather_with_one_batch_entry_equals_a_plain_one(run: Run) -> None:
    x, index = torch.randn(1, 5, 2).half(), torch.randint(0, 5, (1, 3), dtype=torch.int64)
    (paired,) = run("GatherOperation", [x, index], {"axis": 1, "batchDims": 1}).outputs
    (plain,) = run("GatherOperation", [x[0], index[0]], {"axis": 0}).outputs
    assert torch.equal(paired[0], plain)


def test_gather_gives_zeros_for_indices_out_of_range(run: Run) -> None:
    x = torch.ones(3, 2).half()
    index = torch.tensor([2, 3, -1, 0], dtype=torch.int64)
    (y,) = run("GatherOperation", [x, index]).outputs
    assert y[:, 0].tolist() == [1, 0, 0, 1]


@given(st.permutations(range(4)))
def test_transpose_matches_numpy_and_undoes(run: Run, perm: list[int]) -> None:
    x = _special(2, 3, 2, 5)
    (y,) = run("TransposeOperation", [x], {"perm": perm}).outputs
    expected = np.transpose(x.view(torch.int16).numpy(), perm)
    assert np.array_equal(y.view(torch.int16).numpy(), expected)
    inverse = [perm.index(axis) for axis in range(4)]
    (back,) = run("TransposeOperation", [y], {"perm": inverse}).outputs
    assert torch.equal(_bits(back), _bits(x))


@given(st.lists(st.integers(1, 4), min_size=2, max_size=3), st.sampled_from([0, 1, -1]))
def test_concat_of_split_pieces_is_the_tensor(run: Run, sizes: list[int], axis: int) -> None:
    shape = [2, 3]
    shape[axis] = sum(sizes)
    x = _special(*shape)
    params = {"splitDim": axis, "splitNum": len(sizes), "splitSizes": sizes}
    pieces = run("SplitOperation", [x], params).outputs
    assert [piece.shape[axis] for piece in pieces] == sizes
    joined = pieces[0]
    for piece in pieces[1:]:
        (joined,) = run("ConcatOperation", [joined, piece], {"concatDim": axis}).outputs
    assert torch.equal(_bits(joined), _bits(x))


def test_split_without_sizes_is_equal_parts(run: Run) -> None:
    x = torch.arange(12).reshape(2, 6)
    pieces = run("SplitOperation", [x.half()], {"splitDim": 1, "splitNum": 3}).outputs
    assert [piece.tolist() for piece in pieces] == [
        [[0, 1], [6, 7]],
        [[2, 3], [8, 9]],
        [[4, 5], [10, 11]],
    ]


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (torch.bool, [True, False, True, True]),
        (torch.uint32, [1, 2**31, 2**32 - 1, 0]),
        (torch.int8, [1, -128, 127, 0]),
    ],
)
def test_slice_keeps_bits_of_every_dtype(run: Run, dtype: torch.dtype, values: list[int]) -> None:
    x = torch.tensor([values, values], dtype=dtype)
    params = {"offsets": [1, -3], "size": [1, -1]}
    (y,) = run("SliceOperation", [x], params).outputs
    assert y.tolist() == [values[1:]]


@pytest.mark.parametrize(
    ("op", "shapes", "params", "text"),
    [
        ("SliceOperation", [(4, 4)], {"offsets": [0, 3], "size": [1, 2]}, "outside dimension 1"),
        ("SliceOperation", [(4, 4)], {"offsets": [0], "size": [1]}, "one entry for each"),
        ("SplitOperation", [(4, 5)], {"splitDim": 1, "splitNum": 2}, "does not divide"),
        ("SplitOperation", [(4, 4)], {"splitDim": 1, "splitNum": 4}, "splitNum is 4"),
        ("SplitOperation", [(4, 4)], {"splitDim": 1, "splitSizes": [1, 2]}, "add up to 4"),
        ("ConcatOperation", [(2, 3), (3, 3)], {"concatDim": 1}, "outside dimension 1"),
        ("ConcatOperation", [(2, 3), (2, 3)], {"concatDim": 2}, "concatDim is 2"),
        ("TransposeOperation", [(2, 3)], {"perm": [0, 0]}, "each of"),
        ("TransposeOperation", [(2, 3)], {}, "perm"),
        ("GatherOperation", [(2, 3), (2,)], {"axis": 2}, "axis 2"),
        ("GatherOperation", [(2, 3), (3, 1)], {"axis": 1, "batchDims": 1}, "are paired"),
        ("SoftmaxOperation", [(2, 3)], {"axes": []}, "axes"),
        ("SoftmaxOperation", [(2, 3, 4)], {"axes": [0, 2]}, "neighbouring"),
    ],
)
def test_shape_inference_says_what_it_refuses(
    op: str, shapes: list[tuple[int, ...]], params: dict[str, object], text: str
) -> None:
    dtypes = [DType.FLOAT16] * len(shapes)
    if op == "GatherOperation":
        dtypes[1] = DType.INT32
    descs = [TensorDesc(dtype, shape) for dtype, shape in zip(dtypes, shapes, strict=True)]
    with pytest.raises(OperationError, match=text):
        golden_ops.get(op).infer_shape(descs, params)


def test_wrong_dtype_is_refused_with_those_taken() -> None:
    descs = [TensorDesc(DType.FLOAT64, (2, 2))] * 2
    with pytest.raises(OperationError, match="float16, float16; bf16, bf16"):
        golden_ops.get("ConcatOperation").infer_shape(descs, {})
