"""Reduce and Sort against Python's own max, min, sum and sorted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import Result, golden_ops

Run = Callable[..., Result]
AssertClose = Callable[..., None]


@pytest.mark.parametrize("axes", [[0], [2], [0, 2], [0, 1, 2], [2, 1]])
@pytest.mark.parametrize(("kind", "function"), [(1, max), (2, min), (3, math.fsum)])
def test_reduce_drops_all_axes_of_the_list(
    run: Run,
    assert_close: AssertClose,
    kind: int,
    function: Callable[[list[float]], float],
    axes: list[int],
) -> None:
    """Disagreement 25: extremes are values of x over every axis given."""
    x = torch.randn(3, 4, 5).bfloat16()
    (y,) = run("ReduceOperation", [x], {"axis": axes, "reduceType": kind}).outputs
    kept = [range(n) if d not in axes else [slice(None)] for d, n in enumerate(x.shape)]
    expected = [function(x[place].reshape(-1).tolist()) for place in itertools.product(*kept)]
    shape = [n for d, n in enumerate(x.shape) if d not in axes]
    assert_close(y, torch.tensor(expected, dtype=torch.float64).reshape(shape), floor=0.1)


def test_integer_extremes_are_exact(run: Run) -> None:
    x = torch.tensor([[2**31 - 1, 2**31 - 2], [-(2**31), 5]], dtype=torch.int32)
    params = {"axis": [1], "reduceType": 1}
    assert run("ReduceOperation", [x], params).outputs[0].tolist() == [2**31 - 1, 5]


def test_half_sums_do_not_lose_small_terms(run: Run) -> None:
    x = torch.ones(1, 4096).half()
    (y,) = run("ReduceOperation", [x], {"axis": [1], "reduceType": 3}).outputs
    assert float(y) == 4096


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12), st.data(), st.sampled_from([1, 2]))
def test_sort_gives_the_largest_in_order(
    run: Run, values: list[int], data: st.DataObject, rows: int
) -> None:
    count = data.draw(st.integers(1, len(values)))
    x = torch.tensor([values] * rows).half()
    top, index = run("SortOperation", [x], {"num": [count]}).outputs
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))[:count]
    assert index.tolist() == [order] * rows
    assert top.tolist() == [[values[i] for i in order]] * rows


@pytest.mark.parametrize(
    ("op", "params", "text"),
    [
        ("SortOperation", {"num": [9]}, "1 to 8"),
        ("SortOperation", {"num": []}, "one number"),
        ("ReduceOperation", {"axis": [-1], "reduceType": 3}, "distinct axes"),
        ("ReduceOperation", {"axis": [1, 1], "reduceType": 3}, "distinct axes"),
        ("ReduceOperation", {"axis": [1]}, "1 MAX"),
        ("ReduceOperation", {"axis": [1], "reduceType": 1}, "int32; bf16"),
    ],
)
def test_reduce_and_sort_say_what_they_refuse(
    op: str, params: dict[str, object], text: str
) -> None:
    with pytest.raises(OperationError, match=text):
        golden_ops.get(op).infer_shape([TensorDesc(DType.FLOAT16, (4, 8))], params)
