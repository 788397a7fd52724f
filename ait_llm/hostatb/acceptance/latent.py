"""Attention over latent keys, in rings, over shared prefixes and with razor masks."""

from __future__ import annotations

from ait_llm.core import TensorDesc
from ait_llm.hostatb.acceptance.base import (
    Acceptance,
    Descs,
    Params,
    accept,
    counted_as,
    require_input,
    require_output,
    require_param,
)
from ait_llm.hostatb.acceptance.matrix import require_rank, require_ranks, require_shape
from ait_llm.hostatb.acceptance.table import has_section
from ait_llm.hostatb.params.attention import MultiLatentAttentionParam
from ait_llm.opcheck.golden.base import Refusal

_Mask = MultiLatentAttentionParam.MaskType
_Calc = MultiLatentAttentionParam.CalcType
_Cache = MultiLatentAttentionParam.CacheMode
_SPEC = (_Calc.CALC_TYPE_SPEC, _Calc.CALC_TYPE_SPEC_AND_RING)
_RING = (_Calc.CALC_TYPE_RING, _Calc.CALC_TYPE_SPEC_AND_RING)
_PREFILL = _Calc.CALC_TYPE_PREFILL
_BLOCK, _MOST_BATCH, _LATENT, _ROTATED, _HEAD = 128, 8192, 512, 64, 128


def _has_mask(params: Params) -> bool:
    return params["maskType"] not in (_Mask.UNDEFINED, _Mask.MASK_TYPE_CAUSAL_MASK)


def _has_status(params: Params) -> bool:
    return bool(params["maskUseStatusType"] == 1)


def _latent(params: Params) -> None:
    scale = params["qkScale"]
    require_param(0 < scale <= 1, "qkScale", scale, "0 < qkScale <= 1")
    (_latent_prefill if params["calcType"] == _PREFILL else _latent_decode)(params)
    if params["maskType"] == _Mask.MASK_TYPE_SWA_NORM:
        require_param(params["windowSize"] > 0, "windowSize", params["windowSize"], "> 0")


def _latent_decode(params: Params) -> None:
    heads, kv_heads, mask = params["headNum"], params["kvHeadNum"], params["maskType"]
    cache, calc = params["cacheMode"], params["calcType"]
    require_param(heads in (8, 16, 32, 64, 128), "headNum", heads, "8, 16, 32, 64, 128")
    require_param(kv_heads == 1, "kvHeadNum", kv_heads, "1")
    require_param(cache != _Cache.KVCACHE, "cacheMode", int(cache), "1, 2, 3")
    no_mask = mask == _Mask.UNDEFINED
    if calc not in _SPEC:
        require_param(no_mask, "maskType", int(mask), f"0 (calcType {int(calc)})")
    else:
        require_param(mask != _Mask.MASK_TYPE_SWA_NORM, "maskType", int(mask), "0 to 3")
    if cache == _Cache.INT8_NZCACHE and calc in _RING:
        require_param(no_mask, "maskType", int(mask), "0 (cacheMode 2)")
    status = int(params["maskUseStatusType"])
    both = calc == _Calc.CALC_TYPE_SPEC_AND_RING
    fits = status == 0 or (status == 1 and both)
    require_param(fits, "maskUseStatusType", status, "0, 1 (calcType 3)")


def _latent_prefill(params: Params) -> None:
    heads, kv_heads, mask = params["headNum"], params["kvHeadNum"], params["maskType"]
    require_param(1 <= heads <= 128, "headNum", heads, "1 to 128")
    grouped = mask == _Mask.MASK_TYPE_CAUSAL_MASK or heads == kv_heads
    require_param(grouped, "kvHeadNum", kv_heads, f"{heads}")
    require_param(mask != _Mask.MASK_TYPE_SPEC, "maskType", int(mask), "0, 2, 3, 4")
    cache = params["cacheMode"]
    require_param(cache == _Cache.KROPE_CTKV, "cacheMode", int(cache), "1")


