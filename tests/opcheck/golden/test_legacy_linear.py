"""Linear operators of older libraries, and LinearSparse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import GOLDEN, UnverifiableError, golden_ops
from ait_llm.opcheck.golden.layout import nd_to_nz


def quantised_case() -> tuple[list[Tensor], Tensor]:
    """int8 x ``[3, 48]``, weight ``[5, 48]``, bias, scale bits; and the exact result."""
    x = torch.randint(-128, 128, (3, 48), dtype=torch.int8)
    weight = torch.randint(-128, 128, (5, 48), dtype=torch.int8)
    bias = torch.randint(-99, 99, (5,), dtype=torch.int32)
    scale = torch.rand(5) / 1e5
    exact = (x.double() @ weight.double().T + bias.double()) * scale.double()
    return [x, weight, bias, scale.view(torch.int32).to(torch.int64)], exact


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.int8])
def test_matmul(run: Any, assert_close: Any, transposed: bool, dtype: torch.dtype) -> None:
    x, weight = (torch.randint(-9, 9, (3, 8)).to(dtype), torch.randint(-9, 9, (8, 5)).to(dtype))
    given = weight.T.contiguous() if transposed else weight
    found = run("MatmulOperation", [x, given], {"transposeB": transposed}).outputs[0]
    assert found.dtype == torch.float16
    assert_close(found, x.double() @ weight.double())


def test_linear_quant(run: Any, assert_close: Any) -> None:
    inputs, exact = quantised_case()
    assert_close(run("LinearQuantOperation", inputs, {}).outputs[0], exact, ulps=1)


def fast_gelu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-1.702 * x))


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_linear_activation_rounds_after_each_step(run: Any, inverted: bool, bias: bool) -> None:
    x, weight, added = torch.randn(3, 8).half(), torch.randn(5, 8).half(), torch.randn(5).half()
    given = weight.T.contiguous() if inverted else weight  # false means [N, K] here
    inputs = [x, given, added] if bias else [x, given]
    params = {"transposeB": inverted, "hasBias": bias}
    found = run("LinearActivationOperation", inputs, params).outputs[0]
    y = (x.double() @ weight.double().T).half()
    if bias:
        y = (y.double() + added.double()).half()
    assert torch.equal(found, fast_gelu(y.double()).half())


@pytest.mark.parametrize("kind", [1, 4])
def test_linear_activation_quant(run: Any, kind: int) -> None:
    inputs, exact = quantised_case()
    params = {"activationFuncType": kind}
    found = run("LinearActivationQuantOperation", inputs, params).outputs[0].double()
    y = exact.half().double()
    expected = y.clamp(min=0) if kind == 1 else y / (1 + torch.exp(-y))
    torch.testing.assert_close(found, expected, rtol=2**-9, atol=1e-6)


@pytest.mark.parametrize("blocked", [False, True])
def test_linear_sparse_with_the_original_weight(run: Any, blocked: bool) -> None:
    inputs, exact = quantised_case()
    x, weight = inputs[0], inputs[1]
    if blocked:
        x, weight = torch.nn.functional.pad(x, (0, 16)), torch.nn.functional.pad(weight, (0, 16))
        rows = torch.zeros(16, 64, dtype=torch.int8)
        rows[:5] = weight
        bias = torch.nn.functional.pad(inputs[2], (0, 11))
        scale = torch.nn.functional.pad(inputs[3], (0, 11))
        given = [x, nd_to_nz(rows).unsqueeze(0), bias, scale]
    else:
        given = inputs
    index = torch.zeros(4, dtype=torch.int8)
    found = run("LinearSparseOperation", [*given, index], {}).outputs[0]
    torch.testing.assert_close(found[:, :5].double(), exact, rtol=2**-10, atol=1e-6)


def test_compressed_weight_is_unverifiable() -> None:
    inputs, _ = quantised_case()
    inputs[1] = inputs[1].reshape(-1)[:100]
    with pytest.raises(UnverifiableError, match="compressed to 100 of 240 entries"):
        golden_ops.get("LinearSparseOperation").compute([*inputs, torch.zeros(4)], {}, GOLDEN)


def test_legacy_errors_name_an_operator() -> None:
    with pytest.raises(OperationError, match="takes 2"):
        golden_ops.get("MatmulOperation").infer_shape([], {})
