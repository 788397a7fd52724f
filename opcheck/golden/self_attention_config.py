"""Parameters of SelfAttention, and which inputs they imply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ait_llm.core import DType
from ait_llm.opcheck.golden.base import Params
from ait_llm.opcheck.golden.soc import is_one_core, is_two_cores
from ait_llm.opcheck.golden.support import (
    bool_param,
    dtype_param,
    enum_param,
    float_param,
    int_param,
    refused,
)

NAME = "SelfAttentionOperation"


class CalcType(IntEnum):
    """Values of ``calcType``."""

    UNDEFINED = 0
    ENCODER = 1
    DECODER = 2
    PA_ENCODER = 3
    PREFIX_ENCODER = 4


class MaskType(IntEnum):
    """Values of ``maskType``."""

    NONE = 0
    NORM = 1
    ALIBI = 2
    NORM_COMPRESS = 3
    ALIBI_COMPRESS = 4
    ALIBI_COMPRESS_SQRT = 5
    ALIBI_COMPRESS_LEFT_ALIGN = 6
    SLIDING_WINDOW_NORM = 7
    SLIDING_WINDOW_COMPRESS = 8
    CAUSAL = 9


class QuantType(IntEnum):
    """Values of ``quantType``."""

    NONE = 0
    RESERVED = 1
    QKV_OFFLINE = 2
    QKV_ONLINE = 3


class KernelType(IntEnum):
    """Values of ``kernelType``."""

    DEFAULT = 0
    HIGH_PRECISION = 1
    EXP_M8V2 = 2


class Kept(IntEnum):
    """What the kernel for float16 keeps in float16, at least of probabilities.

    Source: the public kernel sources. Chips with matrix and vector units in one core
    (``unpad_flash_attention_nz``) keep scores of either kernel type; those with two
    (``unpad_flash_attention_mix``) keep everything by default, and no scores in high precision.
    """

    PROBABILITIES = 0
    SCORES = 1  # after each step, and sums and output before they are divided
    SUMS = 2  # and both after each block of keys


ALIBI_COMPRESSED = (
    MaskType.ALIBI_COMPRESS,
    MaskType.ALIBI_COMPRESS_SQRT,
    MaskType.ALIBI_COMPRESS_LEFT_ALIGN,
)
_OLD_KEYS = {"isEncoder", "coderType", "isSupportAlibi", "isFp32", "isClamp"}
SLIDING_WINDOW = (MaskType.SLIDING_WINDOW_NORM, MaskType.SLIDING_WINDOW_COMPRESS)


@dataclass(frozen=True, slots=True)
class Config:
    """Parameters of one call.

    Attributes:
        heads: query heads.
        kv_heads: key/value heads.
        calc: calculation type.
        mask: mask type.
        scale: factor of the scores.
        query_scale: factor of the query, rounded to its dtype; 1 where the kernel ignores it.
        clamp: lowest and highest score; None where off or ignored.
        clamp_last: clamp after the mask is added; told by ``clampAfterMask``, a parameter of ours.
        kernel: kernel type.
        kept: what it keeps on the way, at most where the chip is not known.
        one_core: the chip is known to be one whose kernels take masks in blocks.
        triangular: the mask is causal whatever its tensor says.
        window: keys that a sliding window shows.
        ring: the cache is a ring.
        int8: query, key and value are int8.
        value_size: head size of values taken from the keys; 0 for own values.
        head_major: ``[B, H, S, D]`` layout.
        out_dtype: output dtype of int8 inputs.
        names: the inputs, in order.
    """

    heads: int
    kv_heads: int
    calc: CalcType
    mask: MaskType
    scale: float
    query_scale: float
    clamp: tuple[float, float] | None
    clamp_last: bool
    kernel: KernelType
    kept: Kept
    one_core: bool
    triangular: bool
    window: int
    ring: bool
    int8: bool
    value_size: int
    head_major: bool
    out_dtype: DType
    names: tuple[str, ...]

    def decodes(self, rows: Sequence[int]) -> bool:
        """Whether sequences of so many query rows go to the decoder kernel."""
        if self.calc is CalcType.DECODER:
            return True
        return self.calc is CalcType.UNDEFINED and all(count == 1 for count in rows)


def _names(
    calc: CalcType,
    mask: MaskType,
    *,
    bypass: bool,
    own_value: bool,
    status: bool,
    quant: QuantType,
    log_n: bool,
) -> tuple[str, ...]:
    """The inputs in order."""
    no_mask = mask in (MaskType.NONE, MaskType.CAUSAL) or (
        calc is CalcType.DECODER and mask is MaskType.SLIDING_WINDOW_NORM
    )
    given = ("mask",) * (not no_mask)
    slopes = ("slopes",) * (mask in ALIBI_COMPRESSED)
    factors = ("log_n",) * log_n
    value = ("value",) * own_value
    if calc is CalcType.PREFIX_ENCODER:
        return ("query", "key", "value", "tables", *given, "length", "key_length", *slopes)
    if calc is CalcType.PA_ENCODER:
        int8: tuple[str, ...] = ()
        if quant in (QuantType.QKV_OFFLINE, QuantType.QKV_ONLINE):
            int8 = ("score_scale", "score_offset", "value_scale", "value_offset")
            int8 += ("probability_scale",) * (quant is QuantType.QKV_OFFLINE)
        return ("query", "key", *value, *given, "length", *slopes, *int8, *factors)
    tokens = () if bypass else ("key", "value")
    caches = ("key_cache", "value_cache")
    state = ("offset", "length", "layer", *(("status",) * status))
    return ("query", *tokens, *caches, *given, *state, *slopes, *factors)


def kernel_type(params: Params) -> KernelType:
    """The kernel that was asked for."""
    return enum_param(NAME, translated(params), "kernelType", KernelType, 0)


def kept(params: Params) -> Kept:
    """What it keeps in float16, at most where the chip is not known."""
    kernel = kernel_type(params)
    if is_one_core(params) or kernel is KernelType.EXP_M8V2:  # no other chip has that one
        return Kept.SCORES
    if kernel is KernelType.DEFAULT:
        return Kept.SUMS
    return Kept.PROBABILITIES if is_two_cores(params) else Kept.SCORES


def translated(params: Params) -> Params:
    """The parameters of libraries of 2023 under their present names; others as they are.

    ``coderType`` is the calculation type, ``isEncoder`` the packed encoder, and the switches for
    ALiBi, float32 and clamping are types now. The mask was always there.
    """
    if not _OLD_KEYS & params.keys():
        return params
    switch = {key: bool(params.get(key, False)) for key in _OLD_KEYS}
    found: dict[str, Any] = {
        "calcType": CalcType.PA_ENCODER if switch["isEncoder"] else params.get("coderType", 0),
        "kernelType": int(switch["isFp32"]),
        "clampType": int(switch["isClamp"]),
        "maskType": MaskType.ALIBI if switch["isSupportAlibi"] else MaskType.NORM,
    }
    found = {key: int(value) for key, value in found.items()}
    return {**found, **params}


def read_config(params: Params) -> Config:
    """Read the parameters.

    Inputs by calculation type, optional ones in brackets:

    * with caches, 0 to 2: query, key, value, key cache, value cache, [mask], token offset, lengths,
      layer, [run status], [slopes], [logN]; with ``kvcacheCfg`` 1 without key and value.
    * PA_ENCODER: query, key, value, [mask], lengths, [slopes], [score scale, score offset, value
      scale, value offset], [probability scale], [logN]; with ``mlaVHeadSize`` without value.
    * PREFIX_ENCODER: query, key cache, value cache, block tables, [mask], lengths, key lengths,
      [slopes].

    Raises:
        OperationError: a parameter has a value that the operator does not take.
    """
    params = translated(params)
    heads = int_param(NAME, params, "headNum", 0)
    kv_heads = int_param(NAME, params, "kvHeadNum", 0) or heads
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise refused(
            NAME, f"headNum is {heads} and kvHeadNum {kv_heads}; the first must be a multiple"
        )
    calc = enum_param(NAME, params, "calcType", CalcType, 0)
    mask = enum_param(NAME, params, "maskType", MaskType, 0)
    quant = enum_param(NAME, params, "quantType", QuantType, 0)
    cached = calc in (CalcType.UNDEFINED, CalcType.ENCODER, CalcType.DECODER)
    window = int_param(NAME, params, "windowSize", 0)
    if (mask in SLIDING_WINDOW) != (window > 0):
        raise refused(NAME, f"maskType is {mask.name} and windowSize {window}; a window needs both")
    value_size = int_param(NAME, params, "mlaVHeadSize", 0)
    clamp = None
    if cached and int_param(NAME, params, "clampType", 0):
        low = float_param(NAME, params, "clampMin", 0.0)
        clamp = (low, float_param(NAME, params, "clampMax", 0.0))
    names = _names(
        calc,
        mask,
        bypass=bool(int_param(NAME, params, "kvcacheCfg", 0)),
        own_value=value_size == 0 or calc is not CalcType.PA_ENCODER,
        status=bool_param(NAME, params, "batchRunStatusEnable", False),
        quant=quant,
        log_n=bool(int_param(NAME, params, "scaleType", 0)),
    )
    return Config(
        heads=heads,
        kv_heads=kv_heads,
        calc=calc,
        mask=mask,
        scale=float_param(NAME, params, "qkScale", 1.0),
        query_scale=float_param(NAME, params, "qScale", 1.0) if cached else 1.0,
        clamp=clamp,
        clamp_last=bool_param(NAME, params, "clampAfterMask", False),
        kernel=kernel_type(params),
        kept=kept(params),
        one_core=is_one_core(params),
        triangular=bool(int_param(NAME, params, "isTriuMask", 0)),
        window=window,
        ring=bool(int_param(NAME, params, "cacheType", 0)),
        int8=calc is CalcType.PA_ENCODER and quant in (QuantType.QKV_OFFLINE, QuantType.QKV_ONLINE),
        value_size=value_size if calc is CalcType.PA_ENCODER else 0,
        head_major=bool(int_param(NAME, params, "inputLayout", 0)),
        out_dtype=dtype_param(NAME, params, "outDataType"),
        names=names,
    )