def _latent_table(params: Params) -> str:
    """Some combinations have no section: their types are not looked at."""
    calc, cache = params["calcType"], params["cacheMode"]
    name = "MultiLatentAttentionOperation" + ("Mask" if _has_mask(params) else "")
    name += "Qlens" if calc in _SPEC else ""
    name += "IsRing" if calc in _RING else ""
    name += {_Cache.INT8_NZCACHE: "Int8Nz", _Cache.NZCACHE: "Nz"}.get(cache, "")
    name += "Prefill" if calc == _PREFILL else ""
    name += "MaskUseStatus" if _has_status(params) else ""
    return name if has_section(name) else ""


def _latent_inputs(params: Params, inputs: Descs) -> None:
    (_prefill_inputs if params["calcType"] == _PREFILL else _decode_inputs)(params, inputs)


def _decode_inputs(params: Params, inputs: Descs) -> None:
    query, rotated, cache, rotated_cache, table, lengths = inputs[:6]
    require_ranks(inputs[:6], (3, 3, 4, 4, 2, 1))
    batch, heads = table.shape[0], params["headNum"]
    require_input(batch <= _MOST_BATCH, 4, table, f"[<= {_MOST_BATCH}, n]")
    if params["calcType"] == _Calc.CALC_TYPE_UNDEFINED:
        require_input(query.shape[0] == batch, 0, query, f"[{batch}, ...]")
    require_shape(5, lengths, batch)
    blocks = cache.shape[0]
    if params["cacheMode"] == _Cache.KROPE_CTKV:
        wanted = [(blocks, _BLOCK, params["kvHeadNum"], size) for size in (_LATENT, _ROTATED)]
    else:
        width = 32 if params["cacheMode"] == _Cache.INT8_NZCACHE else 16
        wanted = [
            (blocks, _LATENT // width, _BLOCK, width),
            (blocks, _ROTATED // 16, _BLOCK, 16),
        ]
    require_shape(2, cache, *wanted[0])
    require_shape(3, rotated_cache, *wanted[1])
    require_shape(0, query, query.shape[0], heads, _LATENT)
    require_shape(1, rotated, query.shape[0], heads, _ROTATED)
    _decode_options(params, inputs)


def _decode_options(params: Params, inputs: Descs) -> None:
    calc, index = params["calcType"], 6 + _has_mask(params)
    int8 = params["cacheMode"] == _Cache.INT8_NZCACHE
    batch = inputs[5].shape[0]
    if calc in _SPEC:
        require_rank(index, inputs[index], 1)
        require_shape(index, inputs[index], batch)
        last = index + 1 + (2 if int8 else 0)
        looked_at = _has_status(params) and (params["headNum"] == 128 or int8)
        if looked_at and len(inputs) > last and not inputs[last].is_absent:
            require_rank(last, inputs[last], 1)
            require_shape(last, inputs[last], batch)
    if calc in _RING and params["maskType"] == _Mask.UNDEFINED and int8:
        first = 7 if calc == _Calc.CALC_TYPE_SPEC_AND_RING else 6
        for place in (first, first + 1):
            require_rank(place, inputs[place], 1)
        for place in (first, first + 1):
            require_shape(place, inputs[place], params["headNum"])


def _prefill_inputs(params: Params, inputs: Descs) -> None:
    query, rotated, key, rotated_key, value, lengths, key_lengths = inputs[:7]
    free = params["maskType"] == _Mask.MASK_TYPE_MASK_FREE
    heads, kv_heads = params["headNum"], params["kvHeadNum"]
    require_rank(0, query, 2, 3)
    require_rank(1, rotated, len(query.shape))
    for index, rank in ((2, 3), (3, 3), (4, 3), (5, 1), (6, 1)):
        require_rank(index, inputs[index], rank)
    if free:
        require_rank(7, inputs[7], 2, 3)
    batch, tokens = lengths.shape[0], query.shape[0]
    require_input(batch <= _MOST_BATCH, 5, lengths, f"[<= {_MOST_BATCH}]")
    require_shape(6, key_lengths, batch)
    flat = len(query.shape) == 2
    for index, desc, size in ((0, query, _HEAD), (1, rotated, _ROTATED)):
        require_shape(index, desc, tokens, *((heads * size,) if flat else (heads, size)))
    packed = key.shape[1:] == (kv_heads, _HEAD)
    padded = key.shape[0] == batch and key.shape[2] == kv_heads * _HEAD
    causal = params["maskType"] == _Mask.MASK_TYPE_CAUSAL_MASK
    fits = padded or (packed and not causal)
    require_input(fits, 2, key, f"[{batch}, n, {kv_heads * _HEAD}]")
    require_shape(3, rotated_key, *key.shape[:2], key.shape[2] // 2)
    require_shape(4, value, *key.shape)
    if free and len(inputs[7].shape) == 2:
        require_shape(7, inputs[7], 512, 512)


def _latent_outputs(params: Params, inputs: Descs, outputs: Descs, inferred: Descs) -> None:
    """Outputs are looked at in a few modes only; the others have to be as inferred."""
    for index, (got, wanted) in enumerate(zip(outputs, inferred, strict=True)):
        require_output(index, got, wanted)


accept(
    Acceptance(
        "MultiLatentAttentionOperation", _latent_table, _latent, _latent_inputs, _latent_outputs
    )
)


def _preprocess_table(params: Params) -> str:
    kinds = {_Cache.KROPE_CTKV: "Split", _Cache.INT8_NZCACHE: "INT8NZ", _Cache.NZCACHE: "NZ"}
    name = "MlaPreprocessOperation" + kinds.get(params["cacheMode"], "")
    return name + ("Pertoken" if int(params["quantMode"]) == 1 else "")


accept(Acceptance("MlaPreprocessOperation", _preprocess_table))


def _ring(params: Params) -> None:
    heads, kv_heads = params["headNum"], params["kvHeadNum"]
    require_param(int(params["calcType"]) in (0, 1), "calcType", int(params["calcType"]), "0, 1")
    require_param(heads > 0, "headNum", heads, "> 0")
    fits = 0 <= kv_heads <= heads and (kv_heads == 0 or heads % kv_heads == 0)
    require_param(fits, "kvHeadNum", kv_heads, f"{heads} / n")
    layout, kernel = int(params["inputLayout"]), int(params["kernelType"])
    require_param(layout == 0, "inputLayout", layout, "0")
    require_param(kernel == 1, "kernelType", kernel, "1")


def _has_previous(params: Params) -> bool:
    return int(params["calcType"]) == 0


def _ring_table(params: Params) -> str:
    return f"RingMLAOperation{'InputSoftmaxLse' if _has_previous(params) else ''}"


def _ring_inputs(params: Params, inputs: Descs) -> None:
    query, rotated, key, rotated_key, value, mask, lengths = inputs[:7]
    require_ranks(inputs[:5], (3,) * 5)
    if int(params["maskType"]) != 0:
        require_rank(5, mask, 2, 3)
    require_rank(6, lengths, 1, 2)
    if _has_previous(params):
        require_rank(7, inputs[7], 3)
        require_rank(8, inputs[8], 2)
    for first, pair in ((0, (query, rotated)), (2, (key, rotated_key))):
        rows = pair[0].shape[:2]
        require_shape(first, pair[0], *rows, _HEAD)
        require_shape(first + 1, pair[1], *rows, _ROTATED)
    require_shape(4, value, value.shape[0], key.shape[1], _HEAD)
    _ring_mask(mask, lengths)
    if _has_previous(params):
        tokens, heads = query.shape[:2]
        require_shape(7, inputs[7], tokens, heads, _HEAD)
        require_shape(8, inputs[8], heads, tokens)


def _ring_mask(mask: TensorDesc, lengths: TensorDesc) -> None:
    if len(mask.shape) == 3:
        batch = lengths.shape[-1]
        require_input(mask.shape[0] == batch, 5, mask, f"[{batch}, n, n]")


accept(Acceptance("RingMLAOperation", _ring_table, _ring, _ring_inputs, counted_as(Refusal.DIM)))


def _relay(params: Params) -> None:
    heads, kv_heads, mask = params["headNum"], params["kvHeadNum"], int(params["maskType"])
    require_param(heads > 0, "headNum", heads, "> 0")
    fits = 0 < kv_heads <= min(heads, 8) and heads % kv_heads == 0
    fits = fits or (kv_heads == 0 and heads <= 8)
    require_param(fits, "kvHeadNum", kv_heads, f"{heads} / n <= 8")
    require_param(mask == 0, "maskType", mask, "0")


def _flat(desc: TensorDesc) -> int:
    """Columns of a row of keys or values, whose heads may be apart."""
    return desc.shape[2] * (desc.shape[3] if len(desc.shape) == 4 else 1)


def _relay_inputs(params: Params, inputs: Descs) -> None:
    require_rank(0, inputs[0], 2)
    for index in range(1, 5):
        require_rank(index, inputs[index], 3, 4)
    for index in range(6, 10):
        require_rank(index, inputs[index], 1)
    batch, key, shared = inputs[0].shape[0], inputs[1], inputs[3]
    require_input(batch <= 60, 0, inputs[0], "[<= 60, n]")
    for index in (1, 2, 6, 7, 8):
        fits = inputs[index].shape[0] == batch
        require_input(fits, index, inputs[index], f"[{batch}, ...]")
    for index in (4, 9):
        fits = inputs[index].shape[0] == shared.shape[0]
        require_input(fits, index, inputs[index], f"[{shared.shape[0]}, ...]")
    value = inputs[2]
    same = len(value.shape) != len(shared.shape) or value.shape[2:] == shared.shape[2:]
    fits = same and _flat(value) == _flat(shared)
    require_input(fits, 3, shared, f"[n, m] + {list(value.shape[2:])}")
    for index, source in ((2, key), (4, shared)):
        desc = inputs[index]
        both = len(desc.shape) == len(source.shape) == 4
        end = 4 if both else 3
        fits = desc.shape[1:end] == source.shape[1:end]
        require_input(fits, index, desc, f"[n] + {list(source.shape[1:])}")


accept(
    Acceptance(
        "RelayAttentionOperation",
        lambda _: "RelayAttentionOperation",
        _relay,
        _relay_inputs,
        counted_as(Refusal.DIM),
    )
)


def _razor(params: Params) -> None:
    for name in ("headNum", "kvHeadNum"):
        require_param(params[name] == 1, name, params[name], "1")
    for name in ("preTokens", "nextTokens"):
        fits = params[name] >= 0 and params[name] % 128 == 0
        require_param(fits, name, params[name], "128 * n")
    for name in ("razorLen", "tileQ", "tileKv", "textQLen", "textKvLen"):
        require_param(params[name] >= 0, name, params[name], ">= 0")
    if params["razorLen"] == 0:
        for tile, text in (("tileQ", "textQLen"), ("tileKv", "textKvLen")):
            require_param(params[tile] > 0 or params[text] > 0, text, 0, "> 0 (razorLen 0)")


def _razor_inputs(params: Params, inputs: Descs) -> None:
    query = inputs[0]
    rank = len(query.shape)
    for index in (1, 2):
        require_rank(index, inputs[index], rank)
    require_rank(0, query, 2, 3)
    razor = params["razorLen"]
    rows = [razor * params[f"tile{side}"] + params[f"text{side}Len"] for side in ("Q", "Kv")]
    counts = []
    for index, desc in enumerate(inputs):
        length = rows[min(index, 1)]
        fits = length > 0 and desc.shape[0] % length == 0
        require_input(fits, index, desc, f"[{length} * batch, ...]")
        counts.append(desc.shape[0] // length)
    for index in (1, 2):
        require_input(counts[index] == counts[0], index, inputs[index], f"batch = {counts[0]}")
    for index, desc in enumerate(inputs):
        require_shape(index, desc, desc.shape[0], *((_HEAD,) if rank == 2 else (1, _HEAD)))


accept(
    Acceptance(
        "RazorFusionAttentionOperation",
        lambda _: "RazorFusionAttentionOperation",
        _razor,
        _razor_inputs,
        counted_as(Refusal.DIM),
    )
)
