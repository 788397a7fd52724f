"""Parameters that are not printed, draws and ties: recover, alternatives and accepts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.opcheck.golden import DEVICE, GOLDEN, UnverifiableError, golden_ops
from ait_llm.opcheck.golden.support import desc_of

SORT, MULTINOMIAL = "SortOperation", "MultinomialOperation"
SAMPLING = "TopkToppSamplingOperation"
CLOCK = 2**32 - 1


def test_dynamic_quantisation_is_told_by_the_number_of_outputs() -> None:
    op = golden_ops.get("LayerNormOperation")
    inputs = [torch.randn(3, 16).half(), torch.ones(16).half(), torch.zeros(16).half()]
    params = {"layerType": 1, "normParam": {"quantType": 2}}
    outputs = [torch.zeros(3, 16).to(torch.int8), torch.zeros(3), torch.zeros(3)]
    asymmetric = op.recover(inputs, outputs, params)
    assert len(op.compute(inputs, asymmetric, GOLDEN).outputs) == 3
    assert len(op.compute(inputs, op.recover(inputs, outputs[:2], params), GOLDEN).outputs) == 2
    assert op.recover(inputs, outputs[:1], params) == params


def test_output_dtype_and_layout_of_paged_attention_are_told_by_the_tensors() -> None:
    recover = golden_ops.get("PagedAttentionOperation").recover
    query = torch.zeros(1, 4, 24, dtype=torch.int8)
    by_head, by_token = torch.zeros(3, 2, 8, 24), torch.zeros(3, 8, 2, 24)
    output = torch.zeros(1, 4, 24).bfloat16()
    params = {"headNum": 4, "kvHeadNum": 2}
    found = recover([query, by_head], [output], params)
    assert found == {**params, "outDataType": 27, "inputLayout": 1}
    assert "inputLayout" not in recover([query, by_token], [output], params)
    given_layout = {**params, "inputLayout": 0}
    assert recover([query, by_head], [output], given_layout)["inputLayout"] == 0


@pytest.mark.parametrize(("gather", "scatter"), [(4, 2), (2, 4), (8, 1), (1, 8)])
def test_the_grid_of_ranks_is_told_by_the_rows(gather: int, scatter: int) -> None:
    recover = golden_ops.get("LinearParallelOperation").recover
    params = {"type": 4, "backend": "lcoc", "rankSize": 8}
    x, y = torch.zeros(16, 4), torch.zeros(16 * gather // scatter, 5)
    info = recover([x], [y], params)["twoDimTPInfo"]
    assert (info["agDim"], info["rsDim"]) == (gather, scatter)
    assert recover([x], [torch.zeros(7, 5)], params) == params


def test_gelu_by_the_error_function_is_an_alternative() -> None:
    op = golden_ops.get("ActivationOperation")
    (other,) = op.alternatives({"activationType": 2})
    x = torch.linspace(-4, 4, 50)
    found = op.compute([x], other, GOLDEN).outputs[0]
    torch.testing.assert_close(found, torch.nn.functional.gelu(x), rtol=1e-6, atol=1e-6)
    assert op.alternatives(other) == ()
    assert op.alternatives({"activationType": 1}) == ()


def test_clamping_after_the_mask_is_an_alternative(run: Any) -> None:
    op = golden_ops.get("SelfAttentionOperation")
    params = {"headNum": 1, "kvHeadNum": 1, "calcType": 1, "kvcacheCfg": 1, "maskType": 1}
    params |= {"clampType": 1, "clampMin": -1.0, "clampMax": 1.0}
    query, caches = torch.randn(3, 16).half(), torch.randn(2, 1, 1, 3, 16).half()
    mask = torch.full((3, 3), -10000.0).triu(1).half()
    numbers = [torch.tensor([n], dtype=torch.int32) for n in (3, 3, 0)]
    inputs = [query, *caches, mask, *numbers]
    (other,) = op.alternatives(params)
    found = [run(op.name, inputs, chosen, infer=False).outputs[0] for chosen in (params, other)]
    key, value = caches[:, 0, 0].double()
    scores = query.double() @ key.T
    before = (scores.clamp(-1, 1) + mask.double()).softmax(-1) @ value
    after = (scores + mask.double()).clamp(-1, 1).softmax(-1) @ value
    for result, expected in zip(found, (before, after), strict=True):
        torch.testing.assert_close(result.double(), expected, rtol=2**-10, atol=1e-3)


@given(seed=st.integers(0, 999))
@settings(max_examples=15, deadline=None)
def test_equal_values_may_be_sorted_in_any_order(seed: int) -> None:
    op = golden_ops.get(SORT)
    assert op.accepts is not None
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 3, (2, 8), generator=generator).half()
    params = {"num": [4]}
    values, _ = op.compute([x], params, GOLDEN).outputs
    flipped = torch.sort(x.flip(-1), dim=-1, descending=True, stable=True)
    indices = (7 - flipped.indices[:, :4]).int()
    assert op.accepts([x], (values, indices), params)
    twice = indices.clone()
    twice[0, 1] = twice[0, 0]
    assert not op.accepts([x], (values, twice), params)
    assert not op.accepts([x], (values + 1, indices), params)
    assert not op.accepts([x], (values, indices + 8), params)


def probabilities(rows: int = 4, count: int = 50) -> Tensor:
    return torch.rand(rows, count).softmax(-1).half()


def test_draws_of_a_known_seed_are_accepted_within_rounding() -> None:
    op = golden_ops.get(MULTINOMIAL)
    assert op.accepts is not None
    probs, params = probabilities(count=2000), {"numSamples": 8, "randSeed": 7}
    (drawn,) = op.compute([probs], params, GOLDEN).outputs
    assert op.accepts([probs], [drawn], params)
    assert op.accepts([probs], [drawn + 1], params)  # 1/2000 is below the rounding of a sum
    assert not op.accepts([probs], [drawn + 100], params)
    assert not op.accepts([probs], [drawn[:, :1]], params)


def test_draws_seeded_by_the_clock_must_share_their_numbers() -> None:
    op = golden_ops.get(MULTINOMIAL)
    assert op.accepts is not None
    probs, params = probabilities(), {"numSamples": 8, "randSeed": CLOCK}
    with pytest.raises(UnverifiableError, match="wall clock"):
        op.compute([probs], params, GOLDEN)
    (drawn,) = op.compute([probs], params, DEVICE).outputs
    assert op.accepts([probs], [drawn], params)
    independent = torch.multinomial(probs.float(), 8, replacement=True).int()
    assert not op.accepts([probs], [independent], params)


def sampling_case(kind: int) -> tuple[list[Tensor], dict[str, Any]]:
    probs = probabilities(6, 40)
    params = {"topkToppSamplingType": kind, "randSeed": 3, "randSeeds": list(range(6)), "topk": 20}
    if kind == 0:
        return [probs, torch.full((6, 1), 0.6).half()], params
    extra: list[Tensor] = []
    if kind in (2, 4):
        extra = [torch.empty(6, 40).exponential_().half() + 0.01]
    elif kind == 3:
        extra = [torch.rand(6, 1)]
    top = [torch.full((6, 1), 20, dtype=torch.int32), torch.full((6, 1), 0.6).half()]
    return [probs, *top, *extra], {**params, "logProbsSize": 4}


@pytest.mark.parametrize("kind", range(5))
def test_golden_samples_are_accepted_and_others_are_not(kind: int) -> None:
    op = golden_ops.get(SAMPLING)
    assert op.accepts is not None
    inputs, params = sampling_case(kind)
    golden = op.compute(inputs, params, GOLDEN).outputs
    assert op.accepts(inputs, golden, params)
    worst = inputs[0].argmin(-1, keepdim=True)
    least = (worst.int(), inputs[0].gather(1, worst), *golden[2:])
    assert not op.accepts(inputs, least, params)
    assert not op.accepts(inputs, (golden[0], golden[1] * 2, *golden[2:]), params)
    if kind > 2:
        assert not op.accepts(inputs, (*golden[:2], golden[2] + 1), params)


def test_parameters_of_2023_are_taken_under_their_present_names() -> None:
    op = golden_ops.get("SelfAttentionOperation")
    query, key, value = (torch.randn(3, 2, 16).half() for _ in range(3))
    mask = torch.full((3, 3), -10000.0).triu(1).half()
    inputs = [query, key, value, mask, torch.tensor([3], dtype=torch.int32)]
    old = {"headNum": 2, "headDim": 16, "qkScale": 0.25, "isEncoder": True}
    new = {"headNum": 2, "calcType": 3, "maskType": 1, "qkScale": 0.25}
    found, expected = (op.compute(inputs, params, GOLDEN).outputs[0] for params in (old, new))
    assert torch.equal(found, expected)
    assert op.infer_shape([desc_of(tensor) for tensor in inputs], old) == (desc_of(found),)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_quantisation_to_an_8_bit_float_clips_to_its_range(run: Any, dtype: torch.dtype) -> None:
    x = torch.tensor([[0.3, -1.0, 60000.0, -60000.0] * 8]).half()
    code = 36 if dtype == torch.float8_e4m3fn else 35
    params = {"elewiseType": 6, "outTensorType": code, "quantParam": {"inputScale": 2.0}}
    found = run("ElewiseOperation", [x], params).outputs[0]
    limit = torch.finfo(dtype).max
    expected = (x.float() * 2).clamp(-limit, limit).to(dtype)
    assert torch.equal(found.float(), expected.float())


def test_hifloat8_is_unverifiable() -> None:
    params = {"elewiseType": 6, "outTensorType": 34}
    with pytest.raises(UnverifiableError, match="hifloat8"):
        golden_ops.get("ElewiseOperation").compute([torch.zeros(1, 32).half()], params, GOLDEN)


def test_experts_of_equal_value_may_change_places() -> None:
    op = golden_ops.get("FusedAddTopkDivOperation")
    assert op.accepts is not None
    x = torch.tensor([[0.5, 2.0, 0.5, -1.0]])
    inputs, params = [x, torch.zeros(4)], {"groupNum": 1, "groupTopk": 1, "k": 2, "n": 1}
    weights, picked = op.compute(inputs, params, GOLDEN).outputs
    assert picked.tolist() == [[1, 0]]
    assert op.accepts(inputs, (weights, torch.tensor([[1, 2]])), params)
    assert not op.accepts(inputs, (weights, torch.tensor([[1, 3]])), params)
    assert not op.accepts(inputs, (weights, torch.tensor([[0, 2]])), params)
    assert not op.accepts(inputs, (weights * 2, picked), params)


def test_elements_that_devices_leave_as_they_are_are_told() -> None:
    found = golden_ops.get("NonzeroOperation").compute([torch.tensor([[0, 3], [5, 0]])], {}, GOLDEN)
    assert found.undefined[0].tolist() == [False, False, True, True]
    ids, padding = torch.ones(2, 3, dtype=torch.int64), torch.tensor([[0], [1]], dtype=torch.int32)
    inputs = [ids, padding, torch.tensor([[4]]), torch.tensor([[3], [1]], dtype=torch.int32)]
    found = golden_ops.get("UnpadOperation").compute(inputs, {}, GOLDEN)
    assert found.undefined[0].tolist() == [False] * 4 + [True] * 2
    assert set(found.undefined) == {0, 2}


@pytest.mark.parametrize("compress", [False, True])
def test_rows_of_idle_sequences_are_undefined(compress: bool) -> None:
    query, cache = torch.randn(2, 4, 16).half(), torch.randn(1, 4, 1 if compress else 2, 16).half()
    params = {"headNum": 4, "kvHeadNum": 2, "compressType": int(compress)}
    lengths = torch.tensor([2, 0, 1, 3] if compress else [2, 0], dtype=torch.int32)
    tables = torch.zeros(len(lengths), 1, dtype=torch.int32)
    op = golden_ops.get("PagedAttentionOperation")
    result = op.compute([query, cache, cache, tables, lengths], params, GOLDEN)
    undefined = result.undefined[0].expand(2, 4, 16)[..., 0]
    # rows behind those without keys move up, with compression those of single heads
    last = [False, False, True, True] if compress else [True] * 4
    expected = [[False] * 4, last]
    assert undefined.tolist() == expected
    assert (result.outputs[0][undefined] == 0).all()
    lengths[1] = 2
    busy = op.compute([query, cache, cache, tables, lengths], params, GOLDEN)
    assert busy.undefined == {}
