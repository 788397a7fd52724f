"""Running a golden operator the way its users do, and comparing with an independent result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from ait_llm.opcheck.golden import GOLDEN, Arithmetic, Result, golden_ops
from ait_llm.opcheck.golden.support import desc_of

Run = Callable[..., Result]
AssertClose = Callable[..., None]


def _run(
    op: str,
    inputs: Sequence[Tensor | None],
    params: Mapping[str, Any] | None = None,
    arithmetic: Arithmetic = GOLDEN,
    *,
    formats: Mapping[int, int] | None = None,
    infer: bool = True,
) -> Result:
    """Compute, and check that inputs stay as they were and shapes are those inferred."""
    golden = golden_ops.get(op)
    kept = [None if tensor is None else tensor.clone() for tensor in inputs]
    result = golden.compute(inputs, params or {}, arithmetic)
    for before, after in zip(kept, inputs, strict=True):
        if before is not None and after is not None:
            same = before.reshape(-1).contiguous().view(torch.uint8)
            assert torch.equal(same, after.reshape(-1).contiguous().view(torch.uint8))
    if infer:
        descs = [
            desc_of(tensor, (formats or {}).get(index, 2))
            for index, tensor in enumerate(inputs)
            if tensor is not None
        ]
        inferred = golden.infer_shape(descs, params or {})
        got = [(desc_of(t).dtype, desc_of(t).shape) for t in result.outputs]
        assert got == [(desc.dtype, desc.shape) for desc in inferred]
    return result


def _assert_close(
    actual: Tensor, expected: Any, *, ulps: float = 0.55, floor: float = 0.01
) -> None:
    """Within ``ulps`` units of the actual dtype's epsilon, relative; NaN and Inf must agree.

    Args:
        actual: result under test; its dtype sets the tolerance.
        expected: float64 values.
        ulps: relative tolerance in epsilons; one correct rounding is at most 0.5.
        floor: absolute tolerance in epsilons.
    """
    wanted = torch.as_tensor(expected, dtype=torch.float64)
    epsilon = torch.finfo(actual.dtype).eps
    assert actual.shape == wanted.shape
    torch.testing.assert_close(
        actual.double(),
        wanted.to(actual.dtype).double().where(wanted.isinf(), wanted),
        rtol=ulps * epsilon,
        atol=floor * epsilon,
        equal_nan=True,
    )


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    bias: Callable[[int, int, int], float] | None = None,
    sees: Callable[[int, int], bool] = lambda row, key: True,
    clamp: tuple[float, float] | None = None,
    row_factor: Callable[[int], float] = lambda row: 1.0,
) -> Tensor:
    """Attention one score at a time, in float64: ``[qs, H, Dv]``.

    Args:
        query: ``[qs, H, D]``.
        key: ``[ks, Hk, D]``.
        value: ``[ks, Hk, Dv]``.
        scale: factor of the scores.
        bias: added to the score of (head, row, key).
        sees: whether a row sees a key.
        clamp: bounds of the score before the bias.
        row_factor: further factor of a row's scores.
    """
    rows, heads, _ = query.shape
    keys, kv_heads, _ = key.shape
    result = torch.zeros(rows, heads, value.shape[2], dtype=torch.float64)
    queries, all_keys = query.double().tolist(), key.double().tolist()
    for head in range(heads):
        shared = head * kv_heads // heads
        for row in range(rows):
            scores = []
            for column in range(keys):
                pairs = zip(queries[row][head], all_keys[column][shared], strict=True)
                score = math.fsum(a * b for a, b in pairs) * row_factor(row) * scale
                if clamp is not None:
                    score = min(max(score, clamp[0]), clamp[1])
                score += bias(head, row, column) if bias is not None else 0.0
                scores.append(score if sees(row, column) else -math.inf)
            highest = max(scores)
            if highest == -math.inf:
                continue
            powers = [math.exp(score - highest) for score in scores]
            for column, power in enumerate(powers):
                weight = power / math.fsum(powers)
                result[row, head] += weight * value[column, shared].double()
    return result


@pytest.fixture(scope="session")
def attention() -> Callable[..., Tensor]:
    """The oracle of the attention operators."""
    return _attention


@pytest.fixture(scope="session")
def run() -> Run:
    """``run(op, inputs, params, arithmetic)`` gives the Result."""
    return _run


@pytest.fixture(scope="session")
def assert_close() -> AssertClose:
    """``assert_close(actual, float64_values)``."""
    return _assert_close


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(20)
