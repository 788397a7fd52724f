"""What SelfAttention's tensors may be."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ait_llm.core import FORMAT_ND, DType, TensorDesc
from ait_llm.hostatb.acceptance.base import (
    Acceptance,
    Descs,
    Params,
    accept,
    counted_as,
    require_input,
    require_kind,
    require_param,
)
from ait_llm.hostatb.acceptance.matrix import require_rank
from ait_llm.hostatb.acceptance.self_attention import (
    MOST_LATENT,
    QKV,
    SLOPES,
    WINDOWS,
    Calc,
    Mask,
    Quant,
    create,
    has_mask,
    is_bnsd,
    is_bypass,
    is_latent,
    kv_heads_of,
    table,
)
from ait_llm.opcheck.golden.base import Refusal

_SIZE, _DIM = Refusal.SIZE, Refusal.DIM


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the tensors are, by the parameters."""

    cache: int
    mask: int
    offset: int  # of tokens; for an encoder the lengths


def _places(params: Params) -> _Places:
    masked = has_mask(params)
    if params["calcType"] == Calc.PA_ENCODER:
        first = 2 if is_latent(params) else 3
        return _Places(1, first, first + masked)
    if params["calcType"] == Calc.PREFIX_ENCODER:
        return _Places(1, 4, 4 if params["maskType"] == Mask.MASK_TYPE_CAUSAL_MASK else 5)
    first = 3 if is_bypass(params) else 5
    return _Places(first - 2, first, first + masked)


def _inputs(params: Params, inputs: Descs) -> None:
    _check_format(params, inputs)
    _check_logn(params, inputs)
    if params["quantType"] in QKV:
        _check_scales(params, inputs)
    if is_bnsd(params):
        _check_dims(params, inputs)
        return
    _check_head_sizes(params, inputs)
    _check_window(params, inputs)
    _check_dims(params, inputs)


def _setup(params: Params, inputs: Descs) -> None:
    """The same in another order, without scales."""
    _check_format(params, inputs)
    _check_dims(params, inputs)
    if not is_bnsd(params):
        _check_head_sizes(params, inputs)


def _check_format(params: Params, inputs: Descs) -> None:
    if params["calcType"] == Calc.PA_ENCODER:
        return
    first = _places(params).cache
    for index in (first, first + 1):
        require_kind(inputs[index].format == FORMAT_ND, index, inputs[index], "nd")


def _check_logn(params: Params, inputs: Descs) -> None:
    if params["scaleType"] != 1:
        return
    index, calc = len(inputs) - 1, params["calcType"]
    require_rank(index, inputs[index], 1, status=_DIM)
    fits = calc in (Calc.PA_ENCODER, Calc.DECODER)
    require_param(fits, "calcType", int(calc), "2, 3 (scaleType 1)")
    kernel = int(params["kernelType"])
    fits = calc != Calc.PA_ENCODER or kernel == 1
    require_param(fits, "kernelType", kernel, "1 (scaleType 1)")
    require_kind(inputs[index].dtype is not DType.FLOAT16, index, inputs[index], "float")


def _check_scales(params: Params, inputs: Descs) -> None:
    offline = params["quantType"] == Quant.TYPE_QUANT_QKV_OFFLINE
    heads = params["headNum"]
    for back in (1, 3, 5) if offline else (2, 4):
        index = len(inputs) - back
        require_input(inputs[index].shape == (heads,), index, inputs[index], f"[{heads}]")


