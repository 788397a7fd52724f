"""Attention of the device, step by step in the types that its public sources name.

See :mod:`~ait_llm.opcheck.selftest.emulations`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Inputs = Sequence[Array | None]

_HALF = np.float16
_DEVICE_KEYS = 512  # keys that the device quantises probabilities of at once
_TILE = 128
_ONE_CORE = ("Ascend310P", "Ascend910A")


def given_of(inputs: Inputs) -> list[Array]:
    """Those that are there."""
    return [one for one in inputs if one is not None]


def self_attention(inputs: Inputs, params: Mapping[str, Any]) -> list[Array] | None:
    """Packed tokens in float16: every value on the way is kept in it.

    unpad_flash_attention_mix.cce: scores, scaled, masked and shifted scores, probabilities, sums
    of rows, the output over blocks of keys and the quotient. On chips with one kind of core
    unpad_flash_attention_prefill.cce, see :func:`one_core_flash`.
    """
    given = given_of(inputs)
    kernel, one_core = params.get("kernelType", 0), params.get("socVersion") in _ONE_CORE
    plain = params.get("calcType") == 3 and (one_core or not kernel) and len(given) in (4, 5)
    if not plain or given[0].dtype != _HALF or params.get("maskType", 0) > 1:
        return None
    flash = partial(one_core_flash, power=eighth_power if kernel == 2 else np.exp)
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
            kernel_of = flash if one_core else half_flash
            output[rows, head] = kernel_of(query[rows, head], *own, scale, added)
        first += count
    return [output.reshape(*given[0].shape[:-1], value.shape[2])]


def _half_scores(
    query: Array, key: Array, scale: float, mask: Array | None, tile: int
) -> Iterator[tuple[slice, Array]]:
    """Masked scores of some keys at a time, kept in float16 after each step."""
    for start in range(0, len(key), tile):
        keys = slice(start, start + tile)
        scores = (query.astype(np.float32) @ key[keys].astype(np.float32).T).astype(_HALF)
        scores = scores * _HALF(scale)
        yield keys, scores if mask is None else scores + mask[:, keys]


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
    for keys, scores in _half_scores(query, key, scale, mask, tile):
        higher = np.maximum(highest, scores.max(1, keepdims=True))
        powers = np.exp((scores - higher).astype(np.float32)).astype(_HALF)
        with np.errstate(invalid="ignore"):
            shrink = np.exp((highest - higher).astype(np.float32)).astype(_HALF)
        part = (powers.astype(np.float32) @ value[keys].astype(np.float32)).astype(_HALF)
        total = total * shrink + part
        sums = sums * shrink + _halved(powers)
        highest = higher
    return total / sums


def one_core_flash(
    query: Array,
    key: Array,
    value: Array,
    scale: float,
    mask: Array | None,
    tile: int = _TILE,
    power: Callable[[Array], Array] = np.exp,
) -> Array:
    """The same of other chips: sums of rows and the output in float32 until they are divided.

    Args:
        query, key, value, scale, mask, tile: as :func:`half_flash` takes them.
        power: the exponential of float32 numbers that float16 holds.
    """
    total = np.zeros((len(query), value.shape[1]), np.float32)
    sums = np.zeros((len(query), 1), np.float32)
    highest = np.full((len(query), 1), -np.inf, _HALF)
    for keys, scores in _half_scores(query, key, scale, mask, tile):
        higher = np.maximum(highest, scores.max(1, keepdims=True))
        powers = power((scores - higher).astype(np.float32))
        with np.errstate(invalid="ignore"):
            shrink = np.exp((highest - higher).astype(np.float32))
        part = powers.astype(_HALF).astype(np.float32) @ value[keys].astype(np.float32)
        total, sums = total * shrink + part, sums * shrink + powers.sum(1, keepdims=True)
        highest = higher
    return total.astype(_HALF) / sums.astype(_HALF)


def eighth_power(shifted: Array) -> Array:
    """unpad_flash_attention_common.h, M8V2: a polynomial in float16, to the eighth in float32."""
    x = np.maximum(shifted, np.float32(-15.0859375)).astype(_HALF)
    y = x * _HALF(0.00024482644572629384) + _HALF(0.007646947396369985)
    y = x * (x * y + _HALF(0.12492632389959098))
    power: Array = (y.astype(np.float32) + np.float32(1)) ** 8
    return power


def _halved(values: Array) -> Array:
    """Sums of rows, of neighbours first; each in the type of the values."""
    while values.shape[1] > 1:
        if values.shape[1] % 2:
            values = np.concatenate([values, np.zeros_like(values[:, :1])], 1)
        values = values[:, ::2] + values[:, 1::2]
    return values


def paged_attention(inputs: Inputs, params: Mapping[str, Any]) -> list[Array] | None:
    """int8 with probabilities quantised while it runs: a scale for each block of keys."""
    given = given_of(inputs)
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


def causal(count: int) -> Array:
    """A mask as fp16 models give it: -10000 above the diagonal, float16 ``[count, count]``."""
    return np.triu(np.full((count, count), -10000.0, _HALF), 1)


def usual_scale(size: int) -> float:
    """Scale of attention's scores for heads of ``size``."""
    return 1 / math.sqrt(size)
