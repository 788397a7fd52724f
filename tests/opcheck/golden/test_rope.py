"""Rope against rotations of single numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import Result, golden_ops

Run = Callable[..., Result]
AssertClose = Callable[..., None]
OP = "RopeOperation"


def _tables(tokens: int, dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    angles = torch.rand(tokens, dim) * 6
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _partner(index: int, dim: int, coefficient: int) -> tuple[int, float]:
    """Which entry of the head is mixed in, and with which sign."""
    half = dim // coefficient
    return (index + half, -1.0) if index // half % 2 == 0 else (index - half, 1.0)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, coefficient: int) -> Tensor:
    dim = cos.shape[-1]
    heads = x.double().reshape(x.shape[0], -1, dim)
    y = torch.empty_like(heads)
    for t in range(heads.shape[0]):
        row = t if cos.shape[0] > 1 else 0
        for h in range(heads.shape[1]):
            for i in range(dim):
                j, sign = _partner(i, dim, coefficient)
                other = sign * float(heads[t, h, j]) * float(sin[row, i])
                y[t, h, i] = float(heads[t, h, i]) * float(cos[row, i]) + other
    return y.reshape(x.shape)


LENGTHS = torch.tensor([3], dtype=torch.int32)


@pytest.mark.parametrize("coefficient", [2, 4, 16, 8])
@pytest.mark.parametrize(
    ("dtype", "table"),
    [
        (torch.float16, torch.float16),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.bfloat16),
    ],
)
def test_query_and_key_rotate_with_their_own_heads(
    run: Run,
    assert_close: AssertClose,
    coefficient: int,
    dtype: torch.dtype,
    table: torch.dtype,
) -> None:
    """Disagreement 26: with grouped queries the key has fewer heads."""
    query, key = torch.randn(3, 4 * 16).to(dtype), torch.randn(3, 2 * 16).to(dtype)
    cos, sin = _tables(3, 16, table)
    y_query, y_key = run(OP, [query, key, cos, sin, LENGTHS], {"rotaryCoeff": coefficient}).outputs
    assert y_query.dtype == dtype
    assert_close(y_query, _rotated(query, cos, sin, coefficient), floor=0.05)
    assert_close(y_key, _rotated(key, cos, sin, coefficient), floor=0.05)


def test_four_dimensional_heads_rotate_as_packed_ones(run: Run) -> None:
    query, key = torch.randn(2, 3, 4, 16).half(), torch.randn(2, 3, 1, 16).half()
    cos, sin = _tables(6, 16, torch.float16)
    params = {"rotaryCoeff": 2, "cosFormat": 1}
    wide = run(OP, [query, key, cos, sin, LENGTHS], params).outputs
    flat = run(OP, [query.reshape(6, 64), key.reshape(6, 16), cos, sin, LENGTHS], params).outputs
    assert torch.equal(wide[0].reshape(6, 64), flat[0])
    assert torch.equal(wide[1].reshape(6, 16), flat[1])


def test_one_table_row_serves_every_token(run: Run, assert_close: AssertClose) -> None:
    query = torch.randn(3, 32).half()
    cos, sin = _tables(1, 16, torch.float16)
    y, _ = run(OP, [query, query, cos, sin, LENGTHS], {"rotaryCoeff": 2}).outputs
    assert_close(y, _rotated(query, cos, sin, 2), floor=0.05)


def test_tables_need_a_row_per_token(run: Run) -> None:
    query = torch.randn(3, 32).half()
    cos, sin = _tables(2, 16, torch.float16)
    with pytest.raises(OperationError, match="2 rows for 3 tokens"):
        run(OP, [query, query, cos, sin, LENGTHS], {"rotaryCoeff": 2})


@given(st.floats(-10, 10), st.sampled_from([2, 16]))
def test_rotation_keeps_lengths_and_undoes(run: Run, angle: float, coefficient: int) -> None:
    query = torch.linspace(-2, 2, 64).reshape(2, 32).half()
    cos = torch.full((2, 16), math.cos(angle))
    sin = torch.full((2, 16), math.sin(angle))
    params = {"rotaryCoeff": coefficient}
    y, _ = run(OP, [query, query, cos, sin, LENGTHS], params).outputs
    torch.testing.assert_close(
        y.double().reshape(2, 2, 16).norm(dim=-1),
        query.double().reshape(2, 2, 16).norm(dim=-1),
        rtol=1e-3,
        atol=1e-3,
    )
    back, _ = run(OP, [y, y, cos, -sin, LENGTHS], params).outputs
    torch.testing.assert_close(back, query, rtol=2e-3, atol=3e-3)


@pytest.mark.parametrize(
    ("query", "key", "table", "coefficient", "text"),
    [
        ((3, 64), (3, 32), (3, 8), 2, "16 to 4096"),
        ((3, 64), (4, 32), (3, 16), 2, "tokens"),
        ((3, 64), (3, 48), (3, 16), 2, "multiple"),
        ((3, 64), (3, 32), (3, 16), 6, "rotaryCoeff is 6"),
        ((3, 4, 16), (3, 32), (3, 16), 2, "2 or 4 dimensions"),
    ],
)
def test_rope_says_what_it_refuses(
    query: tuple[int, ...],
    key: tuple[int, ...],
    table: tuple[int, ...],
    coefficient: int,
    text: str,
) -> None:
    half = DType.FLOAT16
    descs = [TensorDesc(half, shape) for shape in (query, key, table, table)]
    with pytest.raises(OperationError, match=text):
        golden_ops.get(OP).infer_shape(
            [*descs, TensorDesc(DType.INT32, (1,))], {"rotaryCoeff": coefficient}
        )
