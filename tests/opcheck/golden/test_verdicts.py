"""Where published references of an operator disagree: the side that was chosen, one test each.

Every case computes what the other side would give too, and shows that it differs. Attention has its
own module.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ait_llm.opcheck.golden import GOLDEN, golden_ops
from ait_llm.opcheck.golden.glibc_random import uniform


def outputs(op: str, inputs: list[Tensor], params: dict[str, Any] | None = None) -> list[Tensor]:
    return list(golden_ops.get(op).compute(inputs, params or {}, GOLDEN).outputs)


def norm_inputs(dtype: torch.dtype = torch.float16) -> list[Tensor]:
    x, gamma, beta = (torch.randn(*shape).to(dtype) for shape in ((2, 32), (32,), (32,)))
    return [x, gamma, beta, torch.tensor([0.25]).to(dtype), torch.tensor([5], dtype=torch.int8)]


def test_static_quantisation_of_layer_norm_divides_by_the_scale() -> None:
    inputs = norm_inputs()
    params = {"layerType": 1, "normParam": {"quantType": 2, "beginNormAxis": 1}}
    (found,) = outputs("LayerNormOperation", inputs, params)
    y = torch.nn.functional.layer_norm(
        *(t.float() for t in inputs[:1]), (32,), *(t.float() for t in inputs[1:3])
    )
    divided, multiplied = ((z + 5).clamp(-128, 127) for z in (y / 0.25, y * 0.25))
    assert (found.float() - divided).abs().max() <= 0.51
    assert (found.float() - multiplied).abs().max() > 1


def test_second_output_of_quantised_post_norm_is_normalised_not_the_sum() -> None:
    x, gamma, _, scale, offset = norm_inputs()
    residual = torch.randn(2, 32).half()
    params = {"layerType": 3, "postNormParam": {"quantType": 2, "epsilon": 1e-5}}
    _, found = outputs("RmsNormOperation", [x, residual, gamma, scale, offset], params)
    total = x.float() + residual.float()
    y = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-5) * gamma.float()
    torch.testing.assert_close(found.float(), y, rtol=2e-3, atol=2e-3)
    assert not torch.allclose(found.float(), total, rtol=0.1, atol=0.1)


def test_elementwise_quantisation_multiplies_adds_and_rounds_to_even() -> None:
    x = torch.tensor([[1.25, 0.75, -1.25, 300.0] * 8]).half()
    params = {"elewiseType": 6, "quantParam": {"inputScale": 2.0, "inputOffset": 1}}
    (found,) = outputs("ElewiseOperation", [x], params)
    assert found[0, :4].tolist() == [4, 2, -2, 127]  # 3.5, 2.5, -1.5; truncation gives 3, 2, -1


def test_per_channel_quantisation_adds_the_offset_before_it_rounds() -> None:
    x, scale = torch.full((1, 2), 0.5).half(), torch.tensor([1.0, 1.0]).half()
    offset = torch.tensor([1, 2], dtype=torch.int8)
    (found,) = outputs("ElewiseOperation", [x, scale, offset], {"elewiseType": 17})
    assert found.tolist() == [[2, 2]]  # rounding first gives 1, 2


def test_per_channel_dequantisation_subtracts_before_it_scales() -> None:
    x, scale = torch.tensor([[10]], dtype=torch.int8), torch.tensor([2.0]).half()
    offset = torch.tensor([3], dtype=torch.int8)
    (found,) = outputs("ElewiseOperation", [x, scale, offset], {"elewiseType": 18})
    assert found.item() == 14  # 10 - 3 * 2 gives 4


def test_products_overflow_to_infinity() -> None:
    x = torch.full((1, 2), 300.0).half()
    (found,) = outputs("ElewiseOperation", [x, x], {"elewiseType": 9})
    assert found.isinf().all()


def test_ties_of_dynamic_quantisation_go_away_from_zero_but_to_even_in_norms() -> None:
    x = torch.tensor([[127.0, 0.5, -0.5, 2.5]]).half()
    found, _ = outputs("ElewiseOperation", [x], {"elewiseType": 19})
    assert found.tolist() == [[127, 1, -1, 3]]
    values = torch.tensor([[127.0, 0.5, -0.5, 2.5]]).half().repeat(1, 8)
    beta = values[0] - 0
    params = {"layerType": 1, "normParam": {"quantType": 2, "dynamicQuantType": 1}}
    zero = torch.zeros(1, 32).half()
    found, _ = outputs("RmsNormOperation", [zero, torch.ones(32).half(), beta], params)
    assert found[0, :4].tolist() == [127, 0, 0, 2]


@pytest.mark.parametrize("kind", [3, 4])
def test_bfloat16_stays_bfloat16(kind: int) -> None:
    x, gamma = norm_inputs(torch.bfloat16)[:2]
    params = {"layerType": 1, "normParam": {"epsilon": 1e-5}}
    assert outputs("RmsNormOperation", [x, gamma], params)[0].dtype == torch.bfloat16
    assert outputs("ActivationOperation", [x], {"activationType": kind})[0].dtype == torch.bfloat16


def test_rstd_is_the_reciprocal_of_the_root() -> None:
    x, gamma = torch.randn(2, 32), torch.ones(32)
    params = {"layerType": 1, "normParam": {"epsilon": 0.5, "rstd": True}}
    _, rstd = outputs("RmsNormOperation", [x, gamma], params)
    expected = 1 / (x.double().square().mean(-1, keepdim=True) + 0.5).sqrt()
    torch.testing.assert_close(rstd.double(), expected, rtol=1e-6, atol=0)


def test_linear_has_a_bias_by_default_and_dequantises_without_one() -> None:
    x, weight, bias = torch.randn(2, 4).half(), torch.randn(3, 4).half(), torch.ones(3).half() * 9
    (found,) = outputs("LinearOperation", [x, weight, bias])
    torch.testing.assert_close(
        found.float(), x.float() @ weight.float().T + 9, rtol=1e-3, atol=1e-2
    )
    x, weight = (torch.full(shape, 3, dtype=torch.int8) for shape in ((1, 4), (2, 4)))
    params = {"hasBias": False, "outDataType": 27}
    (found,) = outputs("LinearOperation", [x, weight, torch.tensor([0.5, 2.0])], params)
    assert found.tolist() == [[18, 72]]


def test_int8_products_are_exact_beyond_float32() -> None:
    x = torch.full((1, 2**15 + 1), 127, dtype=torch.int8)
    weight = torch.full((1, 2**15 + 1), 127, dtype=torch.int8)
    bias = torch.tensor([3 - 127 * 127 * (2**15 + 1)], dtype=torch.int32)
    params = {"hasBias": True, "outDataType": 27}
    (found,) = outputs("LinearOperation", [x, weight, bias, torch.tensor([1.0])], params)
    assert found.item() == 3


def test_residual_of_linear_parallel_comes_after_the_scale_only_when_quantised() -> None:
    x, weight, residual = torch.ones(1, 4).half(), torch.ones(2, 4).half(), torch.tensor([1.0, 2.0])
    params = {"backend": "lcoc", "type": 3, "hasResidual": True}
    (found,) = outputs("LinearParallelOperation", [x, weight, residual.half()], params)
    assert found.tolist() == [[5, 6]]
    eight = [x.to(torch.int8), weight.to(torch.int8), torch.zeros(2).int(), torch.full((2,), 0.5)]
    params |= {"quantType": 1, "outDataType": 27}
    (found,) = outputs("LinearParallelOperation", [*eight, residual.bfloat16()], params)
    assert found.tolist() == [[3, 4]]


def test_collectives_take_all_ranks_whatever_the_root_is() -> None:
    params = [{"rank": rank, "rankSize": 3, "rankRoot": 2} for rank in range(3)]
    tensors = [[torch.tensor([float(rank)])] for rank in range(3)]
    for op, expected in (
        ("AllReduceOperation", [3.0]),
        ("AllGatherOperation", [[0.0], [1.0], [2.0]]),
    ):
        compute = golden_ops.get(op).compute_ranks
        assert compute is not None
        assert compute(tensors, params, GOLDEN)[0].outputs[0].tolist() == expected
    compute = golden_ops.get("BroadcastOperation").compute_ranks
    assert compute is not None
    assert compute(tensors, params, GOLDEN)[0].updated_inputs[0].tolist() == [2.0]


def test_gather_pairs_batch_dimensions() -> None:
    x, indices = torch.arange(12).reshape(2, 3, 2), torch.tensor([[2, 0], [1, 1]])
    (found,) = outputs("GatherOperation", [x, indices], {"axis": 1, "batchDims": 1})
    assert found.tolist() == [[[4, 5], [0, 1]], [[8, 9], [8, 9]]]


def test_index_add_of_valid_indices_stops_at_their_number() -> None:
    var, updates = torch.zeros(3, 1).half(), torch.ones(3, 1).half()
    indices, valid = (torch.tensor(v, dtype=torch.int32) for v in ([0, 0, 2], [2]))
    (found,) = outputs("IndexAddOperation", [var, indices, updates, valid], {"indexType": 2})
    assert found.tolist() == [[2], [0], [0]]


def test_the_cache_keeps_what_was_there() -> None:
    past = torch.full((1, 1, 3, 16), 7.0).half()
    numbers = [torch.tensor([n], dtype=torch.int32) for n in (0, 2, 1)]
    inputs = [torch.ones(1, 16).half(), numbers[0], past, *numbers[1:]]
    result = golden_ops.get("KvCacheOperation").compute(inputs, {}, GOLDEN)
    assert result.updated_inputs[2][0, 0, :, 0].tolist() == [7, 1, 7]


def test_nonzero_gives_padded_coordinates_and_a_count() -> None:
    found, count = outputs("NonzeroOperation", [torch.tensor([[0, 3], [5, 0]])])
    assert (found.shape, found.dtype, count.tolist()) == ((2, 4), torch.int64, [2])
    assert found[:, :2].tolist() == [[0, 1], [1, 0]]


def test_onehot_puts_depth_at_the_axis() -> None:
    inputs = [torch.tensor([2, 0]), torch.tensor([5]), torch.tensor([-1])]
    (found,) = outputs("OnehotOperation", inputs, {"axis": 0, "depth": 3})
    assert found.tolist() == [[-1, 5], [-1, -1], [5, -1]]


def test_reductions_give_values_and_drop_all_axes() -> None:
    x = torch.tensor([[[1, 9], [4, 2]]], dtype=torch.int32)
    assert outputs("ReduceOperation", [x], {"reduceType": 1, "axis": [1, 2]})[0].tolist() == [9]


def test_rope_gradient_adds_the_shifted_sine_to_the_cosine() -> None:
    gradient = torch.randn(2, 128).half()
    cos, sin = torch.randn(4, 128).half(), torch.randn(4, 128).half()
    params = {"c_qSeqLen": [2]}
    found = outputs("RopeGradOperation", [gradient, gradient, cos, sin], params)[0]
    shifted = torch.cat([sin[:2, 64:], -sin[:2, :64]], dim=1)
    expected = gradient.float() * (cos[:2].float() + shifted.float())
    torch.testing.assert_close(found.float(), expected, rtol=2e-3, atol=4e-3)


def test_rope_counts_the_heads_of_query_and_key_apart() -> None:
    query, key = torch.randn(2, 64).half(), torch.randn(2, 16).half()
    cos, sin = torch.randn(2, 16).half(), torch.randn(2, 16).half()
    length = torch.tensor([2], dtype=torch.int32)
    rotated, single = outputs("RopeOperation", [query, key, cos, sin, length], {"rotaryCoeff": 2})
    alone = outputs("RopeOperation", [key, key, cos, sin, length], {"rotaryCoeff": 2})[0]
    assert (rotated.shape, single.shape) == (query.shape, key.shape)
    assert torch.equal(single, alone)


def test_strided_products_read_the_keys_that_dumps_have() -> None:
    sizes = {"m": [2], "n": [2], "k": [3], "lda": [3], "ldb": [3], "ldc": [2]}
    params = {**sizes, "strideA": [6], "strideB": [6], "strideC": [4], "transposeB": True}
    a, b = torch.randn(6).half(), torch.randn(6).half()
    (found,) = outputs("StridedBatchMatmulOperation", [a, b], {**params, "batch": 1, "headNum": 1})
    expected = a.reshape(2, 3).float() @ b.reshape(2, 3).float().T
    torch.testing.assert_close(found.reshape(2, 2).float(), expected, rtol=2e-3, atol=2e-3)


def test_softmax_gradient_comes_from_its_inputs() -> None:
    y, dy = torch.rand(8).half(), torch.randn(8).half()
    params = {"headNum": 2, "qSeqLen": [2]}
    (found,) = outputs("FastSoftMaxGradOperation", [y, dy], params)
    rows, gradient = y.float().reshape(4, 2), dy.float().reshape(4, 2)
    expected = rows * (gradient - (rows * gradient).sum(1, keepdim=True))
    torch.testing.assert_close(found.reshape(4, 2).float(), expected, rtol=2e-3, atol=2e-3)


def test_merged_attention_does_not_overflow() -> None:
    lse, parts = torch.tensor([[200.0], [201.0]]), torch.tensor([[[1.0]], [[3.0]]])
    (found,) = outputs("FaUpdateOperation", [lse, parts], {"sp": 2})
    weight = torch.sigmoid(torch.tensor(1.0))
    assert found.item() == pytest.approx(1 + 2 * float(weight), rel=1e-6)


def test_set_value_slices_every_dimension() -> None:
    params = {"starts": [1, 0], "ends": [3, 2], "strides": [1, 1]}
    inputs = [torch.zeros(3, 3).half(), torch.ones(2, 2).half()]
    result = golden_ops.get("SetValueOperation").compute(inputs, params, GOLDEN)
    assert result.updated_inputs[0].tolist() == [[0, 0, 0], [1, 1, 0], [1, 1, 0]]


def test_softmax_over_several_axes_is_one_distribution() -> None:
    x = torch.randn(2, 3, 4)
    (found,) = outputs("SoftmaxOperation", [x], {"axes": [1, 2]})
    torch.testing.assert_close(found.sum((1, 2)), torch.ones(2), rtol=1e-6, atol=0)


def test_swiglu_backward_takes_the_gradient_first() -> None:
    dy, x = torch.randn(2, 4), torch.randn(2, 8, requires_grad=True)
    gate, value = x.chunk(2, dim=-1)
    (torch.nn.functional.silu(gate) * value).backward(dy)
    (found,) = outputs("ActivationOperation", [dy, x.detach()], {"activationType": 7})
    torch.testing.assert_close(found, x.grad, rtol=1e-5, atol=1e-6)


def test_a_draw_equal_to_a_prefix_sum_takes_its_index() -> None:
    number = uniform([5], 1)[0, 0]
    probs = torch.tensor([[float(number), 1 - float(number)]])
    (found,) = outputs("MultinomialOperation", [probs], {"randSeed": 5})
    assert found.item() == 0  # the first sum that is greater would be that of index 1
