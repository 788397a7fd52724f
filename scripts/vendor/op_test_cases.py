"""Small cases of operators that the vendor's tables of cases leave out, from its own op tests.

Each function gives one script's code small sizes, and takes the numbers that it makes. Where the
script has a result in 16 bits and one in float32 that it calls true, the latter is taken.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from vendor.op_test_attention import laser, laser_gradient, latent, razor, relay, ring
from vendor.op_tests import Calls, Made, int32, load, quietly

from ait_llm.opcheck.selftest.recorded import Recorded


def op_test_cases(checkout: Path) -> Iterator[Recorded]:
    """All of them, the same every time."""
    for operator, (script, make) in _CASES.items():
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002 the scripts draw from it
        torch.manual_seed(1)
        yield from make(f"{operator}Operation", load(checkout, script))


def _exchange(op: str, script: Any) -> Made:
    sent = [[3, 5], [7, 2]]
    shape, calls = [2, 6], Calls()
    starts = [[0, 3], [0, 7]]
    received = [[sent[source][rank] for source in range(2)] for rank in range(2)]
    placed = [[0, own[0]] for own in received]
    data = np.random.uniform(-9, 9, (2, *shape)).tolist()  # noqa: NPY002
    for dtype in (torch.float16, torch.int32):
        ranks, goldens = [], []

        def keep(out: Tensor, golden: Tensor, dtype: Any, kept: list[Tensor] = goldens) -> bool:
            kept.append(golden.clone())
            return True

        script.golden_compare = keep
        for rank in range(2):
            with calls.taken():
                quietly(
                    script.main_worker, rank, 2, [dtype], 1, sent, starts, received, placed, data
                )
            ranks.append(calls.inputs)
        params = {**json.loads(calls.params), "rank": 1}
        yield Recorded(op, f"op test, {dtype}", params, ranks[1], goldens[1:], ranks)


def _receive(op: str, script: Any) -> Made:
    calls, goldens = Calls(), []
    script.golden_compare = lambda out, golden: goldens.append(golden.clone()) or True
    with calls.taken():
        quietly(script.main_worker, 2, 4, [torch.bfloat16], [], 1)
    # the script keeps what rank 0 sends as what rank 2 must get
    holder = torch.zeros_like(goldens[0])
    ranks = [[each] for each in (goldens[0], holder, holder, holder)]
    params = {"rank": 2, "rankSize": 4, "rankRoot": 0, "srcRank": 0}
    yield Recorded(op, "op test", params, [holder], goldens, ranks)


def _feed_forward(op: str, script: Any, *, grouped: bool) -> Made:
    tile, rows, columns, inner = 256, 12, 256, 32
    ends = ([5, 9],) if grouped else ()
    made = quietly(script.generate_data_safe, *ends, rows, columns, inner)
    x, up, up_scale, row_scale, *middle, down, down_scale, _, golden = made
    permuted = [script.permute_weight(each, tile).contiguous() for each in (up, up_scale)]
    inputs = [x, *permuted, row_scale, *middle, down.mT.contiguous(), down_scale]
    params = {"outputType": 0, "weightUpPermuteType": 0, "transposeWeightUp": False}
    params |= {"transposeWeightDown": True} | ({"groupListType": 0} if grouped else {})
    yield Recorded(op, "op test", params, inputs, [golden])


def _cache(op: str, script: Any) -> Made:
    made = [torch.from_numpy(each) for each in quietly(script.generate_data, 2, 1, 2, 12, 16)]
    yield Recorded(op, "op test", {}, made[:5], made[5:])


def _kept_windows(op: str, script: Any) -> Made:
    test = script.TestReshapeAndCache()
    test.num_heads, test.head_size, test.block_size, test.num_blocks = 2, 16, 8, 5
    test.seqLen, test.wins, test.idxOffset = map(int32, ((9, 7), (4, 3, 2, 3), (2, -1, 0, 4)))
    test.slot_mapping = int32((0, 8, 20, 28))
    test.key, test.value = (torch.randn(16, 2, 16).half() for _ in range(2))
    test.key_expect = test.value_expect = torch.zeros(5, 8, 1, 16).half()
    given = [test.key, test.value, test.key_expect, test.value_expect, test.slot_mapping.clone()]
    inputs = [*given, test.wins, test.seqLen, test.idxOffset]
    golden = quietly(test.golden_calc, [])  # it counts the slots up
    yield Recorded(op, "op test", {}, inputs, [each.half() for each in golden])


def _preprocess(op: str, script: Any) -> Made:
    """Its sizes are fixed, so what goes in repeats itself: it takes little room when packed.

    The script quantises from float32, kernels from float16. So both norms get numbers of one
    size, which puts what is quantised far from where the two would round apart.
    """
    test, rows, heads = script.TestMLAPrepross(), 2, 1

    def few(*shape: int, period: int = 8) -> Tensor:
        """Quarters from -1 to 1; of a matrix the first ``period`` rows, again and again."""
        rows = min(shape[0], period) if shape[1:] else shape[0]
        values = torch.randint(-4, 5, (rows, *shape[1:])) / 4
        return values[torch.arange(shape[0]) % rows]

    def scales(count: int) -> Tensor:
        whole = (torch.rand(count) * 1e-3 + 1e-4).view(torch.int32)
        return (whole >> 13 << 13).view(torch.float32)  # the bits that the matrix unit takes

    test.input_token_num, test.rms_hidden_size, test.rope_hidden_size = rows, 512, 64
    test.headNum, test.epsilon, test.dtype = heads, 1e-6, torch.float16
    half = {"input1": (rows, 7168), "gamma1": (7168,), "beta1": (7168,), "gamma2": (1536,)}
    half |= {"beta2": (1536,), "gamma3": (512,), "sin1": (rows, 64), "cos1": (rows, 64)}
    for name, shape in half.items():
        setattr(test, name, few(*shape).half())
    test.input1 = torch.where(test.input1 > 0, 1, -1).half() * torch.tensor([[1], [2]])
    test.wuk = few(heads * 128, 512).reshape(heads, 128, 512).half()
    test.sin2, test.cos2 = test.sin1, test.cos1
    for number, (name, out, inner) in enumerate((("wdqkv", 2112, 7168), ("wuq", 192, 1536)), 1):
        setattr(test, name, (few(out, inner) * 8).to(torch.int8))
        setattr(test, f"deScale{number}", scales(out))
        setattr(test, f"bias{number}", torch.randint(-99, 99, (1, out), dtype=torch.int32))
        setattr(test, f"quantScale{number}", torch.tensor([0.0625]).half())
        setattr(test, f"quantOffset{number}", torch.tensor([3 * number], dtype=torch.int8))
    signs = torch.where(torch.arange(1536) % 5 < 2, 1, -1)
    test.wdqkv[576:] = test.wdqkv[576] * signs[:, None]
    test.deScale1[576:], test.bias1[:, 576:] = test.deScale1[576].clone(), 0
    cache = few(128, 576, period=2).reshape(1, 128, 1, 576).half()
    test.keyCache, test.slotMapping = cache.clone(), int32((77, 5))
    quietly(test.calc_vec_mm_data, rows, heads, torch.float16)
    none = torch.empty(0)
    names = "input1 gamma1 beta1 quantScale1 quantOffset1 wdqkv deScale1 bias1 gamma2 beta2"
    names += " quantScale2 quantOffset2 wuq deScale2 bias2 gamma3 cos1 sin1 wuk"
    given = [getattr(test, name) for name in names.split()]
    for mode in (0, 1):
        caches, golden = [cache, none], [test.qOut, test.keyOut1]
        if mode:  # as the script takes them apart
            golden = [each for one in golden for each in one.split((512, 64), -1)]
            golden = [golden[0], golden[2], golden[1], golden[3]]
            caches = list(cache.split((512, 64), -1))
        inputs = [*given, *caches, test.slotMapping, none, none]
        params = {"cacheMode": mode, "epsilon": 1e-6}
        yield Recorded(op, f"op test, cache mode {mode}", params, inputs, golden)


_CASES: dict[str, tuple[str, Callable[[str, Any], Made]]] = {
    "AllToAllVV2": ("all_to_allvv2/test_all_to_allvv2_operation.py", _exchange),
    "GmmDeqSwigluQuantGmmDeq": (
        "gmm_deq_swiglu_quant_gmm_deq/test_gmm_deq_swiglu_quant_gmm_deq.py",
        partial(_feed_forward, grouped=True),
    ),
    "KvCache": ("kv_cache/test_kv_cache_operation.py", _cache),
    "LaserAttention": ("laser_attention/test_laser_attention.py", laser),
    "LaserAttentionGrad": ("mix/test_laser_attention_grad.py", laser_gradient),
    "MlaPreprocess": ("mla_preprocess/test_mla_preprocess.py", _preprocess),
    "MmDeqSwigluQuantMmDeq": (
        "mm_deq_swiglu_quant_mm_deq/test_mm_deq_swiglu_quant_mm_deq.py",
        partial(_feed_forward, grouped=False),
    ),
    "MultiLatentAttention": (
        "multi_latent_attention/test_multi_latent_attention.py",
        latent,
    ),
    "RazorFusionAttention": ("razor_fusion_attention/test_razor_fusion_attention.py", razor),
    "Recv": ("send/test_send_operation.py", _receive),
    "RelayAttention": ("relay_attention/test_relay_attention_operation_golden.py", relay),
    "ReshapeAndCacheOmni": ("mix/test_reshape_and_cache_omni_compress.py", _kept_windows),
    "RingMLA": ("ring_mla/test_ring_mla.py", ring),
}
