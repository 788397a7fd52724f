"""Kernels of the device, step by step in the types that its public sources name.

They share nothing with the golden operators but the operator's name and parameters: NumPy's own
float16, blocks of keys as the device walks them, quantisers with their casts. What they produce is
what a healthy device produces, so that a standard that alarms at one of them would accuse it.
``None`` is returned for parameters that a kernel does not take. Sources are kernels of the public
acceleration library (commit ddcc8b6), named at each function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from ait_llm.opcheck.selftest.emulated_attention import (
    Array,
    Inputs,
    given_of,
    paged_attention,
    self_attention,
)
from ait_llm.opcheck.selftest.emulated_float_attention import (
    laser_attention_grad,
    latent_prefill,
    razor_fusion_attention,
    relay_attention,
    ring_mla,
)

Emulate = Callable[[Inputs, Mapping[str, Any]], list[Array] | None]

_HALF = np.float16
emulations: dict[str, Emulate] = {
    "SelfAttentionOperation": self_attention,
    "PagedAttentionOperation": paged_attention,
    "RelayAttentionOperation": relay_attention,
    "RazorFusionAttentionOperation": razor_fusion_attention,
    "LaserAttentionGradOperation": laser_attention_grad,
    "MultiLatentAttentionOperation": latent_prefill,
    "RingMLAOperation": ring_mla,
}
# Those that take bfloat16, too.
IN_BFLOAT16 = frozenset(
    {
        "RelayAttentionOperation",
        "RazorFusionAttentionOperation",
        "LaserAttentionGradOperation",
        "MultiLatentAttentionOperation",
        "RingMLAOperation",
    }
)


def as_array(tensor: Tensor | None) -> Array | None:
    """A tensor of any type that NumPy has with ``ml_dtypes``."""
    if tensor is None or tensor.dtype != torch.bfloat16:
        return None if tensor is None else tensor.numpy()
    array: Array = tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return array


def as_tensor(array: Array) -> Tensor:
    """The inverse of :func:`as_array`."""
    array = np.ascontiguousarray(array)
    if array.dtype != ml_dtypes.bfloat16:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)


def _emulates(name: str) -> Callable[[Emulate], Emulate]:
    def add(emulate: Emulate) -> Emulate:
        emulations[name] = emulate
        return emulate

    return add


# ---- matrix products ------------------------------------------------------------------------


@_emulates("LinearOperation")
def linear(inputs: Inputs, params: Mapping[str, Any]) -> list[Array] | None:
    """int8 with a 64-bit scale: the matrix unit takes the upper 19 bits of its float32."""
    given = given_of(inputs)
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
    x = given_of(inputs)[0]
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
    x = given_of(inputs)[0]
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
    given = given_of(inputs)
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
    given = given_of(inputs)
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


def scale_bits(values: Array) -> Array:
    """float32 scales as the 64-bit integers that a quantised product takes."""
    return values.astype(np.float32).view(np.uint32).astype(np.int64)