def _check_head_sizes(params: Params, inputs: Descs) -> None:
    """Keys and values have whole heads, of sizes that the kernels take."""
    key, value = inputs[1:3]
    heads, latent = kv_heads_of(params), is_latent(params)
    prefix = params["calcType"] == Calc.PREFIX_ENCODER and len(key.shape) == 3
    sizes = [key.shape[-1], value.shape[-1]]
    if is_bypass(params) or len(key.shape) == 2 or prefix:
        for index, desc in ((1, key), (2, value)):
            whole = desc.shape[-1] % heads == 0 or (latent and index == 2)
            require_input(whole, index, desc, f"[..., {heads} * d]")
        sizes = [size // heads for size in sizes]
    if latent:
        sizes[1] = params["mlaVHeadSize"]
        require_input(sizes[1] <= sizes[0], 1, key, f"d >= {sizes[1]}")
    most = MOST_LATENT if latent or sizes[0] == sizes[1] else 1024
    special = params["windowSize"] > 0 and (latent or sizes[0] == sizes[1])
    special = special or params["scaleType"] != 0
    if special or (not latent and params["quantType"] != Quant.TYPE_QUANT_UNQUANT):
        most = 256
        require_input(sizes[0] == sizes[1], 2, value, f"d = {sizes[0]}")
    if params["maskType"] in SLOPES:
        most = 128
    for index, size in ((1, sizes[0]), (2, sizes[1])):
        require_input(size <= most, index, inputs[index], f"d <= {most}")


def _check_window(params: Params, inputs: Descs) -> None:
    if params["windowSize"] == 0 or params["calcType"] == Calc.DECODER:
        return
    index = _places(params).mask
    mask = inputs[index]
    require_rank(index, mask, 2, status=_DIM)
    if params["maskType"] == WINDOWS[1]:
        require_input(mask.shape == (512, 512), index, mask, "[512, 512]")


def _check_dims(params: Params, inputs: Descs) -> None:
    calc = params["calcType"]
    if is_bnsd(params):
        (_check_bnsd_encoder if calc == Calc.PA_ENCODER else _check_bnsd)(params, inputs)
    elif calc == Calc.PA_ENCODER:
        _check_encoder(params, inputs)
    elif calc == Calc.PREFIX_ENCODER:
        _check_prefix(params, inputs)
    else:
        _check_cached(params, inputs)


def _check_encoder(params: Params, inputs: Descs) -> None:
    places, query, latent = _places(params), inputs[0], is_latent(params)
    if latent:
        for index in (0, 1):
            require_rank(index, inputs[index], 2, 3, 4, status=_SIZE)
    else:
        require_rank(0, query, 2, 3, status=_SIZE)
        for index in (1, 2):
            require_rank(index, inputs[index], len(query.shape), status=_SIZE)
    lengths = inputs[places.offset]
    slopes = params["maskType"] in SLOPES
    if slopes:
        require_rank(places.offset + 1, inputs[places.offset + 1], 1, status=_SIZE)
    require_rank(places.offset, lengths, 1, 2)
    if not latent:
        wanted = inputs[1].shape[:-1]
        require_input(inputs[2].shape[:-1] == wanted, 2, inputs[2], f"{list(wanted)} + [d]")
    if has_mask(params):
        _check_mask(params, places.mask, inputs[places.mask])
    if slopes:
        index, heads = places.offset + 1, params["headNum"]
        require_input(inputs[index].shape[0] == heads, index, inputs[index], f"[{heads}]")
    fits = len(lengths.shape) == 1 or lengths.shape[0] == 2
    require_input(fits, places.offset, lengths, "[batch], [2, batch]")


def _check_mask(params: Params, index: int, mask: TensorDesc) -> None:
    kind, rank = params["maskType"], len(mask.shape)
    if kind == Mask.MASK_TYPE_NORM_COMPRESS:
        require_rank(index, mask, 2, status=_SIZE)
        require_input(mask.shape == (128, 128), index, mask, "[128, 128]")
    elif kind not in SLOPES:
        require_rank(index, mask, 2, 3, 4, status=_SIZE)
    else:
        fast = mask.dtype is DType.FLOAT16 and params["kernelType"] == 0
        require_param(not fast, "kernelType", 0, "1 (float16)")
        require_rank(index, mask, 1, 2, 3, 5, 6, 7, 8, status=_SIZE)
        if rank == 2:
            require_input(mask.shape == (256, 256), index, mask, "[256, 256]")
        elif rank == 3:
            left = kind == SLOPES[2]
            heads = params["headNum"]
            fits = not left and (mask.shape[0] == heads or mask.shape[2] == 128)
            require_input(fits, index, mask, f"[{heads}, n, 128]")


def _check_bnsd_encoder(params: Params, inputs: Descs) -> None:
    query, key, value = inputs[:3]
    index = _places(params).offset
    lengths = inputs[index]
    require_rank(0, query, 4)
    require_rank(1, key, 4)
    require_rank(index, lengths, 1, 2)
    same = value.shape == key.shape and value.dtype is key.dtype
    require_input(same, 2, value, str(list(key.shape)))
    fits = len(lengths.shape) == 1 or lengths.shape[0] == 2
    require_input(fits, index, lengths, "[batch], [2, batch]")
    batch, size = lengths.shape[-1], query.shape[3]
    fits = query.shape[:2] == (batch, params["headNum"]) and size <= 256
    require_input(fits, 0, query, f"[{batch}, {params['headNum']}, s, <= 256]")
    heads = kv_heads_of(params)
    fits = key.shape[:2] == (batch, heads) and key.shape[3] == size
    require_input(fits, 1, key, f"[{batch}, {heads}, s, {size}]")


def _check_tail(params: Params, inputs: Descs, batch: int | None) -> None:
    """Offsets, lengths, layer and status: their numbers of dimensions, or else their lengths."""
    first, status = _places(params).offset, bool(params["batchRunStatusEnable"])
    if batch is None:
        for index in range(first, first + 3 + status):
            require_rank(index, inputs[index], 1)
        return
    for index in (first, first + 1, *([first + 3] if status else [])):
        require_input(inputs[index].shape == (batch,), index, inputs[index], f"[{batch}]")


def _check_bnsd(params: Params, inputs: Descs) -> None:
    places, query = _places(params), inputs[0]
    key, value = inputs[places.cache : places.cache + 2]
    require_rank(0, query, 4)
    for index in (places.cache, places.cache + 1):
        require_rank(index, inputs[index], 5)
    if has_mask(params):
        require_rank(places.mask, inputs[places.mask], 2, 3, 4)
    _check_tail(params, inputs, None)
    same = value.shape == key.shape and value.dtype is key.dtype
    require_input(same, places.cache + 1, value, str(list(key.shape)))
    batch, heads, _, size = query.shape
    fits = heads == params["headNum"] and size <= 256
    require_input(fits, 0, query, f"[batch, {params['headNum']}, s, <= 256]")
    wanted = (batch, kv_heads_of(params))
    fits = key.shape[1:3] == wanted and key.shape[4] == size
    require_input(fits, places.cache, key, f"[layers, {wanted[0]}, {wanted[1]}, s, {size}]")
    _check_tail(params, inputs, batch)


def _check_cached(params: Params, inputs: Descs) -> None:
    places, status = _places(params), bool(params["batchRunStatusEnable"])
    require_rank(0, inputs[0], 2, 4)
    if not is_bypass(params):
        for index in (1, 2):
            require_rank(index, inputs[index], 2, 4)
    for index in (places.cache, places.cache + 1):
        require_rank(index, inputs[index], 3 if status else 4)
    if has_mask(params):
        require_rank(places.mask, inputs[places.mask], 2, 3, 4, status=_SIZE)
    _check_tail(params, inputs, None)
    if not is_bypass(params):
        for index in (1, 2):
            shape = inputs[index].shape
            hidden = shape[1] if len(shape) == 2 else math.prod(shape[2:])
            wanted = inputs[index + 2].shape[-1]
            fits = hidden == wanted and hidden % 16 == 0
            require_input(fits, index, inputs[index], f"[..., {wanted}], 16 * n")
    key, value = inputs[places.cache : places.cache + 2]
    same = value.shape[:-1] == key.shape[:-1]
    require_input(same, places.cache + 1, value, f"{list(key.shape[:-1])} + [d]")
    _check_tail(params, inputs, key.shape[0 if status else 1])


def _check_prefix(params: Params, inputs: Descs) -> None:
    places, query, key = _places(params), inputs[0], inputs[1]
    lengths = places.offset
    require_rank(0, query, 2, 3)
    require_rank(1, key, 3, 4)
    require_rank(2, inputs[2], len(key.shape))
    require_rank(3, inputs[3], 2)
    for index in (lengths, lengths + 1):
        require_rank(index, inputs[index], 1)
    if params["maskType"] in SLOPES:
        require_rank(7, inputs[7], 1)
    if has_mask(params):
        _check_mask(params, places.mask, inputs[places.mask])
    size = key.shape[-1] // (kv_heads_of(params) if len(key.shape) == 3 else 1)
    own = query.shape[-1] // (params["headNum"] if len(query.shape) == 2 else 1)
    require_input(own <= 128 and own % 16 == 0, 0, query, "d = 16 * n <= 128")
    require_input(size <= 128 and size % 16 == 0, 1, key, "d = 16 * n <= 128")
    require_input(key.shape[1] * size <= 128 * 128, 1, key, "d * s <= 16384")
    batch = inputs[3].shape[0]
    for index in (lengths, lengths + 1):
        require_input(inputs[index].shape[0] == batch, index, inputs[index], f"[{batch}]")


accept(
    Acceptance("SelfAttentionOperation", table, create, _inputs, counted_as(Refusal.DIM), _setup)
)
