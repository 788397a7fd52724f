"""Small cases of attention from the vendor's own op tests; see :mod:`vendor.op_test_cases`."""

from __future__ import annotations

from typing import Any

import torch
from vendor.op_tests import Made, int32, quietly

from ait_llm.opcheck.selftest.recorded import Recorded

_HALVES = (torch.float16, torch.bfloat16)
_RING_HEADS = (128, 64)  # columns of a head that are plain, and rotated


def laser(op: str, script: Any) -> Made:
    test, tokens, none = script.TestLaserAttentionOperation(), 12, torch.empty(0)
    for heads, mask in ((2, none), (1, torch.ones(tokens, tokens).triu(1).bfloat16())):
        tensors = [torch.randn(1, each, tokens, 16).bfloat16() for each in (2, heads, heads)]
        inputs = [*tensors, none, none, none, mask, none, none, none]
        maxima, sums, _, attention = quietly(test.golden_calc, inputs)
        # the script's PRE_TOKENS are far more than there are
        params = {"headNum": 2, "preTokens": script.PRE_TOKENS, "inputLayout": "BNSD"}
        golden = [maxima, sums, torch.zeros_like(tensors[0]), attention]
        yield Recorded(op, f"op test, {heads} heads", params, inputs, golden)


def laser_gradient(op: str, script: Any) -> Made:
    test, tokens, none = script.TestLaserAttentionGrad(), 12, torch.empty(0)
    test.is_triangle, test.windowLen = 1, tokens
    query, key, value, gradient = (torch.randn(1, 2, tokens, 16).bfloat16() for _ in range(4))
    mask = torch.ones(tokens, tokens).triu(1).half()
    maxima, sums, _, forward = quietly(
        test.attention_ori, query, key, value, mask, script.scale_value, 1, tokens
    )
    sides, forward = [maxima.squeeze(3), sums.squeeze(3)], forward.bfloat16()
    given = [query, key, value, gradient, none, none, mask, *sides, forward]
    golden = list(quietly(test.golden_calc, given))
    # the library's operator has more inputs than its kernel, and an output more
    inputs = [query, key, value, gradient, none, none, none, mask, *sides, none, forward]
    params = {"headNum": 2, "preTokens": tokens, "inputLayout": "BNSD"}
    golden.append(torch.zeros_like(query))
    yield Recorded(op, "op test", params, [*inputs, *[none] * 3], golden)


def latent(op: str, script: Any) -> Made:
    test, heads = script.TestPagedAttentionMLA(), 4
    for dtype in _HALVES:
        quietly(test.calc_data, 2, heads, 1, 576, 512, 4, 4, 7, dtype, 0, dtype)
        halves = [test.q_split1, test.q_split2, test.key_cache_split1, test.key_cache_split2]
        inputs = [*halves, *(torch.tensor(each) for each in (test.block_tables, test.contex_lens))]
        params = {"headNum": heads, "qkScale": 576**-0.5, "kvHeadNum": 1, "cacheMode": 1}
        params |= {"maskType": 0}
        yield Recorded(op, f"op test, {dtype}", params, inputs, [test.true_out])


def razor(op: str, script: Any) -> Made:
    for dtype in _HALVES:
        test = script.TestRazorFusionAttention()
        sizes = {"tileQ": 2, "tileKv": 1, "razorLen": 150, "textQLen": 3, "textKvLen": 5}
        sizes |= {"preTokens": 128, "nextTokens": 128}
        rows = [2 * 150 + 3]
        keys = [150 + 5]
        quietly(
            test.set_data_params,
            **sizes,
            batch=1,
            max_seq=rows[0],
            q_seqlens=rows,
            kv_seqLen=keys,
            baseM=128,
            embeddim=16,
            data_type=dtype,
            mask_type=script.MASK_TYPE_RAZOR_FUSION,
            tor=0.1,
        )
        quietly(test.gen_out_tensor)
        params = {"headNum": 1, "kvHeadNum": 1, "qkScale": 0.1, **sizes}
        inputs = [test.q, test.k, test.v]
        yield Recorded(op, f"op test, {dtype}", params, inputs, [test.golden_out_true])


def relay(op: str, script: Any) -> Made:
    for dtype in _HALVES:
        test = script.TestFlashAttention()
        quietly(
            test.set_data_params,
            batch=3,
            heads=4,
            kv_head=2,
            embeddim=16,
            max_seq=12,
            kv_seqLen=[12, 11, 12],
            share_len=2,
            is_decoder=True,
            is_mask=False,
            data_type=dtype,
            mask_type=script.MASK_TYPE_NO_MASK,
            tor=0.25,
        )
        quietly(test.gen_out_tensor)
        counts = test.q_seqlen, test.kv_seqLen, test.share_index, test.share_seqlen
        caches = [test.q, test.k, test.v, test.kshare, test.vshare]
        inputs = [*caches, torch.empty(0), *(int32(tuple(each)) for each in counts)]
        params = {"headNum": 4, "kvHeadNum": 2, "qkScale": 0.25, "maskType": 0}
        golden = test.golden_out_true.reshape(test.q.shape)
        yield Recorded(op, f"op test, {dtype}", params, inputs, [golden])


def ring(op: str, script: Any) -> Made:
    for first in (True, False):
        test, heads, lengths = script.TestMLAPrefill(), 2, [9, 5]
        rows, dtype = sum(lengths), torch.float16
        old, old_lse = torch.rand(rows, heads, 128).to(dtype), torch.rand(rows, heads) * 3
        quietly(
            test.set_data_params,
            batch=2,
            heads=heads,
            kv_head=heads,
            embeddim=192,
            embeddimv=128,
            max_seq=max(lengths),
            kv_seqLen=lengths,
            data_type=dtype,
            mask_type=script.MASK_TYPE_NO_MASK,
            tor=0.07,
            no_cache=True,
            lse=old_lse,
            last_o=old,
            isring=int(not first),
        )
        wide = test.k[0]
        quietly(test.gen_out_tensor)
        query = test.q.reshape(rows, heads, 192).split(_RING_HEADS, -1)
        key = torch.cat([own[:count] for own, count in zip(wide, lengths, strict=True)])
        key = key.reshape(rows, heads, 192).split(_RING_HEADS, -1)
        value = test.v.reshape(rows, heads, 128)
        mask = torch.zeros(max(lengths), max(lengths), dtype=dtype)
        inputs = [each.contiguous() for each in (*query, *key)]
        inputs += [value, mask, int32((*lengths,)).repeat(2, 1)]
        golden = [test.golden_out_true]
        if first:
            golden.append(test.new_les)
        else:
            inputs += [old, old_lse.T.contiguous()]
            golden.append(test.new_lse_height)
        params = {"headNum": heads, "kvHeadNum": heads, "qkScale": 0.07, "maskType": 0}
        name = "first" if first else "merged"
        yield Recorded(op, f"op test, {name}", {**params, "calcType": int(first)}, inputs, golden)
