"""MlaPreprocess: against the chain of single operators in float64, and NormRopeReshape."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import golden_ops
from ait_llm.opcheck.golden.layout import nd_to_nz, nz_to_nd

NAME = "MlaPreprocessOperation"
TOKENS, HIDDEN, HEADS, LATENT, ROPE, QUERY, PLAIN = 3, 64, 2, 32, 16, 32, 32
WIDTH = LATENT + ROPE + QUERY
SLOTS = torch.tensor([5, -1, 17], dtype=torch.int32)
EPSILON = 1e-3


def half(*shape: int) -> Tensor:
    return torch.randn(*shape).half()


def bits(scale: Tensor) -> Tensor:
    return scale.view(torch.int32).to(torch.int64)


def inputs_of(mode: int, quant: int, *, float_weights: bool = False) -> list[Tensor]:
    empty = torch.empty(0)
    down = torch.randint(-9, 9, (WIDTH, HIDDEN), dtype=torch.int8)
    up = torch.randint(-9, 9, (HEADS * (PLAIN + ROPE), QUERY), dtype=torch.int8)
    per_tensor = quant == 0 and not float_weights
    quantisation = [torch.tensor([0.05]).half(), torch.tensor([3], dtype=torch.int8)]
    scales = [torch.rand(WIDTH) / 500, torch.rand(HEADS * (PLAIN + ROPE)) / 500]
    biases = [torch.randint(-50, 50, (1, len(scale)), dtype=torch.int32) for scale in scales]
    if float_weights:
        down, up = (down.half() / 64, up.half() / 64)
    nz = mode in (2, 3)
    cache_type = torch.int8 if mode == 2 else torch.float16
    cache = torch.zeros(2, 16, 1, LATENT + (ROPE if mode == 0 else 0)).to(cache_type) + 7
    rope_cache = torch.zeros(2, 16, 1, ROPE).half() + 7
    return [
        half(TOKENS, HIDDEN),
        *(half(HIDDEN), half(HIDDEN)),
        *(quantisation if per_tensor else (empty, empty)),
        down,
        empty if float_weights else (bits(scales[0]) if quant == 0 else scales[0]),
        biases[0] if per_tensor else empty,
        *(half(QUERY), half(QUERY)),
        *(quantisation if per_tensor else (empty, empty)),
        up,
        empty if float_weights else (bits(scales[1]) if quant == 0 else scales[1]),
        biases[1] if per_tensor else empty,
        half(LATENT),
        *(half(TOKENS, ROPE), half(TOKENS, ROPE)),
        half(HEADS, PLAIN, LATENT) / 8,
        nd_to_nz(cache[:, :, 0]) if nz else cache,
        nd_to_nz(rope_cache[:, :, 0]) if nz else (empty if mode == 0 else rope_cache),
        SLOTS,
        torch.tensor([0.04]).half() if mode == 2 else empty,
        torch.tensor([20.0, 40.0]).half().reshape(1, 2, 1) if mode == 2 else empty,
    ]


def norm(x: Tensor, gamma: Tensor, beta: Tensor | None) -> Tensor:
    wide = x.double()
    y = wide / (wide.square().mean(-1, keepdim=True) + EPSILON).sqrt() * gamma.double()
    return y if beta is None else y + beta.double()


def quantised(y: Tensor, quant: int, scale: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
    if quant == 0:
        q = (y / scale.double() + offset.double()).half().double().clamp(-128, 127).round()
        return q, torch.ones(len(y), 1, dtype=torch.float64)
    y = y.half().double()
    step = y.abs().amax(-1, keepdim=True) / 127
    return (y / step).half().double().round(), step


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.double().chunk(2, -1)
    return x.double() * cos.double() + torch.cat([-second, first], -1) * sin.double()


def expected_of(inputs: list[Tensor], quant: int, float_weights: bool) -> dict[str, Tensor]:
    """The chain, with intermediate results rounded to float16 like those between kernels."""
    x, gamma0, beta0, scale0, offset0, down, deq0, bias0 = inputs[:8]
    gamma1, beta1, scale1, offset1, up, deq1, bias1, gamma2, cos, sin, wuk = inputs[8:19]

    def project(
        values: Tensor, weight: Tensor, deq: Tensor, bias: Tensor, scale: Tensor, offset: Tensor
    ) -> Tensor:
        if float_weights:
            return (values.half().double() @ weight.double().T).half()
        factor = deq.to(torch.int32).view(torch.float32) if deq.dtype == torch.int64 else deq
        integers, step = quantised(values, quant, scale, offset)
        product = integers @ weight.double().T + (bias.double() if bias.numel() else 0.0)
        return (product * factor.double() * step).half()

    first = x.double() if float_weights else norm(x, gamma0, beta0)
    projected = project(first, down, deq0, bias0, scale0, offset0)
    latent, key, query = projected.split([LATENT, ROPE, QUERY], dim=1)
    heads = project(norm(query, gamma1, beta1), up, deq1, bias1, scale1, offset1)
    heads = heads.reshape(TOKENS, HEADS, PLAIN + ROPE)
    plain = torch.stack(
        [heads[:, h, :PLAIN].double() @ wuk[h].double() for h in range(HEADS)], dim=1
    )
    turned = torch.stack([rotated(heads[:, h, PLAIN:], cos, sin) for h in range(HEADS)], dim=1)
    return {
        "plain": plain,
        "turned": turned,
        "latent": norm(latent, gamma2, None),
        "key": rotated(key, cos, sin),
    }


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=2**-8, atol=2**-8)


def slot(cache: Tensor, number: int) -> Tensor:
    return cache[number // 16, number % 16].flatten()


@pytest.mark.parametrize("quant", [0, 1])
def test_joined_cache_and_query(run: Any, quant: int) -> None:
    inputs = inputs_of(0, quant)
    params = {"epsilon": EPSILON, "quantMode": quant}
    result = run(NAME, inputs, params, infer=False)
    expected = expected_of(inputs, quant, False)
    query, cache = result.outputs
    close(query, torch.cat([expected["plain"], expected["turned"]], dim=-1))
    for token in (0, 2):
        wanted = torch.cat([expected["latent"][token], expected["key"][token]])
        close(slot(cache, int(SLOTS[token])), wanted)
    assert (slot(cache, 0) == 7).all()  # what no slot names stays
    assert torch.equal(result.updated_inputs[19], cache)


def test_blocked_weights_equal_plain_ones(run: Any) -> None:
    torch.manual_seed(3)
    plain = run(NAME, inputs_of(0, 0), {"epsilon": EPSILON}, infer=False)
    torch.manual_seed(3)
    # 64 and 80 rows are whole blocks; columns too.
    blocked = inputs_of(0, 0)
    for index in (5, 12):
        blocked[index] = nd_to_nz(blocked[index]).unsqueeze(0)
    found = run(NAME, blocked, {"epsilon": EPSILON}, infer=False)
    assert all(torch.equal(a, b) for a, b in zip(plain.outputs, found.outputs, strict=True))


def test_split_caches_with_float_weights_leave_the_first_norm_out(run: Any) -> None:
    inputs = inputs_of(1, 0, float_weights=True)
    params = {"epsilon": EPSILON, "cacheMode": 1}
    query, cache, turned, rope_cache = run(NAME, inputs, params, infer=False).outputs
    expected = expected_of(inputs, 0, True)
    close(query, expected["plain"])
    close(turned, expected["turned"])
    close(slot(cache, 17), expected["latent"][2])
    close(slot(rope_cache, 5), expected["key"][0])


@pytest.mark.parametrize("mode", [2, 3])
def test_blocked_caches(run: Any, mode: int) -> None:
    inputs = inputs_of(mode, 1)
    params = {"epsilon": EPSILON, "cacheMode": mode, "quantMode": 1}
    query, cache, turned, rope_cache = run(NAME, inputs, params, infer=False).outputs
    expected = expected_of(inputs, 1, False)
    latent = slot(nz_to_nd(cache), 17).double()
    close(turned, expected["turned"])
    close(slot(nz_to_nd(rope_cache), 17), expected["key"][2])
    if mode == 3:
        close(query, expected["plain"])
        close(latent, expected["latent"][2])
        return
    assert (query.dtype, cache.dtype) == (torch.int8, torch.int8)
    wanted = (expected["plain"] * inputs[23].double()).clamp(-128, 127)
    assert (query.double() - wanted).abs().max() <= 1.01
    wanted = (expected["latent"][2] / inputs[22].double()).clamp(-128, 127)
    assert (latent - wanted).abs().max() <= 1.01


def test_shapes_are_inferred_for_the_sizes_that_the_kernel_takes() -> None:
    half_desc = lambda *shape: TensorDesc(DType.FLOAT16, shape)  # noqa: E731
    absent = half_desc(0)
    descs = [half_desc(4, 7168), half_desc(7168), *[absent] * 6, half_desc(1536), *[absent] * 6]
    descs += [half_desc(512), half_desc(4, 64), half_desc(4, 64), half_desc(8, 128, 512)]
    cache, rope = half_desc(9, 128, 1, 512), half_desc(9, 128, 1, 64)
    descs += [cache, rope, TensorDesc(DType.INT32, (4,)), absent, absent]
    infer = golden_ops.get(NAME).infer_shape
    assert infer(descs, {"cacheMode": 0}) == (half_desc(4, 8, 576), cache)
    split = (half_desc(4, 8, 512), cache, half_desc(4, 8, 64), rope)
    assert infer(descs, {"cacheMode": 1}) == split
    assert infer(descs, {"cacheMode": 2})[0] == TensorDesc(DType.INT8, (4, 8, 512))
    with pytest.raises(OperationError, match="the kernel takes 0 or 1"):
        infer(descs, {"quantMode": 3})


def test_norm_rope_reshape_writes_each_token_by_slot(run: Any) -> None:
    x, gamma = half(3, 2, 32), half(32)
    key, cos, sin = half(3, 16), half(3, 16), half(3, 16)
    cache = half(2, 16, 2, 48)
    result = run(
        "NormRopeReshapeOperation", [x, gamma, key, cos, sin, SLOTS, cache], {"epsilon": EPSILON}
    )
    found = result.outputs[0]
    normalised, turned = norm(x, gamma, None), rotated(key, cos, sin)
    for token in (0, 2):
        number = int(SLOTS[token])
        for head in range(2):
            wanted = torch.cat([normalised[token, head], turned[token]])
            entry = found[number // 16, number % 16, head]
            torch.testing.assert_close(entry.double(), wanted, rtol=2**-10, atol=1e-3)
    assert torch.equal(found[0, 4], cache[0, 4])
    assert torch.equal(result.updated_inputs[6], found)
