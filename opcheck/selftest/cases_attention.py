"""Attention, rotary embedding and what fills the caches of attention."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ait_llm.opcheck.golden import DEVICE, golden_ops
from ait_llm.opcheck.golden.layout import nd_to_nz
from ait_llm.opcheck.golden.soc import SOC
from ait_llm.opcheck.selftest.cases import Built, Draw, case

_HEADS, _KV_HEADS, _SIZE = 8, 4, 64
_BLOCK, _BLOCKS = 128, 32
_SCALE = 1 / math.sqrt(_SIZE)
_PARAMS = {"headNum": _HEADS, "kvHeadNum": _KV_HEADS, "qkScale": _SCALE}


def _int32(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def _causal(draw: Draw, size: int) -> Tensor:
    if draw.dtype == torch.bfloat16:  # ones, multiplied by -3e38
        return torch.ones(size, size).triu(1).to(draw.dtype)
    return torch.full((size, size), -10000.0).triu(1).to(draw.dtype)


def _packed(draw: Draw, tokens: int) -> list[Tensor]:
    return [draw.floats(tokens, heads, _SIZE) for heads in (_HEADS, _KV_HEADS, _KV_HEADS)]


@case("SelfAttentionOperation", "packed")
def packed(draw: Draw) -> Built:
    inputs = [*_packed(draw, 352), _int32(224, 128)]
    return Built(inputs, {**_PARAMS, "calcType": 3}, heads=_HEADS)


@case("SelfAttentionOperation", "packed, causal mask")
def packed_causal(draw: Draw) -> Built:
    inputs = [*_packed(draw, 352), _causal(draw, 224), _int32(224, 128)]
    return Built(inputs, {**_PARAMS, "calcType": 3, "maskType": 1}, mask=3, heads=_HEADS)


@case("SelfAttentionOperation", "packed, 48 tokens")
def packed_short(draw: Draw) -> Built:
    inputs = [*_packed(draw, 48), _int32(48)]
    return Built(inputs, {**_PARAMS, "calcType": 3}, heads=_HEADS)


def _on(built: Built, soc: str, kernel: int) -> Built:
    """The same by a kernel of a chip."""
    return replace(built, params={**built.params, SOC: soc, "kernelType": kernel})


@case("SelfAttentionOperation", "packed, one core", dtypes=(torch.float16,))
def packed_one_core(draw: Draw) -> Built:
    inputs = [*_packed(draw, 640), _int32(640)]
    return _on(Built(inputs, {**_PARAMS, "calcType": 3}, heads=_HEADS), "Ascend310P", 0)


@case("SelfAttentionOperation", "packed, M8V2", dtypes=(torch.float16,))
def packed_eighth_power(draw: Draw) -> Built:
    return _on(packed(draw), "Ascend310P", 2)


@case("SelfAttentionOperation", "packed, precise", dtypes=(torch.float16,))
def packed_precise(draw: Draw) -> Built:
    return _on(packed(draw), "Ascend910B", 1)


def _caches(draw: Draw) -> tuple[Tensor, Tensor]:
    shape = (_BLOCKS, _BLOCK, _KV_HEADS, _SIZE)
    return draw.floats(*shape), draw.floats(*shape)


@case("PagedAttentionOperation", "plain")
def paged(draw: Draw) -> Built:
    lengths = (700, 331, 1024, 517)
    table = draw.order(_BLOCKS).reshape(4, 8)
    inputs = [draw.floats(4, _HEADS, _SIZE), *_caches(draw), table, _int32(*lengths)]
    return Built(inputs, _PARAMS, lengths=4, room=8 * _BLOCK, heads=_HEADS)


@case("PagedAttentionOperation", "mask")
def paged_mask(draw: Draw) -> Built:
    lengths = (700, 331, 990, 517)
    table = draw.order(_BLOCKS).reshape(4, 8)
    mask = torch.zeros(4, 1, 8 * _BLOCK)
    mask[:, :, :90] = -10000.0
    inputs = [draw.floats(4, _HEADS, _SIZE), *_caches(draw), table, _int32(*lengths)]
    return Built([*inputs, mask.to(draw.dtype)], {**_PARAMS, "maskType": 1}, mask=5, heads=_HEADS)


@case("PagedAttentionOperation", "int8, online", dtypes=(torch.float16,))
def paged_int8(draw: Draw) -> Built:
    blocks, size = 24, (128, _KV_HEADS, _SIZE)
    caches = [draw.integers(-100, 101, blocks, *size, dtype=torch.int8) for _ in range(2)]
    query = draw.integers(-100, 101, 2, _HEADS, _SIZE, dtype=torch.int8)
    scales = [torch.full((_HEADS,), 1 / 3000), torch.full((_HEADS,), 1 / 40)]
    params = {**_PARAMS, "quantType": 3, "outDataType": 1}
    inputs = [query, *caches, draw.order(blocks).reshape(2, 12), _int32(1400, 700), *scales]
    return Built(inputs, params, heads=_HEADS, lengths=4, room=12 * 128)


@case("MultiLatentAttentionOperation", "decode")
def latent(draw: Draw) -> Built:
    params = {
        "cacheMode": 1, "calcType": 0, "headNum": 8, "kvHeadNum": 1, "maskType": 0,
        "maskUseStatusType": 0, "qkScale": 1 / 24, "windowSize": 0,
    }  # fmt: skip
    inputs = [
        draw.floats(4, 8, 512),
        draw.floats(4, 8, 64),
        draw.floats(12, 128, 1, 512),
        draw.floats(12, 128, 1, 64),
        draw.order(12).reshape(4, 3),
        _int32(300, 211, 380, 129),
    ]
    return Built(inputs, params, lengths=5, room=384, heads=8)


_LATENT_PARAMS = {"cacheMode": 1, "headNum": 8, "kvHeadNum": 1, "qkScale": 1 / 24}


def _latent_inputs(draw: Draw, rows: int, *lengths: int) -> list[Tensor]:
    blocks = 3 * len(lengths)
    return [
        draw.floats(rows, 8, 512),
        draw.floats(rows, 8, 64),
        draw.floats(blocks, 128, 1, 512),
        draw.floats(blocks, 128, 1, 64),
        draw.order(blocks).reshape(len(lengths), 3),
        _int32(*lengths),
    ]


@case("MultiLatentAttentionOperation", "several rows, causal")
def latent_rows(draw: Draw) -> Built:
    inputs = [*_latent_inputs(draw, 5, 300, 211), _int32(2, 3)]
    return Built(inputs, {**_LATENT_PARAMS, "calcType": 1, "maskType": 3}, heads=8)


@case("MultiLatentAttentionOperation", "several rows, mask")
def latent_mask(draw: Draw) -> Built:
    mask = torch.zeros(5, 300)
    mask[:, :70] = 1 if draw.dtype == torch.bfloat16 else -10000
    inputs = [*_latent_inputs(draw, 5, 300, 211), mask.to(draw.dtype), _int32(2, 3)]
    return Built(inputs, {**_LATENT_PARAMS, "calcType": 1, "maskType": 1}, mask=6, heads=8)


@case("MultiLatentAttentionOperation", "ring")
def latent_ring(draw: Draw) -> Built:
    inputs = _latent_inputs(draw, 3, 300, 211, 380)
    return Built(inputs, {**_LATENT_PARAMS, "calcType": 2}, lengths=5, room=384, heads=8)


@case("MultiLatentAttentionOperation", "prefill")
def latent_prefill(draw: Draw) -> Built:
    sizes = (128, 64, 128, 64, 128)
    tensors = [draw.floats(288, 4, size) for size in sizes]
    counts = [_int32(160, 128), _int32(160, 128)]
    params = {"cacheMode": 1, "calcType": 4, "headNum": 4, "kvHeadNum": 4, "qkScale": 0.07}
    return Built([*tensors, *counts], {**params, "maskType": 3}, heads=4)


@case("MultiLatentAttentionOperation", "int8 cache")
def latent_int8(draw: Draw) -> Built:
    query = draw.integers(-128, 128, 3, 8, 512, dtype=torch.int8)
    latent = draw.integers(-128, 128, 9, 128, 512, dtype=torch.int8)
    scores = draw.around_one(8, dtype=torch.float32).abs() / 5400
    values = draw.around_one(8, dtype=torch.float32).abs() / 73
    inputs = [
        query,
        draw.floats(3, 8, 64),
        nd_to_nz(latent),
        nd_to_nz(draw.floats(9, 128, 64)),
        draw.order(9).reshape(3, 3),
        _int32(300, 211, 380),
        scores,
        values,
    ]
    params = {**_LATENT_PARAMS, "cacheMode": 2, "calcType": 0}
    return Built(inputs, params, lengths=5, room=384, heads=8)


@case("RopeOperation", "half")
def rope(draw: Draw) -> Built:
    angle = torch.arange(32)[:, None] * 10000.0 ** (-torch.arange(0, _SIZE, 2) / _SIZE)
    angle = torch.cat([angle, angle], 1)
    tables = [angle.cos().to(draw.dtype), angle.sin().to(draw.dtype)]
    states = [draw.floats(32, _HEADS * _SIZE), draw.floats(32, _KV_HEADS * _SIZE)]
    return Built([*states, *tables, _int32(32)], {"rotaryCoeff": 2}, heads=_HEADS)


@case("RopeQConcatOperation")
def rope_concat(draw: Draw) -> Built:
    angle = draw.floats(16, 64, dtype=torch.float32)
    tables = [angle.cos().to(draw.dtype), angle.sin().to(draw.dtype)]
    return Built([draw.floats(16, 128), *tables, draw.floats(16, 2, 512)], {})


@case("ReshapeAndCacheOperation")
def reshape_and_cache(draw: Draw) -> Built:
    new = [draw.floats(20, _KV_HEADS, _SIZE), draw.floats(20, _KV_HEADS, _SIZE)]
    caches = [draw.floats(6, 16, _KV_HEADS, _SIZE), draw.floats(6, 16, _KV_HEADS, _SIZE)]
    return Built([*new, *caches, draw.order(6 * 16, 20)], {})


@case("KvCacheOperation")
def kv_cache(draw: Draw) -> Built:
    inputs = [
        draw.floats(6, 32),
        _int32(0),
        draw.floats(1, 2, 16, 32),
        _int32(4, 9),
        _int32(4, 2),
    ]
    return Built(inputs, {})


@case("RopeGradOperation", dtypes=(torch.float16,))
def rope_gradient(draw: Draw) -> Built:
    angle = draw.floats(24, 128, dtype=torch.float32)
    tables = [angle.cos().to(draw.dtype), angle.sin().to(draw.dtype)]
    states = [draw.floats(40, 256), draw.floats(40, 128)]
    return Built([*states, *tables], {"c_qSeqLen": [24, 16]}, heads=2)


@case("NormRopeReshapeOperation")
def norm_rope_reshape(draw: Draw) -> Built:
    angle = draw.floats(20, 64, dtype=torch.float32)
    inputs = [
        draw.floats(20, 1, 512),
        draw.around_one(512),
        draw.floats(20, 64),
        angle.cos().to(draw.dtype),
        angle.sin().to(draw.dtype),
        draw.order(64, 20),
        draw.floats(4, 16, 1, 576),
    ]
    return Built(inputs, {"epsilon": 1e-5, "precisionMode": 0, "rotaryCoeff": 2})


@case("PagedCacheLoadOperation", dtypes=(torch.float16,))
def paged_cache_load(draw: Draw) -> Built:
    caches = [draw.floats(8, 16, 2, 32), draw.floats(8, 16, 2, 32)]
    lengths = _int32(20, 9)
    dense = [draw.floats(29, 2, 32), draw.floats(29, 2, 32)]
    return Built([*caches, draw.order(8, 4).reshape(2, 2), lengths, *dense], {})


@case("RingMLAOperation")
def ring(draw: Draw) -> Built:
    mask = torch.triu(torch.ones(512, 512), 1) * -10000
    inputs = [
        draw.floats(160, 4, 128),
        draw.floats(160, 4, 64),
        draw.floats(160, 4, 128),
        draw.floats(160, 4, 64),
        draw.floats(160, 4, 128),
        mask.to(draw.dtype),
        torch.tensor([[160], [160]], dtype=torch.int32),
    ]
    params = {"headNum": 4, "kvHeadNum": 4, "qkScale": 0.07, "maskType": 1, "calcType": 1}
    return Built(inputs, params, heads=4)


@case("RelayAttentionOperation")
def relay(draw: Draw) -> Built:
    caches = [draw.floats(4, 256, _KV_HEADS, _SIZE) for _ in range(2)]
    shared = [draw.floats(2, 256, _KV_HEADS, _SIZE) for _ in range(2)]
    lengths = [_int32(1, 1, 1, 1), _int32(200, 250, 230, 256), _int32(-1, 1, 0, 1)]
    query = draw.floats(4, _HEADS * _SIZE)
    inputs = [query, *caches, *shared, torch.empty(0), *lengths, _int32(180, 128)]
    return Built(inputs, _PARAMS, heads=_HEADS)


@case("RazorFusionAttentionOperation")
def razor(draw: Draw) -> Built:
    params = {
        "razorLen": 200, "tileQ": 1, "tileKv": 1, "textQLen": 10, "textKvLen": 20,
        "preTokens": 128, "nextTokens": 128, "headNum": 2, "kvHeadNum": 2, "qkScale": _SCALE,
    }  # fmt: skip
    rows, keys = 210, 220
    inputs = [draw.floats(rows, 2, _SIZE), draw.floats(keys, 2, _SIZE), draw.floats(keys, 2, _SIZE)]
    return Built(inputs, params, heads=2)


@case("LaserAttentionOperation", dtypes=(torch.bfloat16,))
def laser(draw: Draw) -> Built:
    tensors = [draw.floats(1, heads, 192, _SIZE) for heads in (4, 2, 2)]
    mask = torch.triu(torch.ones(192, 192), 1).to(draw.dtype)
    params = {"headNum": 4, "inputLayout": "BNSD", "scaleValue": _SCALE, "preTokens": 192}
    return Built([*tensors, None, None, None, mask, None, None, None], params)


@case("LaserAttentionGradOperation", dtypes=(torch.bfloat16,))
def laser_gradient(draw: Draw) -> Built:
    forward = laser(draw)
    result = forward.compute(golden_ops.get("LaserAttentionOperation"), DEVICE).outputs
    maxima, sums, _, attention = result
    tensors, mask = list(forward.inputs[:3]), forward.inputs[6]
    inputs = [*tensors, draw.floats(*attention.shape), None, None, None, mask, maxima, sums]
    return Built([*inputs, None, attention, None, None, None], forward.params)
