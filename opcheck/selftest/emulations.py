"""Kernels of the device, step by step in the types that its public sources name.

They share nothing with the golden operators but the operator's name and parameters: NumPy's own
float16, blocks of keys as the device walks them, quantisers with their casts. What they produce is
what a healthy device produces, so that a standard that alarms at one of them would accuse it.
``None`` is returned for parameters that a kernel does not take. Sources are kernels of the public
acceleration library (commit ddcc8b6), named at each function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Inputs = Sequence[Array | None]
Emulate = Callable[[Inputs, Mapping[str, Any]], list[Array] | None]

_HALF = np.float16
_DEVICE_KEYS = 512  # keys that the device quantises probabilities of at once
_TILE = 128
emulations: dict[str, Emulate] = {}


def _emulates(name: str) -> Callable[[Emulate], Emulate]:
    def add(emulate: Emulate) -> Emulate:
        emulations[name] = emulate
        return emulate

    return add


def _given(inputs: Inputs) -> list[Array]:
    return [one for one in inputs if one is not None]


# ---- attention ------------------------------------------------------------------------------


@_emulates("SelfAttentionOperation")
def self_attention(inputs: Inputs, params: Mapping[str, Any]) -> list[Array] | None:
    """Packed tokens in float16: every value on the way is kept in it.

    unpad_flash_attention_mix.cce: scores, scaled, masked and shifted scores, probabilities, sums
    of rows, the output over blocks of keys and the quotient.
    """
    given = _given(inputs)
    plain = params.get("calcType") == 3 and not params.get("kernelType") and len(given) in (4, 5)
    if not plain or given[0].dtype != _HALF or params.get("maskType", 0) > 1:
        return None
    query, key, value = (one.reshape(len(one), -1, one.shape[-1]) for one in given[:3])
    mask = given[3] if len(given) == 5 else None
    groups = query.shape[1] // key.shape[1]
    output = np.zeros((len(query), query.shape[1], value.shape[2]), _HALF)
    first = 0
    for count in given[-1].reshape(-1).tolist():
        rows = slice(first, first + count)
        for head in range(query.shape[1]):
            own = key[rows, head // groups], value[rows, head // groups]
            added = None if mask is None else mask[:count, :count]
            scale = params.get("qkScale", 1.0)
            output[rows, head] = half_flash(query[rows, head], *own, scale, added)
        first += count
    return [output.reshape(*given[0].shape[:-1], value.shape[2])]


def half_flash(
    query: Array, key: Array, value: Array, scale: float, mask: Array | None, tile: int = _TILE
) -> Array:
    """One head of flash attention with everything in float16.

    Args:
        query: float16 ``[q, d]``.
        key: float16 ``[k, d]``.
        value: float16 ``[k, v]``.
        scale: of the scores.
        mask: float16 ``[q, k]``, added to the scaled scores.
        tile: keys at a time.

    Returns:
        float16 ``[q, v]``.
    """
    total = np.zeros((len(query), value.shape[1]), _HALF)
    sums = np.zeros((len(query), 1), _HALF)
    highest = np.full((len(query), 1), -np.inf, _HALF)
    for start in range(0, len(key), tile):
        keys = slice(start, start + tile)
        scores = (query.astype(np.float32) @ key[keys].astype(np.float32).T).astype(_HALF)
        scores = scores * _HALF(scale)
        if mask is not None:
            scores = scores + mask[:, keys]
        higher = np.maximum(highest, scores.max(1, keepdims=True))
        powers = np.exp((scores - higher).astype(np.float32)).astype(_HALF)
        with np.errstate(invalid="ignore"):
            shrink = np.exp((highest - higher).astype(np.float32)).astype(_HALF)
        part = (powers.astype(np.float32) @ value[keys].astype(np.float32)).astype(_HALF)
        total = total * shrink + part
        sums = sums * shrink + _halved(powers)
        highest = higher
    return total / sums


def _halved(values: Array) -> Array:
    """Sums of rows, of neighbours first; each in the type of the values."""
    while values.shape[1] > 1:
        if values.shape[1] % 2:
            values = np.concatenate([values, np.zeros_like(values[:, :1])], 1)
        values = values[:, ::2] + values[:, 1::2]
    return values


@_emulates("PagedAttentionOperation")
def paged_attention(inputs: Inputs, params: Mapping[str, Any]) -> list[Array] | None:
    """int8 with probabilities quantised while it runs: a scale for each block of keys."""
    given = _given(inputs)
    if given[0].dtype != np.int8 or params.get("quantType") != 3 or len(given) != 7:
        return None
    if params.get("maskType") or params.get("hasQuantOffset"):
        return None
    query, keys, values, tables, lengths, key_scale, value_scale = given
    output = np.zeros((*query.shape[:2], values.shape[-1]), _HALF)
    groups = query.shape[1] // keys.shape[2]
    for row, length in enumerate(lengths.tolist()):
        pages = tables[row]
        own = [cache[pages].reshape(-1, *cache.shape[2:])[:length] for cache in (keys, values)]
        for head in range(query.shape[1]):
            scale = params.get("qkScale", 1.0) * float(key_scale.reshape(-1)[head])
            key, value = (one[:, head // groups] for one in own)
            found = online_int8(query[row, head], key, value, scale)
            output[row, head] = (found * value_scale.reshape(-1)[head]).astype(_HALF)
    return [output]


def online_int8(
    query: Array, key: Array, value: Array, scale: float, block: int = _DEVICE_KEYS
) -> Array:
    """One row of int8 attention, float32 ``[v]``, in units of the values.

    Args:
        query: int8 ``[d]``.
        key: int8 ``[k, d]``.
        value: int8 ``[k, v]``.
        scale: of the integer scores.
        block: keys that share a scale of probabilities.
    """
    total = np.zeros(value.shape[1], np.float32)
    sums, highest = np.float32(0), np.float32(-np.inf)
    for start in range(0, len(key), block):
        keys = slice(start, start + block)
        scores = (key[keys].astype(np.int64) @ query.astype(np.int64)).astype(np.float32)
        scores = scores * np.float32(scale)
        higher = max(highest, scores.max())
        powers = np.exp(scores - higher)
        step = powers.max() / np.float32(127)
        whole = np.rint((powers / step).astype(_HALF)).astype(np.int64)
        part = (whole @ value[keys].astype(np.int64)).astype(np.float32) * step
        shrink = np.exp(highest - higher)
        total, sums, highest = total * shrink + part, sums * shrink + powers.sum(), higher
    found: Array = total / sums
    return found


# ---- matrix products ------------------------------------------------------------------------


@_emulates("LinearOperation")
def linear(inputs: Inputs, params: Mapping[str, Any]) -> list[Array] | None:
    """int8 with a 64-bit scale: the matrix unit takes the upper 19 bits of its float32."""
    given = _given(inputs)
    scale = given[-1]
    if given[0].dtype != np.int8 or scale.dtype not in (np.int64, np.uint64):
        return None
    if params.get("outDataType", 1) != 1 or params.get("transposeA"):
        return None
    bits = scale.astype(np.int64).astype(np.uint32) & np.uint32(0xFFFFE000)
    weight = given[1].astype(np.int64)
    product = given[0].astype(np.int64) @ (weight.T if params.get("transposeB", True) else weight)
    if params.get("hasBias", True):
        product = product + given[2].reshape(1, -1)
    return [(product.astype(np.float32) * bits.view(np.float32).reshape(1, -1)).astype(_HALF)]


# ---- quantisers -----------------------------------------------------------------------------


@_emulates("SwigluQuantOperation")
def swiglu_quant(inputs: Inputs, params: Mapping[str, Any]) -> list[Array] | None:
    """swi_glu_quant.h: from float32 to whole numbers at once."""
    x = _given(inputs)[0]
    if x.dtype != _HALF:
        return None
    gate, value = np.split(x.astype(np.float32), 2, axis=-1)
    product = gate / (np.exp(-gate) + np.float32(1)) * value
    factor = np.float32(127) / np.abs(product).max(-1, keepdims=True)
    whole = np.rint(product * factor).astype(np.int32)
    return [whole.astype(np.int8), (np.float32(1) / factor)[..., 0]]


@_emulates("ElewiseOperation")
def dynamic_quant(inputs: Inputs, params: Mapping[str, Any]) -> list[Array] | None:
    """dynamic_quant_align.h, asymmetric: steps in float16, ties away from zero."""
    x = _given(inputs)[0]
    asymmetric = bool(params.get("quantParam", params).get("asymmetric"))
    if params.get("elewiseType") != 19 or x.dtype != _HALF or not asymmetric:
        return None
    high, low = (x.max(-1, keepdims=True), x.min(-1, keepdims=True))
    high, low = high.astype(np.float32), low.astype(np.float32)
    factor = np.float32(255) / (high - low)
    offset = -(high + low) * factor * np.float32(0.5)
    shifted = x * factor.astype(_HALF) + offset.astype(_HALF)
    away = np.copysign(np.floor(np.abs(shifted.astype(np.float32)) + 0.5), shifted)
    whole = away.clip(-128, 127).astype(np.int8)
    return [whole, ((high - low) / np.float32(255))[..., 0], offset[..., 0]]


@_emulates("RmsNormOperation")
def rms_norm(inputs: Inputs, params: Mapping[str, Any]) -> list[Array] | None:
    """norm_dynamic_quant_base.h, and rms_pre_norm_quant.cpp for the one with a residual."""
    given = _given(inputs)
    if given[0].dtype != _HALF:
        return None
    own = params.get("normParam", {})
    if params.get("layerType") == 1 and own.get("quantType") and own.get("dynamicQuantType"):
        return _norm_dynamic(_rms(given[0], own, given[1], given[2]), own["dynamicQuantType"])
    own = params.get("preNormParam", {})
    if params.get("layerType") != 2 or not own.get("quantType"):
        return None
    x, residual, gamma, beta, scale, offset = given
    total = x.astype(np.float32) + residual.astype(np.float32)
    normed = _rms(total, own, gamma, beta).astype(_HALF)
    inverse = (np.float32(1) / scale.astype(np.float32)).astype(_HALF)
    return [_to_int8(normed * inverse + offset.astype(_HALF)), total.astype(_HALF)]


@_emulates("LayerNormOperation")
def layer_norm(inputs: Inputs, params: Mapping[str, Any]) -> list[Array] | None:
    """norm_dynamic_quant_base.h."""
    given = _given(inputs)
    own = params.get("normParam", {})
    dynamic = own.get("dynamicQuantType")
    if given[0].dtype != _HALF or params.get("layerType") != 1 or not dynamic:
        return None
    x = given[0].astype(np.float32)
    centred = x - x.mean(-1, keepdims=True)
    variance = np.square(centred).mean(-1, keepdims=True)
    normed = centred / np.sqrt(variance + np.float32(own.get("epsilon", 1e-5)))
    gamma, beta = (one.astype(np.float32).reshape(-1) for one in given[1:3])
    return _norm_dynamic(normed * gamma + beta, dynamic)


def _rms(x: Array, own: Mapping[str, Any], gamma: Array, beta: Array) -> Array:
    wide = x.astype(np.float32)
    square = np.square(wide).mean(-1, keepdims=True)
    normed: Array = wide / np.sqrt(square + np.float32(own.get("epsilon", 1e-5)))
    return normed * gamma.astype(np.float32).reshape(-1) + beta.astype(np.float32).reshape(-1)


def _norm_dynamic(normed: Array, kind: int) -> list[Array]:
    """Rows of a norm, rounded to float16, onto int8; kind 1 is symmetric, 2 asymmetric."""
    half = normed.astype(_HALF)
    high = np.abs(half).max(-1, keepdims=True) if kind == 1 else half.max(-1, keepdims=True)
    high = high.astype(np.float32)
    if kind == 1:
        scale = high / np.float32(127)
        return [_to_int8(half * (np.float32(1) / scale).astype(_HALF)), scale[..., 0]]
    low = half.min(-1, keepdims=True).astype(np.float32)
    scale = (high - low) / np.float32(255)
    offset = -(high + low) / (scale * np.float32(2))
    product = half * (np.float32(1) / scale).astype(_HALF)
    return [_to_int8(product + offset.astype(_HALF)), scale[..., 0], offset[..., 0]]


def _to_int8(values: Array) -> Array:
    return np.rint(values).clip(-128, 127).astype(np.int8)


def causal(count: int) -> Array:
    """A mask as fp16 models give it: -10000 above the diagonal, float16 ``[count, count]``."""
    return np.triu(np.full((count, count), -10000.0, _HALF), 1)


def scale_bits(values: Array) -> Array:
    """float32 scales as the 64-bit integers that a quantised product takes."""
    return values.astype(np.float32).view(np.uint32).astype(np.int64)


def usual_scale(size: int) -> float:
    """Scale of attention's scores for heads of ``size``."""
    return 1 / math.sqrt(size)
