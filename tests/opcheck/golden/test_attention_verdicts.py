"""Where published references of attention and its caches disagree: the side that was chosen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ait_llm.opcheck.golden import GOLDEN, golden_ops

SELF, PAGED = "SelfAttentionOperation", "PagedAttentionOperation"


def outputs(op: str, inputs: list[Tensor], params: dict[str, Any]) -> list[Tensor]:
    return list(golden_ops.get(op).compute(inputs, params, GOLDEN).outputs)


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def definition(query: Tensor, key: Tensor, value: Tensor, scale: float, added: Any = 0.0) -> Tensor:
    groups = query.shape[1] // key.shape[1]
    keys, values = (x.repeat_interleave(groups, 1).double() for x in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query.double(), keys) * scale + added
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)


def packed(rows: int = 3, heads: int = 2, dtype: torch.dtype = torch.float16) -> list[Tensor]:
    return [torch.randn(rows, heads, 16).to(dtype) for _ in range(3)]


ENCODER = {"headNum": 2, "kvHeadNum": 2, "calcType": 3, "qkScale": 0.25}


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=2**-9, atol=2**-9)


def test_a_finite_mask_is_added_after_the_scale() -> None:
    query, key, value = packed()
    mask = torch.randn(3, 3).half()
    found = outputs(SELF, [query, key, value, mask, ints(3)], {**ENCODER, "maskType": 1})[0]
    close(found, definition(query, key, value, 0.25, mask.double()))
    scaled_mask = definition(query, key, value, 0.25, 0.25 * mask.double())
    assert (found.double() - scaled_mask).abs().max() > 0.01


@pytest.mark.parametrize("kernel", [0, 1])
def test_the_high_precision_kernel_takes_masks_of_ones(kernel: int) -> None:
    query, key, value = packed()
    mask = torch.ones(3, 3).triu(1).half()
    params = {**ENCODER, "maskType": 1, "kernelType": kernel}
    found = outputs(SELF, [query, key, value, mask, ints(3)], params)[0]
    close(found, definition(query, key, value, 0.25, mask.double() * (-3e38 if kernel else 1.0)))


def test_packed_attention_ignores_query_scale_and_clamp() -> None:
    query, key, value = packed()
    params = {**ENCODER, "qScale": 7.0, "clampType": 1, "clampMin": 0.0, "clampMax": 0.0}
    found = outputs(SELF, [query, key, value, ints(3)], params)[0]
    close(found, definition(query, key, value, 0.25))


def test_cached_keys_are_scaled_by_the_parameters_not_by_the_head_size() -> None:
    query, caches = torch.randn(1, 32).half(), torch.randn(2, 1, 1, 4, 32).half()
    params = {"headNum": 2, "kvHeadNum": 2, "calcType": 2, "kvcacheCfg": 1, "qkScale": 0.7}
    found = outputs(SELF, [query, *caches, ints(4), ints(1), ints(0)], params)[0]
    key, value = (cache[0, 0].reshape(4, 2, 16) for cache in caches)
    close(found.reshape(1, 2, 16), definition(query.reshape(1, 2, 16), key, value, 0.7))


def test_float16_operands_are_not_rounded_to_bfloat16() -> None:
    query, key, value = packed()
    found = outputs(SELF, [query, key, value, ints(3)], ENCODER)[0].double()
    exact = definition(query, key, value, 0.25)
    rounded = definition(*(x.bfloat16() for x in (query, key, value)), 0.25)
    assert (found - exact).abs().max() < (rounded - exact).abs().max() / 4


def test_run_status_switches_sequences_by_their_place() -> None:
    query, caches = torch.randn(3, 32).half(), torch.randn(2, 1, 3, 4, 32).half()
    params = {"headNum": 2, "kvHeadNum": 2, "calcType": 2, "kvcacheCfg": 1, "qkScale": 0.25}
    params["batchRunStatusEnable"] = True
    inputs = [query, *caches, ints(4, 4, 4), ints(1, 1, 1), ints(0), ints(1, 0, 1)]
    found = outputs(SELF, inputs, params)[0].reshape(3, 2, 16)
    assert (found[1] == 0).all()
    for number in (0, 2):
        key, value = (cache[0, number].reshape(4, 2, 16) for cache in caches)
        row = query[number : number + 1].reshape(1, 2, 16)
        close(found[number : number + 1], definition(row, key, value, 0.25))


def test_query_heads_share_keys_in_the_cached_form_too() -> None:
    query, fresh = torch.randn(2, 64).half(), [torch.randn(2, 32).half() for _ in range(2)]
    caches = torch.zeros(2, 1, 1, 4, 32).half()
    params = {"headNum": 4, "kvHeadNum": 2, "calcType": 1, "qkScale": 0.25}
    inputs = [query, *fresh, *caches, ints(2), ints(2), ints(0)]
    found = outputs(SELF, inputs, params)[0].reshape(2, 4, 16)
    key, value = (x.reshape(2, 2, 16) for x in fresh)
    close(found, definition(query.reshape(2, 4, 16), key, value, 0.25))


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_compressed_alibi_takes_its_sign_from_the_slopes(sign: float) -> None:
    query, key, value = packed()
    slopes = sign * torch.tensor([0.5, 0.25])
    distance = torch.arange(3).unsqueeze(1) - torch.arange(3)
    added = slopes.double().reshape(2, 1, 1) * distance
    added = added.masked_fill(distance < 0, float("-inf"))
    params = {**ENCODER, "maskType": 4, "isTriuMask": 1, "kernelType": 1}
    mask = torch.zeros(256, 256).half()
    found = outputs(SELF, [query, key, value, mask, ints(3), slopes], params)[0]
    close(found, definition(query, key, value, 0.25, added))


def test_lengths_of_compressed_heads_are_added_up() -> None:
    tokens, heads = torch.arange(1.0, 6.0).half().reshape(5, 1, 1).repeat(1, 1, 32), 1
    caches = [torch.zeros(2, 16, heads, 32).half() for _ in range(2)]
    wins, lengths = ints(2, 1), ints(2, 3)
    inputs = [tokens, tokens, *caches, ints(0, 16), wins, lengths]
    written = outputs("ReshapeAndCacheOperation", inputs, {"compressType": 1})[0]
    assert written[0, :2, 0, 0].tolist() == [1, 2]
    assert written[1, :2, 0, 0].tolist() == [5, 0]  # the last token of the second sequence
    assert lengths.tolist() == [2, 3]


def test_speculative_rows_of_paged_attention_follow_their_sequence() -> None:
    query, cache = torch.randn(3, 2, 16).half(), torch.randn(2, 4, 2, 16).half()
    mask = torch.zeros(3, 4).half()
    mask[0, 3] = -10000
    params = {"headNum": 2, "kvHeadNum": 2, "qkScale": 0.25, "calcType": 1, "maskType": 3}
    inputs = [query, cache, cache, ints(0, 1).reshape(2, 1), ints(4, 3), mask, ints(2, 1)]
    found = outputs(PAGED, inputs, params)[0]
    close(found[:2], definition(query[:2], cache[0], cache[0], 0.25, mask[:2].double()))
    close(found[2:], definition(query[2:], cache[1, :3], cache[1, :3], 0.25))


def test_compressed_heads_of_paged_attention_have_own_tables_and_lengths() -> None:
    query, cache = torch.randn(1, 4, 16).half(), torch.randn(2, 4, 1, 16).half()
    params = {"headNum": 4, "kvHeadNum": 2, "qkScale": 0.25, "compressType": 1}
    inputs = [query, cache, cache, ints(1, 0).reshape(2, 1), ints(2, 4)]
    found = outputs(PAGED, inputs, params)[0].reshape(2, 2, 16)
    for head, (block, length) in enumerate(((1, 2), (0, 4))):
        key = cache[block, :length]
        close(
            found[head : head + 1],
            definition(query.reshape(2, 2, 16)[head : head + 1], key, key, 0.25),
        )
