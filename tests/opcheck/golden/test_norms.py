"""RmsNorm and LayerNorm against row-by-row float64 arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import DEVICE, GOLDEN, Arithmetic, Result, golden_ops

Run = Callable[..., Result]
AssertClose = Callable[..., None]
RMS, LAYER = "RmsNormOperation", "LayerNormOperation"
KEYS = {1: "normParam", 2: "preNormParam", 3: "postNormParam"}
EPSILON = 1e-3


def _params(layer: int, **own: Any) -> dict[str, Any]:
    return {"layerType": layer, KEYS[layer]: {"epsilon": EPSILON, **own}}


def _rms_rows(x: Tensor, gamma: Tensor) -> Tensor:
    rows = []
    for row in x.double().reshape(-1, x.shape[-1]).tolist():
        mean = sum(v * v for v in row) / len(row)
        scale = 1 / math.sqrt(mean + EPSILON)
        rows.append([v * scale * g for v, g in zip(row, gamma.double().tolist(), strict=True)])
    return torch.tensor(rows, dtype=torch.float64).reshape(x.shape)


def _layer_rows(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    rows = []
    for row in x.double().reshape(-1, gamma.numel()).tolist():
        mean = sum(row) / len(row)
        variance = sum((v - mean) ** 2 for v in row) / len(row)
        scale = 1 / math.sqrt(variance + EPSILON)
        affine = zip(row, gamma.double().reshape(-1), beta.double().reshape(-1), strict=True)
        rows.append([float(g * ((v - mean) * scale) + b) for v, g, b in affine])
    return torch.tensor(rows, dtype=torch.float64).reshape(x.shape)


def _quantised(values: Tensor, scale: float, offset: int) -> list[int]:
    """divide-quant of float64 values: to float16, clamp, round half to even."""
    shifted = [float(np.float16(v / scale + offset)) for v in values.reshape(-1).tolist()]
    return [round(min(max(v, -128.0), 127.0)) for v in shifted]


def _assert_int8_within_one(got: Tensor, expected: Sequence[int]) -> None:
    """Almost all equal; a value at a rounding boundary may differ by one."""
    difference = np.abs(got.reshape(-1).int().numpy() - np.array(expected))
    assert got.dtype == torch.int8
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.04
    assert got.unique().numel() > 20


@pytest.mark.parametrize("arithmetic", [GOLDEN, DEVICE], ids=["golden", "device"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layer", [1, 2, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_rms_norm(
    run: Run,
    assert_close: AssertClose,
    layer: int,
    bias: bool,
    dtype: torch.dtype,
    arithmetic: Arithmetic,
) -> None:
    """Disagreement 12: the output has the dtype of x, bfloat16 too."""
    x, gamma = (torch.randn(2, 3, 32) * 2).to(dtype), torch.randn(32).to(dtype)
    extra = [torch.randn(32).to(dtype)] if bias and layer > 1 else []
    residual = [torch.randn(2, 3, 32).to(dtype)] if layer > 1 else []
    total = x.double()
    for part in extra + residual:
        total = total + part.double()
    params = _params(layer, hasBias=bool(extra))
    outputs = run(RMS, [x, *extra, *residual, gamma], params, arithmetic).outputs
    assert len(outputs) == (2 if layer == 2 else 1)
    assert all(out.dtype == dtype for out in outputs)
    assert_close(outputs[0], _rms_rows(total, gamma))
    if layer == 2:
        assert_close(outputs[1], total)


def test_rms_norm_is_taken_of_the_unrounded_sum(run: Run, assert_close: AssertClose) -> None:
    x, residual = torch.full((1, 16), 1.0).half(), torch.full((1, 16), 2.0**-12).half()
    residual[:, ::2] *= -1
    gamma = torch.ones(16).half()
    y, total = run(RMS, [x, residual, gamma], _params(2, epsilon=EPSILON)).outputs
    assert total.unique().numel() == 1
    wide = run(
        RMS, [x, residual, gamma], _params(2), Arithmetic(round_output=False), infer=False
    ).outputs[0]
    assert wide.unique().numel() == 2
    assert_close(y, _rms_rows(x.double() + residual.double(), gamma))


def test_gemma_adds_one_to_gamma(run: Run, assert_close: AssertClose) -> None:
    x, gamma = torch.randn(3, 32).bfloat16(), torch.randn(32).bfloat16()
    (y,) = run(RMS, [x, gamma], _params(1, modelType=1)).outputs
    assert_close(y, _rms_rows(x, gamma.double() + 1))


def test_rstd_is_the_reciprocal_root(run: Run, assert_close: AssertClose) -> None:
    """Disagreement 13: rsqrt, not sqrt; over all dimensions of gamma."""
    x, gamma = torch.randn(3, 4, 16), torch.randn(4, 16)
    y, rstd = run(RMS, [x, gamma], _params(1, rstd=True)).outputs
    assert rstd.shape == (3, 1, 1)
    expected = _rms_rows(x.reshape(3, 64), gamma.reshape(64)).reshape(x.shape)
    assert_close(y, expected, ulps=1.0)
    assert_close(rstd, 1 / torch.sqrt(x.double().square().mean((1, 2), keepdim=True) + EPSILON))


def test_high_performance_rounds_before_gamma(run: Run) -> None:
    x, gamma = torch.randn(8, 32).half(), (torch.rand(32) + 0.5).half()
    (y,) = run(RMS, [x, gamma], _params(1, precisionMode=1)).outputs
    ones = torch.ones(32).half()
    (normalised,) = run(RMS, [x, ones], _params(1)).outputs
    assert torch.equal(y, normalised * gamma)
    (exact,) = run(RMS, [x, gamma], _params(1)).outputs
    assert not torch.equal(y, exact)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layer", [1, 2, 3])
def test_rms_norm_static_quant_divides_by_the_scale(
    run: Run, assert_close: AssertClose, layer: int, dtype: torch.dtype
) -> None:
    if layer == 2 and dtype is torch.bfloat16:
        dtype = torch.float16
    x, residual, gamma, beta = (torch.randn(8, 32).to(dtype) for _ in range(4))
    gamma, beta = gamma[0].contiguous(), beta[0].contiguous()
    scale, offset = torch.tensor([0.03]).to(dtype), torch.tensor([5], dtype=torch.int8)
    lead = {1: [x, gamma, beta], 2: [x, residual, gamma, beta], 3: [x, residual, gamma]}[layer]
    outputs = run(RMS, [*lead, scale, offset], _params(layer, quantType=2)).outputs
    total = x.double() + (residual.double() if layer > 1 else 0)
    y = _rms_rows(total, gamma)
    shifted = y + (beta.double() if layer < 3 else 0)
    _assert_int8_within_one(outputs[0], _quantised(shifted, float(scale), 5))
    if layer > 1:
        # Disagreement 6: the second output of POSTNORM is the normalised value, not the sum.
        assert_close(outputs[1], total if layer == 2 else y)


@pytest.mark.parametrize("op", [RMS, LAYER])
@pytest.mark.parametrize("dynamic", [1, 2])
def test_dynamic_quant_follows_the_norm(run: Run, op: str, dynamic: int) -> None:
    x, gamma, beta = torch.randn(6, 64).half(), torch.randn(64).half(), torch.randn(64).half()
    params = _params(1, quantType=2, dynamicQuantType=dynamic)
    outputs = run(op, [x, gamma, beta], params).outputs
    assert len(outputs) == 1 + dynamic
    exact = _rms_rows(x, gamma) + beta.double() if op == RMS else _layer_rows(x, gamma, beta)
    y = exact.half().double()
    for row in range(6):
        high, low = float(y[row].max()), float(y[row].min())
        if dynamic == 1:
            scale, offset = max(high, -low) / 127, 0.0
        else:
            scale = (high - low) / 255
            offset = -(high + low) / (2 * scale)
            assert float(outputs[2][row]) == pytest.approx(offset, rel=1e-2, abs=1e-3)
        assert float(outputs[1][row]) == pytest.approx(scale, rel=2e-3)
        factor, half = np.float16(1 / np.float32(scale)), y[row].numpy().astype(np.float16)
        scaled = (half * factor + np.float16(offset)).tolist()  # each step in float16
        expected = [round(min(max(v, -128), 127)) for v in scaled]
        _assert_int8_within_one(outputs[0][row], expected)


def test_layer_norm_without_the_dumped_type_is_symmetric_dynamic(run: Run) -> None:
    x, gamma = torch.randn(2, 32).half(), torch.ones(32).half()
    params = _params(1, quantType=2)
    outputs = run(LAYER, [x, gamma, gamma], params).outputs
    assert len(outputs) == 2


def test_strided_rms_norm_views_the_parent_tensor(run: Run, assert_close: AssertClose) -> None:
    parent, gamma = torch.randn(4, 16).half(), torch.randn(16).half()
    strides, offset = torch.tensor([16, 1]), torch.tensor([16])
    grown = torch.cat([parent, parent])
    (y,) = run(RMS, [parent, gamma, strides, torch.tensor([0])], _params(1)).outputs
    assert_close(y, _rms_rows(parent, gamma))
    reversed_rows = [grown, gamma, torch.tensor([0, 1]), offset]
    (same,) = run(RMS, reversed_rows, _params(1)).outputs
    assert_close(same, _rms_rows(parent[1:2].expand(8, 16), gamma))


@given(st.floats(0.125, 8), st.integers(0, 2**32 - 1))
def test_rms_norm_does_not_see_scale_or_order(run: Run, factor: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 32, generator=generator)
    order = torch.randperm(32, generator=generator)
    params = {"layerType": 1, "normParam": {"epsilon": 0.0, "rstd": True}}
    gamma = torch.ones(32)
    (base, _), (scaled, _), (moved, _) = (
        run(RMS, [value, gamma], params).outputs for value in (x, x * factor, x[:, order])
    )
    torch.testing.assert_close(scaled, base, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(moved, base[:, order], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("begin", [0, 1, 2, -1, -2])
def test_layer_norm_normalises_from_the_given_axis(
    run: Run, assert_close: AssertClose, begin: int, dtype: torch.dtype
) -> None:
    x = (torch.randn(2, 3, 8) * 3 + 1).to(dtype)
    shape = x.shape[begin:]
    gamma, beta = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    (y,) = run(LAYER, [x, gamma, beta], _params(1, beginNormAxis=begin)).outputs
    assert_close(y, _layer_rows(x, gamma, beta))


@pytest.mark.parametrize("layer", [2, 3])
def test_layer_norm_scales_the_residual(run: Run, assert_close: AssertClose, layer: int) -> None:
    x, residual = torch.randn(4, 32).half(), torch.randn(4, 32).half()
    gamma, beta = torch.randn(32).half(), torch.randn(32).half()
    outputs = run(
        LAYER, [x, residual, gamma, beta], _params(layer, zoomScaleValue=0.5, opMode=0)
    ).outputs
    total = x.double() + 0.5 * residual.double()
    assert_close(outputs[0], _layer_rows(total, gamma, beta))
    if layer == 2:
        assert_close(outputs[1], total)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_layer_norm_static_quant_divides_by_the_scale(run: Run, dtype: torch.dtype) -> None:
    """Disagreement 5: the scale divides; begin axis 0 still normalises the last dimension."""
    x, gamma, beta = torch.randn(8, 32), torch.randn(32), torch.randn(32)
    x, gamma, beta = x.to(dtype), gamma.to(dtype), beta.to(dtype)
    scale, offset = torch.tensor([0.04]).to(dtype), torch.tensor([-7], dtype=torch.int8)
    (q,) = run(LAYER, [x, gamma, beta, scale, offset], _params(1, quantType=2)).outputs
    _assert_int8_within_one(q, _quantised(_layer_rows(x, gamma, beta), float(scale), -7))


def test_layer_norm_postnorm_quant_works_in_float16(run: Run, assert_close: AssertClose) -> None:
    x, residual = torch.randn(8, 32).half(), torch.randn(8, 32).half()
    gamma, beta = torch.randn(32).half(), torch.randn(32).half()
    scale, offset = torch.tensor([0.05]).half(), torch.tensor([3], dtype=torch.int8)
    params = _params(3, quantType=2, zoomScaleValue=0.5)
    y, q = run(LAYER, [x, residual, gamma, beta, scale, offset], params).outputs
    assert_close(y, _layer_rows(x.double() + residual.double(), gamma, beta))
    inverse = np.float16(1 / np.float32(scale.item()))
    expected = [
        round(min(max(float(np.float16(np.float16(v) * inverse) + np.float16(3)), -128), 127))
        for v in y.reshape(-1).numpy()
    ]
    assert q.reshape(-1).tolist() == expected


def _desc(dtype: DType, *shape: int) -> TensorDesc:
    return TensorDesc(dtype, shape)


@pytest.mark.parametrize(
    ("op", "descs", "params", "text"),
    [
        (RMS, [_desc(DType.FLOAT32, 4, 32)] * 2, _params(1), "dtypes"),
        (RMS, [_desc(DType.FLOAT16, 4, 20), _desc(DType.FLOAT16, 20)], _params(1), "of 16"),
        (
            RMS,
            [_desc(DType.BFLOAT16, 4, 32), _desc(DType.BFLOAT16, 32)],
            _params(1, precisionMode=1),
            "takes float16",
        ),
        (
            RMS,
            [_desc(DType.FLOAT16, 4, 32), _desc(DType.FLOAT16, 32)],
            _params(1, precisionMode=1, modelType=1),
            "exclude each other",
        ),
        (LAYER, [_desc(DType.FLOAT16, 4, 32)] * 4, _params(2, quantType=2), "not quantised"),
        (
            LAYER,
            [_desc(DType.FLOAT16, 4, 32), *[_desc(DType.FLOAT16, 32)] * 2],
            _params(1, beginNormAxis=0),
            "beginNormAxis 0",
        ),
        (RMS, [_desc(DType.FLOAT16, 4, 32)], {"layerType": 4}, "2 PRENORM"),
    ],
)
def test_norms_say_what_they_refuse(
    op: str, descs: list[TensorDesc], params: dict[str, Any], text: str
) -> None:
    with pytest.raises(OperationError, match=text):
        golden_ops.get(op).infer_shape(descs, params)
