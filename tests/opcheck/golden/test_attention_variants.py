"""RelayAttention, RazorFusionAttention, LaserAttention and its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import GOLDEN, UnverifiableError, golden_ops
from ait_llm.opcheck.golden.razor_fusion_attention import read_razor, visible

Oracle = Callable[..., Tensor]
RELAY, RAZOR = "RelayAttentionOperation", "RazorFusionAttentionOperation"
LASER, GRAD = "LaserAttentionOperation", "LaserAttentionGradOperation"


def relay_inputs(flat: bool) -> list[Tensor]:
    """Three sequences, the second with a shared prefix, the third with nothing of its own."""
    heads, kv_heads, size = 4, 2, 16
    shape = (kv_heads * size,) if flat else (kv_heads, size)
    return [
        torch.randn(3, heads * size).half(),
        *(torch.randn(3, 8, *shape).half() for _ in range(2)),
        *(torch.randn(2, 8, *shape).half() for _ in range(2)),
        torch.empty(0),
        torch.tensor([1, 1, 1], dtype=torch.int32),
        torch.tensor([5, 9, 4], dtype=torch.int32),
        torch.tensor([-1, 1, 0], dtype=torch.int32),
        torch.tensor([4, 6], dtype=torch.int32),
    ]


@pytest.mark.parametrize("flat", [True, False])
def test_relay_attends_to_its_own_keys_and_the_shared_prefix(
    run: Any, assert_close: Any, attention: Oracle, flat: bool
) -> None:
    inputs = relay_inputs(flat)
    params = {"headNum": 4, "kvHeadNum": 2, "qkScale": 0.3}
    found = run(RELAY, inputs, params).outputs[0].reshape(3, 4, 16)
    query, key, value, shared_key, shared_value = inputs[:5]
    query = query.reshape(3, 4, 16)
    keys, values = key.reshape(3, 8, 2, 16), value.reshape(3, 8, 2, 16)
    assert_close(found[:1], attention(query[:1], keys[0, :5], values[0, :5], scale=0.3))
    joined = [
        torch.cat([own[1, :3], shared.reshape(2, 8, 2, 16)[1, :6]])
        for own, shared in ((keys, shared_key), (values, shared_value))
    ]
    assert_close(found[1:2], attention(query[1:2], *joined, scale=0.3))
    assert (found[2] == 0).all()


def test_relay_with_key_lists_is_unverifiable() -> None:
    inputs: list[Any] = relay_inputs(True)
    inputs[1] = None
    with pytest.raises(UnverifiableError, match="lists in host memory"):
        golden_ops.get(RELAY).compute(inputs, {"headNum": 4, "kvHeadNum": 2}, GOLDEN)


def razor_sees(row: int, key: int, params: dict[str, int], block: int) -> bool:
    """The band of a tile, from the block numbers of row and key."""
    length = params["razorLen"]
    if row >= length * params["tileQ"] or key >= length * params["tileKv"]:
        return True
    a, b = row % length // block, key % length // block
    before, after = params["preTokens"] // block, params["nextTokens"] // block
    return max(0, a - before + 1) <= b < min(a + after, math.ceil(length / block))


@pytest.mark.parametrize("three", [False, True])
def test_razor_shows_a_band_of_every_tile_and_all_text(
    run: Any, attention: Oracle, three: bool
) -> None:
    # 21 keys make blocks of 21 tokens: one per tile, and part of a second.
    params = {"razorLen": 8, "tileQ": 1, "tileKv": 2, "textQLen": 3, "textKvLen": 5}
    params |= {"preTokens": 21, "nextTokens": 21, "headNum": 1, "kvHeadNum": 1}
    shapes = [(22, 1, 16), (42, 1, 16), (42, 1, 16)]
    tensors = [torch.randn(*shape).half() for shape in shapes]
    given = tensors if three else [tensor.flatten(1) for tensor in tensors]
    found = run(RAZOR, given, {**params, "qkScale": 0.25}).outputs[0].reshape(22, 1, 16)
    for number in range(2):
        rows, keys = slice(number * 11, number * 11 + 11), slice(number * 21, number * 21 + 21)
        expected = attention(
            tensors[0][rows],
            tensors[1][keys],
            tensors[2][keys],
            scale=0.25,
            sees=lambda row, key: razor_sees(row, key, params, 21),
        )
        torch.testing.assert_close(found[rows].double(), expected, rtol=2**-10, atol=1e-3)


@pytest.mark.parametrize(("before", "after"), [(128, 128), (256, 128), (128, 256), (384, 384)])
def test_razor_hides_the_blocks_outside_the_band(before: int, after: int) -> None:
    params = {"razorLen": 300, "tileQ": 2, "tileKv": 1, "textQLen": 4, "textKvLen": 6}
    params |= {"preTokens": before, "nextTokens": after}
    shown = visible(read_razor(params))
    for row in (0, 127, 128, 299, 300, 428, 599, 600, 603):
        for key in (0, 127, 128, 255, 256, 299, 300, 305):
            assert bool(shown[row, key]) == razor_sees(row, key, params, 128)


def laser_case(joined: bool) -> tuple[list[Tensor | None], dict[str, Any]]:
    sizes = (192, 256, 128) if joined else (24, 32, 16)
    query = torch.randn(2, 4, 6, sizes[0]).bfloat16()
    key = torch.zeros(2, 2, 6, sizes[1]).bfloat16()
    key[..., : sizes[0]] = torch.randn(2, 2, 6, sizes[0])
    value = torch.randn(2, 2, 6, sizes[2]).bfloat16()
    tensors = [query, key, value]
    if joined:
        tensors = [tensor.permute(2, 0, 1, 3).flatten(2).contiguous() for tensor in tensors]
    mask = torch.triu(torch.ones(6, 6), 1).bfloat16()
    layout = "SBH" if joined else "BNSD"
    params = {"headNum": 4, "inputLayout": layout, "scaleValue": 0.1, "preTokens": 3}
    return [*tensors, None, None, None, mask, None, None, None], params


def separate(tensor: Tensor, joined: bool, heads: int) -> Tensor:
    if not joined:
        return tensor
    length, batch, width = tensor.shape
    return tensor.reshape(length, batch, heads, width // heads).permute(1, 2, 0, 3)


@pytest.mark.parametrize("joined", [False, True])
def test_laser_attention_with_maxima_and_sums(run: Any, attention: Oracle, joined: bool) -> None:
    inputs, params = laser_case(joined)
    result = run(LASER, inputs, params, infer=False)
    maxima, sums, _, found = result.outputs
    assert set(result.undefined) == {2}
    query, key, value = (
        separate(tensor, joined, heads)  # type: ignore[arg-type]
        for tensor, heads in zip(inputs[:3], (4, 2, 2), strict=True)
    )
    found = separate(found, joined, 4)
    for batch in range(2):
        rows, keys, values = (x[batch].transpose(0, 1) for x in (query, key, value))
        keys = keys[..., : rows.shape[2]]
        expected = attention(
            rows, keys, values, scale=0.1, sees=lambda row, column: row - 3 <= column <= row
        )
        torch.testing.assert_close(
            found[batch].transpose(0, 1).double(), expected, rtol=2**-8, atol=1e-3
        )
        scores = rows[5, 3].double() @ keys[2:6, 1].double().T * 0.1
        assert abs(float(maxima[batch, 3, 5]) - float(scores.max())) < 1e-6
        assert abs(float(sums[batch, 3, 5]) - float(torch.exp(scores - scores.max()).sum())) < 1e-6


def test_laser_shapes_in_both_layouts() -> None:
    infer = golden_ops.get(LASER).infer_shape
    bf16 = lambda *shape: TensorDesc(DType.BFLOAT16, shape)  # noqa: E731
    real = lambda *shape: TensorDesc(DType.FLOAT32, shape)  # noqa: E731
    absent = [bf16(0)] * 7
    params = {"headNum": 4, "inputLayout": "SBH"}
    joined = [bf16(256, 1, 768), bf16(256, 1, 512), bf16(256, 1, 256), *absent]
    rows = real(1, 4, 256)
    assert infer(joined, params) == (rows, rows, joined[0], bf16(256, 1, 512))
    split = [bf16(1, 4, 256, 192), bf16(1, 2, 256, 256), bf16(1, 2, 256, 128), *absent]
    params["inputLayout"] = "BNSD"
    assert infer(split, params) == (rows, rows, split[0], bf16(1, 4, 256, 128))
    with pytest.raises(OperationError, match="it takes BNSD or SBH"):
        infer(split, {"inputLayout": "BSH"})


def test_laser_gradient_equals_autograd(run: Any) -> None:
    inputs, params = laser_case(False)
    query, key, value = (t.double().requires_grad_() for t in inputs[:3])  # type: ignore[union-attr]
    position = torch.arange(6)
    hidden = (position > position.unsqueeze(1)) | (position.unsqueeze(1) - position > 3)
    scores = query @ key.repeat_interleave(2, 1)[..., :24].transpose(-1, -2) * 0.1
    chances = scores.masked_fill(hidden, -math.inf).softmax(-1)
    forward = chances @ value.repeat_interleave(2, 1)
    gradient = torch.randn(forward.shape).bfloat16()
    forward.backward(gradient.double())
    maxima, sums, _, attention_out = golden_ops.get(LASER).compute(inputs, params, GOLDEN).outputs
    given = [*inputs[:3], gradient, None, None, None, inputs[6].half()]  # type: ignore[union-attr]
    given += [maxima, sums, None, attention_out, None, None, None]
    result = run(GRAD, given, params, infer=False)
    assert set(result.undefined) == {3}
    for found, tensor in zip(result.outputs, (query, key, value), strict=False):
        assert tensor.grad is not None
        # The forward result comes rounded to bfloat16.
        torch.testing.assert_close(found.double(), tensor.grad, rtol=2**-6, atol=2**-7)
    assert (result.outputs[1][..., 24:] == 0).all()
