"""Operators of mixtures of experts: Gating and the grouped matrix products."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import GOLDEN, UnverifiableError, golden_ops
from ait_llm.opcheck.golden.deq_swiglu_quant import unpermuted
from ait_llm.opcheck.golden.layout import nd_to_nz

GATING = "GatingOperation"


def gating(topk: list[int], params: dict[str, Any]) -> list[list[int]]:
    slots = torch.tensor(topk, dtype=torch.int32)
    index = torch.arange(len(topk), dtype=torch.int32)
    result = golden_ops.get(GATING).compute([slots, index], params, GOLDEN)
    return [output.tolist() for output in result.outputs]


@given(
    tokens=st.integers(1, 12),
    per_token=st.integers(1, 3),
    experts=st.integers(1, 5),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_gating_orders_slots_by_expert(
    tokens: int, per_token: int, experts: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    topk = torch.randint(0, experts, (tokens * per_token,), generator=generator).tolist()
    params = {"topkExpertNum": per_token, "cumSumNum": experts}
    token, sums, original = gating(topk, params)
    order = sorted(range(len(topk)), key=lambda slot: (topk[slot], slot))
    assert original == order
    assert token == [slot // per_token for slot in order]
    assert sums == [sum(chosen <= expert for chosen in topk) for expert in range(experts)]


def test_expert_parallel_gating_packs_the_slots_of_its_experts() -> None:
    topk = [3, 0, 1, 3, 2, 0]
    params = {"topkExpertNum": 2, "cumSumNum": 4, "deviceExpert": [3, 0], "cumSumInt64": True}
    token, sums, original, valid = gating(topk, params)
    assert original == [1, 5, 0, 3, 0, 0]
    assert token == [0, 2, 0, 1, 0, 0]
    assert (sums, valid) == ([2, 4], [4])


def test_gating_without_counts_leaves_token_index_zero() -> None:
    assert gating([2, 0, 1], {"topkExpertNum": 1, "cumSumNum": 0}) == [[0, 0, 0], [0], [1, 2, 0]]


def test_gating_without_parameters_is_unverifiable() -> None:
    with pytest.raises(UnverifiableError, match="topkExpertNum is needed"):
        gating([0, 1], {})


@pytest.mark.parametrize("per_token", [1, 2, 3, 6])
def test_gating_parameters_are_told_by_its_outputs(per_token: int) -> None:
    topk = torch.tensor([3, 0, 1, 3, 2, 0], dtype=torch.int32)
    inputs = [topk, torch.arange(6, dtype=torch.int32)]
    params = {"topkExpertNum": per_token, "cumSumNum": 4, "cumSumInt64": True}
    op = golden_ops.get(GATING)
    result = op.compute(inputs, params, GOLDEN)
    found = op.recover(inputs, result.outputs, {})
    again = op.compute(inputs, found, GOLDEN)
    assert all(torch.equal(a, b) for a, b in zip(result.outputs, again.outputs, strict=True))
    wrong = [result.outputs[0] + 1000, *result.outputs[1:]]
    assert "topkExpertNum" not in op.recover(inputs, wrong, {})


@pytest.mark.parametrize("transposed", [False, True])
def test_groups_along_the_summed_dimension_are_accumulated(run: Any, transposed: bool) -> None:
    x, weight = torch.randn(4, 10).half(), torch.randn(10, 5).half()
    ends = torch.tensor([3, 3, 10])
    accumulator = torch.randn(12, 5)
    given_x, given_weight = (x.T.contiguous(), weight.T.contiguous()) if transposed else (x, weight)
    params = {"transposeA": transposed, "transposeB": transposed}
    result = run(
        "GroupedMatmulInplaceAddOperation", [given_x, given_weight, ends, accumulator], params
    )
    expected = accumulator.double().reshape(3, 4, 5)
    for group, (start, end) in enumerate(((0, 3), (3, 3), (3, 10))):
        expected[group] += x[:, start:end].double() @ weight[start:end].double()
    torch.testing.assert_close(
        result.outputs[0].double().reshape(3, 4, 5), expected, rtol=1e-6, atol=1e-6
    )
    assert torch.equal(result.updated_inputs[3], result.outputs[0])


ROUTING = "GroupedMatmulWithRoutingOperation"
ENDS = torch.tensor([3, 3, 8], dtype=torch.int32)
INDICES = torch.tensor([0, 2, 3, 1, 0, 2, 3, 1], dtype=torch.int32)


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize("blocked", [False, True])
def test_experts_multiply_their_positions(
    run: Any, up: bool, quantised: bool, blocked: bool
) -> None:
    rows, inner, columns = (4 if up else 8), 32, 32
    if quantised:
        x = torch.randint(-128, 128, (rows, inner), dtype=torch.int8)
        weight = torch.randint(-128, 128, (3, columns, inner), dtype=torch.int8)
        scales = [torch.rand(3, columns), torch.rand(rows) / 100]
    else:
        x, weight, scales = (
            torch.randn(rows, inner).half(),
            torch.randn(3, columns, inner).half(),
            [],
        )
    params = {"moeType": 0 if up else 1, "topK": 2, "outDataType": 27 if quantised else -1}
    stored = nd_to_nz(weight) if blocked else weight
    found = run(ROUTING, [x, stored, ENDS, INDICES, *scales], params).outputs[0]
    expected = torch.zeros(8 if up else 4, columns, dtype=torch.float64)
    for position in range(8):
        expert = 0 if position < 3 else 2
        row = int(INDICES[position]) if up else position
        y = x[row].double() @ weight[expert].double().T
        if quantised:
            y = y * scales[0][expert].double() * scales[1][row].double()
        expected[position if up else int(INDICES[position])] += y
    torch.testing.assert_close(
        found.double(), expected, rtol=2**-8 if quantised else 2**-11, atol=1e-2
    )
    assert found.dtype == (torch.bfloat16 if quantised else torch.float16)


@pytest.mark.parametrize("ends", [[3, 3, 9], [3, 2, 8], [-1, 3, 8]])
def test_ends_past_the_positions_or_falling_are_refused(ends: list[int]) -> None:
    given = torch.tensor(ends, dtype=torch.int32)
    inputs = [torch.zeros(4, 32).half(), torch.zeros(3, 32, 32).half(), given, INDICES]
    with pytest.raises(OperationError, match="do not fit 8 positions"):
        golden_ops.get(ROUTING).compute(inputs, {"topK": 2}, GOLDEN)


def test_positions_past_the_last_end_are_undefined(run: Any) -> None:
    ends = torch.tensor([3, 3, 6], dtype=torch.int32)
    x, weight = torch.randn(4, 32).half(), torch.randn(3, 32, 32).half()
    result = run(ROUTING, [x, weight, ends, INDICES], {"moeType": 0, "topK": 2, "outDataType": -1})
    assert result.undefined[0].flatten().tolist() == [False] * 6 + [True] * 2


GROUPED, SINGLE = "GmmDeqSwigluQuantGmmDeqOperation", "MmDeqSwigluQuantMmDeqOperation"


def permuted(values: Tensor, tile: int) -> Tensor:
    """Column by column: tile t has gates t * tile / 2 ..., then the values that belong to them."""
    columns, order = values.shape[-1], []
    for first in range(0, columns // 2, tile // 2):
        order += range(first, first + tile // 2)
        order += range(columns // 2 + first, columns // 2 + first + tile // 2)
    return values[..., order].contiguous()


@given(tiles=st.integers(1, 4), tile=st.sampled_from([4, 8]))
@settings(max_examples=10, deadline=None)
def test_unpermuted_is_the_inverse_of_the_permutation(tiles: int, tile: int) -> None:
    values = torch.arange(2 * tiles * tile).reshape(2, tiles * tile)
    assert torch.equal(unpermuted(permuted(values, tile), tile), values)


def feed_forward(
    x: Tensor, rows: Tensor, up: Tensor, scale: Tensor, down: Tensor, last: Tensor
) -> Tensor:
    product = (x.double() @ up.double()) * scale.double() * rows.double().unsqueeze(1)
    gate, value = product.half().double().chunk(2, dim=1)
    hidden = gate / (1 + torch.exp(-gate)) * value
    step = hidden.abs().amax(1, keepdim=True) / 127
    return (torch.round(hidden / step) @ down.double()) * last.double() * step


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("permute", [0, 1])
@pytest.mark.parametrize("blocked", [False, True])
def test_int8_feed_forward_block(run: Any, single: bool, permute: int, blocked: bool) -> None:
    groups, inner, columns = (1 if single else 2), 32, 256
    x = torch.randint(-16, 16, (7, inner), dtype=torch.int8)
    up = torch.randint(-16, 16, (groups, inner, columns), dtype=torch.int8)
    down = torch.randint(-16, 16, (groups, columns // 2, 32), dtype=torch.int8)
    scale, last = torch.rand(groups, columns) / 200 + 0.004, torch.rand(groups, 32) / 200
    rows, ends = torch.rand(7) / 10 + 0.05, torch.tensor([2, 6])
    tile = 128 if permute else 256
    stored_up, stored_down = permuted(up, tile), down.transpose(1, 2).contiguous()
    if blocked:
        stored_up, stored_down = nd_to_nz(stored_up), nd_to_nz(stored_down)
    parts = [x, stored_up, permuted(scale, tile), rows, ends, stored_down, last]
    if single:
        squeeze = [1, 2, 5, 6]
        parts = [part[0] if index in squeeze else part for index, part in enumerate(parts)]
        del parts[4]
    params = {"weightUpPermuteType": permute, "outputType": 0, "transposeWeightDown": True}
    found = run(SINGLE if single else GROUPED, parts, params, infer=False).outputs[0]
    ranges = [(0, 7)] if single else [(0, 2), (2, 6)]
    for group, (start, end) in enumerate(ranges):
        own = slice(start, end)
        expected = feed_forward(
            x[own], rows[own], up[group], scale[group], down[group], last[group]
        )
        # A hidden value on the edge between two integers moves a sum by one weight.
        tolerance = float(last.max()) * 16 * float(expected.abs().max()) / 127
        torch.testing.assert_close(found[own].double(), expected, rtol=2**-8, atol=tolerance)
    if not single:
        assert (found[6:] == 0).all()


def test_rows_past_the_last_group_are_undefined() -> None:
    x = torch.randint(-9, 9, (4, 32), dtype=torch.int8)
    up = torch.randint(-9, 9, (1, 32, 256), dtype=torch.int8)
    down = torch.randint(-9, 9, (1, 32, 128), dtype=torch.int8)
    inputs = [x, up, torch.ones(1, 256), torch.ones(4), torch.tensor([3]), down, torch.ones(1, 32)]
    result = golden_ops.get(GROUPED).compute(inputs, {}, GOLDEN)
    assert result.undefined[0].reshape(-1).tolist() == [False, False, False, True]


def test_feed_forward_sizes_are_those_of_the_kernel() -> None:
    int8 = lambda *shape: TensorDesc(DType.INT8, shape)  # noqa: E731
    real = lambda *shape: TensorDesc(DType.FLOAT32, shape)  # noqa: E731
    descs = [int8(5, 7168), int8(2, 7168, 4096), real(2, 4096), real(5)]
    descs += [TensorDesc(DType.INT64, (2,)), int8(2, 7168, 2048), real(2, 7168)]
    infer = golden_ops.get(GROUPED).infer_shape
    assert infer(descs, {}) == (TensorDesc(DType.FLOAT16, (5, 7168)),)
    with pytest.raises(OperationError, match="it takes outputType 0"):
        infer(descs, {"outputType": 1})
    with pytest.raises(OperationError, match="input 0 has shape"):
        infer([int8(5, 32), *descs[1:]], {})
