"""Fused norms, tables, routing and cache copies, against loops over their elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

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
AssertClose = Callable[..., None]
HALVES = [torch.float16, torch.bfloat16]


def _int32(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def _normalised(row: list[float], epsilon: float) -> list[float]:
    mean = math.fsum(row) / len(row)
    variance = math.fsum((v - mean) ** 2 for v in row) / len(row)
    return [(v - mean) / math.sqrt(variance + epsilon) for v in row]


@pytest.mark.parametrize("dtype", HALVES)
def test_cohere_layer_norm_weighs_each_head(
    run: Run, assert_close: AssertClose, dtype: torch.dtype
) -> None:
    x, weight = (torch.randn(3, 2, 16) * 2 + 1).to(dtype), torch.randn(2, 16).to(dtype)
    (y,) = run("CohereLayerNormOperation", [x, weight], {"epsilon": 1e-2}).outputs
    expected = torch.empty(x.shape, dtype=torch.float64)
    for t, h in itertools.product(range(3), range(2)):
        row = _normalised(x[t, h].double().tolist(), 1e-2)
        expected[t, h] = torch.tensor(row, dtype=torch.float64) * weight[h].double()
    assert_close(y, expected)


def test_strided_layer_norm_views_the_storage(run: Run, assert_close: AssertClose) -> None:
    x, gamma, beta = torch.randn(4, 8).half(), torch.randn(8).half(), torch.randn(8).half()
    strides, offset = torch.tensor([0, 2]), torch.tensor([3])
    params = {"layerType": 1, "normParam": {"epsilon": 1e-3}}
    (y,) = run("LayerNormWithStrideOperation", [x, gamma, beta, strides, offset], params).outputs
    row = _normalised(x.reshape(-1)[3:19:2].double().tolist(), 1e-3)
    expected = torch.tensor(row, dtype=torch.float64) * gamma.double() + beta.double()
    assert_close(y, expected.expand(4, 8))
    far = [x, gamma, beta, torch.tensor([8, 2]), offset]
    with pytest.raises(OperationError, match="outside 32 elements"):
        run("LayerNormWithStrideOperation", far, params)


@pytest.mark.parametrize("dtype", HALVES)
def test_gathered_residuals_are_added_before_the_norm(
    run: Run, assert_close: AssertClose, dtype: torch.dtype
) -> None:
    x, residual, gamma = (torch.randn(n, 16).to(dtype) for n in (3, 5, 1))
    index = [4, 0, 4]
    inputs = [x, residual, _int32(index), gamma[0].contiguous()]
    y, total = run("GatherPreRmsNormOperation", inputs, {"epsilon": 1e-3}).outputs
    assert y.dtype == torch.float32
    exact = x.double() + residual.double()[index]
    root = torch.sqrt(exact.square().mean(1, keepdim=True) + 1e-3)
    assert_close(total, exact)
    assert_close(y, exact / root * gamma.double(), ulps=8.0)


@pytest.mark.parametrize("code", [1, 27])
def test_dynamic_ntk_gives_sine_then_cosine(run: Run, code: int) -> None:
    positions, lengths = [0, 1, 70000, 5, 9], [3, 2]
    frequencies = torch.rand(2, 4)
    inputs = [_int32(positions), frequencies, _int32(lengths)]
    sine, cosine = run("DynamicNTKOperation", inputs, {"outputType": code}).outputs
    for t, position in enumerate(positions):
        for d in range(8):
            frequency = np.float32(frequencies[0 if t < 3 else 1, d % 4])
            angle = float(np.float32(position) * frequency)
            tolerance = 1e-2 if code == 27 else 1e-3
            assert float(sine[t, d]) == pytest.approx(math.sin(angle), abs=tolerance)
            assert float(cosine[t, d]) == pytest.approx(math.cos(angle), abs=tolerance)


def test_rotated_queries_precede_the_appended_part(run: Run) -> None:
    query, appended = torch.randn(3, 2 * 16).half(), torch.randn(3, 2, 5).half()
    angles = torch.rand(3, 16)
    cos, sin = angles.cos().half(), angles.sin().half()
    (y,) = run("RopeQConcatOperation", [query, cos, sin, appended]).outputs
    lengths = _int32([3])
    rotated, _ = run("RopeOperation", [query, query, cos, sin, lengths], {"rotaryCoeff": 2}).outputs
    assert torch.equal(y[..., :16], rotated.reshape(3, 2, 16))
    assert torch.equal(y[..., 16:], appended)


def test_partial_attention_is_merged_stably(run: Run, assert_close: AssertClose) -> None:
    """Disagreement 33: no overflow for large log-sum-exp; -inf weighs nothing."""
    lse = torch.tensor([[100.0, 1.0], [101.0, -math.inf], [-200.0, 2.0]])
    parts = torch.randn(3, 2, 4)
    (y,) = run("FaUpdateOperation", [lse, parts], {"sp": 3}).outputs
    expected = torch.zeros(2, 4, dtype=torch.float64)
    for n in range(2):
        highest = max(lse[:, n].tolist())
        powers = [math.exp(v - highest) for v in lse[:, n].tolist()]
        for s in range(3):
            expected[n] += powers[s] / math.fsum(powers) * parts[s, n].double()
    assert_close(y, expected, floor=1.0)


def test_blocks_are_copied_to_all_their_targets(run: Run) -> None:
    caches = [torch.randn(6, 2, 1, 4).half() for _ in range(2)]
    inputs = [*caches, _int32([4, 0]), _int32([1, 2, 5]), _int32([2, 3])]
    result = run("BlockCopyOperation", inputs)
    assert result.outputs == ()
    for index, cache in enumerate(caches):
        assert torch.equal(result.updated_inputs[index], cache[[0, 4, 4, 3, 4, 0]])
    with pytest.raises(OperationError, match="outside the 6 blocks"):
        run("BlockCopyOperation", [*caches, _int32([6]), _int32([1]), _int32([1])])


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
def test_rms_norm_backward_is_the_derivative(run: Run, dtype: torch.dtype) -> None:
    x, dy, gamma = torch.randn(5, 16), torch.randn(5, 16), torch.rand(16) + 0.5
    x, dy, gamma = x.to(dtype), dy.to(dtype), gamma.to(dtype)
    leaf = x.double().requires_grad_()
    weight = gamma.double().requires_grad_()
    rstd = torch.rsqrt(leaf.square().mean(-1, keepdim=True) + 1e-6)
    (leaf * rstd * weight).backward(dy.double())
    inputs = [dy, x, rstd.detach().float(), gamma]
    dx, dgamma = run("RmsNormBackwardOperation", inputs).outputs
    assert dgamma.dtype == torch.float32
    epsilon = torch.finfo(dtype).eps
    assert leaf.grad is not None
    assert weight.grad is not None
    torch.testing.assert_close(dx.double(), leaf.grad, rtol=epsilon, atol=8 * 1.2e-7)
    # Products are rounded to the dtype of gamma before they are summed.
    torch.testing.assert_close(dgamma.double(), weight.grad, rtol=0, atol=10 * epsilon)
    rounded = (x.double() * rstd.detach().float().double()).to(dtype).double()
    exact = (dy.double() * rounded).sum(0)
    torch.testing.assert_close(dgamma.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reduction", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scattered_elements(run: Run, reduction: int, axis: int) -> None:
    x = torch.arange(12, dtype=torch.int32).reshape(3, 4)
    index = torch.tensor([[0, 2], [1, 0]]) if axis == 0 else torch.tensor([[3, 0], [1, 2]])
    updates = _int32([[100, 200], [300, 400]])
    params = {"axis": axis, "reduction": reduction}
    result = run("ScatterElementsV2Operation", [x, index, updates], params)
    expected = x.clone()
    for i, j in itertools.product(range(2), range(2)):
        place = (int(index[i, j]), j) if axis == 0 else (i, int(index[i, j]))
        expected[place] = updates[i, j] + (expected[place] if reduction else 0)
    assert torch.equal(result.updated_inputs[0], expected)


@given(st.integers(0, 2**31), st.sampled_from([(0, 1), (1, 2), (1, 3)]), st.integers(1, 4))
def test_groups_out_of_the_best_are_zeroed(
    run: Run, seed: int, score: tuple[int, int], keep: int
) -> None:
    flag, top = score
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-4, 5, (3, 12), generator=generator).half()
    table = torch.arange(1024, dtype=torch.int32)
    params = {"groupNum": 4, "k": keep, "groupMultiFlag": flag, "n": top}
    result = run("GroupTopkOperation", [x, table], params)
    for row, got in zip(x.tolist(), result.outputs[0].tolist(), strict=True):
        groups = [row[3 * g : 3 * g + 3] for g in range(4)]
        scores = [sum(sorted(group, reverse=True)[:top]) for group in groups]
        best = sorted(range(4), key=lambda g: (-scores[g], g))[:keep]
        expected = [v if g in best else 0.0 for g in range(4) for v in groups[g]]
        assert got == expected
    assert result.updated_inputs[0] is result.outputs[0]


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("norm", [False, True])
def test_routing_picks_by_bias_and_weighs_without_it(run: Run, mapped: bool, norm: bool) -> None:
    x, bias = torch.randn(4, 16), torch.randn(16) * 0.3
    copies = torch.randint(0, 4, (16,), dtype=torch.int32)
    table = torch.randint(0, 99, (16, 3), dtype=torch.int32)
    params = {
        "groupNum": 4,
        "groupTopk": 2,
        "n": 2,
        "k": 5,
        "activationType": 8,
        "isNorm": norm,
        "scale": 2.5,
        "enableExpertMapping": mapped,
    }
    inputs = [x, bias, *([copies, table] if mapped else [])]
    weights, experts = run("FusedAddTopkDivOperation", inputs, params).outputs
    for t in range(4):
        plain = [1 / (1 + math.exp(-v)) for v in x[t].double().tolist()]
        added = [p + b for p, b in zip(plain, bias.double().tolist(), strict=True)]
        sums = [sum(sorted(added[4 * g : 4 * g + 4])[-2:]) for g in range(4)]
        best = sorted(range(4), key=lambda g: -sums[g])[:2]
        competing = [a if e // 4 in best else 0.0 for e, a in enumerate(added)]
        order = sorted(range(16), key=lambda e: (-competing[e], e))[:5]
        total = math.fsum(plain[e] for e in order) / 2.5 if norm else 1.0
        assert weights[t].tolist() == pytest.approx([plain[e] / total for e in order], rel=1e-6)
        if mapped:
            order = [int(table[e, t % max(1, int(copies[e]))]) for e in order]
        assert experts[t].tolist() == order


def _desc(*shape: int, dtype: DType = DType.FLOAT16) -> TensorDesc:
    return TensorDesc(dtype, shape)


INT = DType.INT32


@pytest.mark.parametrize(
    ("op", "descs", "params", "text"),
    [
        ("CohereLayerNormOperation", [_desc(2, 2, 16), _desc(16)], {}, "input 1"),
        ("GroupTopkOperation", [_desc(2, 12), _desc(12, dtype=INT)], {"k": 1}, "1024"),
        (
            "GroupTopkOperation",
            [_desc(2, 12), _desc(1024, dtype=INT)],
            {"groupNum": 5, "k": 1},
            "must divide 12",
        ),
        ("FusedAddTopkDivOperation", [_desc(2, 64), _desc(64)], {"k": 4}, "takes 32"),
        ("FaUpdateOperation", [_desc(2, 4, dtype=DType.FLOAT32)] * 2, {"sp": 2}, "3 dimensions"),
        ("RopeQConcatOperation", [_desc(3, 32), *[_desc(3, 16)] * 2, _desc(3, 4, 5)], {}, "input"),
    ],
)
def test_fused_operators_say_what_they_refuse(
    op: str, descs: list[TensorDesc], params: dict[str, object], text: str
) -> None:
    with pytest.raises(OperationError, match=text):
        golden_ops.get(op).infer_shape(descs, params)
