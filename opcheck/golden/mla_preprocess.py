"""MlaPreprocess: everything before latent attention, from hidden states to query and caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, KernelArithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.layout import nz_to_nd
from ait_llm.opcheck.golden.multi_latent_attention_config import CacheMode
from ait_llm.opcheck.golden.products import integer_matmul, wide_matmul
from ait_llm.opcheck.golden.quantise import (
    divide_quant,
    dynamic_quant_symmetric,
    matrix_unit_scale,
    to_int8,
)
from ait_llm.opcheck.golden.rms_norm import reciprocal_rms
from ait_llm.opcheck.golden.rope import rotate_half
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    I8,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.slots import write_slots
from ait_llm.opcheck.golden.support import (
    enum_param,
    float_param,
    optional_at,
    refused,
    tensor_at,
)

NAME = "MlaPreprocessOperation"
_NAMES = (
    *("x", "gamma0", "beta0", "quant_scale0", "quant_offset0", "wdqkv", "scale0", "bias0"),
    *("gamma1", "beta1", "quant_scale1", "quant_offset1", "wuq", "scale1", "bias1", "gamma2"),
    *("cos", "sin", "wuk", "cache", "rope_cache", "slots", "cache_scale", "query_scale"),
)
_AT = {name: index for index, name in enumerate(_NAMES)}
_LATENT, _ROPE, _QUERY = 512, 64, 1536


class QuantMode(IntEnum):
    """Values of ``quantMode``."""

    PER_TENSOR_ASYMMETRIC = 0
    PER_TOKEN_SYMMETRIC = 1
    PER_TOKEN_ASYMMETRIC = 2
    NONE = 3


def _cache_mode(params: Params) -> CacheMode:
    return enum_param(NAME, params, "cacheMode", CacheMode, 0)


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Query ``[T, H, 576]`` and cache; split: latent query, cache, rotated query, its cache."""
    check_count(NAME, descs, len(_NAMES))
    check_dtypes(NAME, descs, [(F16, F16), (BF16, BF16)])
    check_rank(NAME, descs, 0, 2)
    mode = _cache_mode(params)
    quant = enum_param(NAME, params, "quantMode", QuantMode, 0)
    if quant in (QuantMode.PER_TOKEN_ASYMMETRIC, QuantMode.NONE):
        raise refused(NAME, f"quantMode is {quant.name}; the kernel takes 0 or 1")
    tokens, wuk, cache = descs[0].shape[0], descs[_AT["wuk"]].shape, descs[_AT["cache"]]
    heads = wuk[0] if wuk else 0
    if tokens < 1 or heads < 1:
        raise refused(NAME, f"there are {tokens} tokens and {heads} heads; it takes at least 1")
    for name, shape in {
        "gamma1": (_QUERY,),
        "gamma2": (_LATENT,),
        "scale0": (_LATENT + _ROPE + _QUERY,),
        "scale1": (heads * 192,),
        "cos": (tokens, _ROPE),
        "sin": (tokens, _ROPE),
        "slots": (tokens,),
    }.items():
        if not descs[_AT[name]].is_absent or name not in ("scale0", "scale1"):
            check_shape(NAME, descs, _AT[name], shape)
    query = replace(descs[0], (tokens, heads, _LATENT + _ROPE))
    if mode is CacheMode.KVCACHE:
        return query, cache
    latent = replace(
        query, (tokens, heads, _LATENT), I8 if mode is CacheMode.INT8_NZCACHE else None
    )
    return latent, cache, replace(query, (tokens, heads, _ROPE)), descs[_AT["rope_cache"]]


@dataclass(frozen=True, slots=True)
class _Chain:
    """The steps, which all round to the dtype of the hidden states."""

    inputs: Sequence[Tensor | None]
    arithmetic: Arithmetic
    epsilon: float
    quant: QuantMode

    def need(self, name: str) -> Tensor:
        return tensor_at(NAME, self.inputs, _AT[name])

    def find(self, name: str) -> Tensor | None:
        return optional_at(self.inputs, _AT[name])

    @property
    def dtype(self) -> torch.dtype:
        return self.need("x").dtype

    def rounded(self, values: Tensor) -> Tensor:
        """What the next kernel reads."""
        return values.to(self.dtype)

    def norm(self, values: Tensor, number: int) -> Tensor:
        wide = self.arithmetic.widen(values)
        y = wide * reciprocal_rms(wide, (-1,), self.epsilon)
        y = y * self.arithmetic.widen(self.need(f"gamma{number}"))
        beta = self.find(f"beta{number}") if number < 2 else None
        return y if beta is None else y + self.arithmetic.widen(beta)

    def weight(self, name: str) -> Tensor:
        """``[N, K]``, NZ blocks joined."""
        weight = self.need(name)
        return nz_to_nd(weight).flatten(0, -2) if weight.dim() == 4 else weight

    def project(self, values: Tensor, number: int, name: str) -> Tensor:
        """Norm, quantisation and dequantised product; plain norm and product for float weights.

        The first norm is left out before a float weight: hidden states come normalised then.
        """
        weight = self.weight(name).T
        if weight.dtype != torch.int8:
            x = values if number == 0 else self.rounded(self.norm(values, number))
            return self.rounded(wide_matmul(x, weight, self.arithmetic))
        y = self.norm(values, number)
        row_scale = None
        if self.quant is QuantMode.PER_TENSOR_ASYMMETRIC:
            scale, offset = self.need(f"quant_scale{number}"), self.need(f"quant_offset{number}")
            quantised = divide_quant(y, scale, offset, self.arithmetic.int8_min)
        elif self.quant is QuantMode.PER_TOKEN_SYMMETRIC:
            half = y.to(torch.float16)
            quantised, row_scale = dynamic_quant_symmetric(
                half, self.arithmetic.int8_min, half_steps=False
            )
        else:
            raise refused(NAME, f"quantMode is {self.quant.name}; int8 weights take 0 or 1")
        product = integer_matmul(quantised, weight)
        bias, scale = self.find(f"bias{number}"), matrix_unit_scale(self.need(f"scale{number}"))
        if row_scale is None:
            total = product if bias is None else product + bias.reshape(-1)
            return self.rounded(total.float() * scale.reshape(-1))
        product = product.float() * scale.reshape(-1) * row_scale.unsqueeze(-1)
        return self.rounded(product if bias is None else product + bias.reshape(-1).float())

    def rotate(self, values: Tensor) -> Tensor:
        """Rotate heads ``[T, H, 64]``."""
        cos, sin = (self.arithmetic.widen(self.need(name)).unsqueeze(1) for name in ("cos", "sin"))
        return self.rounded(rotate_half(self.arithmetic.widen(values), cos, sin))

    def absorb(self, heads: Tensor) -> Tensor:
        """``[T, H, nope] . wuk [H, nope, latent]``."""
        weight = self.need("wuk")
        weight = nz_to_nd(weight) if weight.dim() == 4 else weight
        wide = torch.einsum(
            "mbk,bkn->mbn", self.arithmetic.widen(heads), self.arithmetic.widen(weight)
        )
        return self.rounded(wide)


# Golden rounds where the reference says that kernels do: after both norms and both products. Each
# of the four moves one factor of a product, which is half of what moving all inputs does.
_KERNEL = KernelArithmetic(quantises=True, roundings=2, shared=True)


@golden_op(NAME, infer_shape=infer_shape, kernel=_KERNEL)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Latent key, rotated key and query heads of each token; both keys go into paged caches.

    Projection of the hidden states to latent key, rotated key and query; norm and projection of the
    query to heads of a plain and a rotated part; plain parts multiplied into the latent space;
    norm of the latent key; half rotations. Each step rounds to the dtype of the hidden states.
    Cache mode 2 quantises latent queries ``x * query_scale[h]`` and keys ``x / cache_scale``.

    Inputs: 24, in the order of the operator table. Outputs: query (plain, then rotated) and cache;
    in modes 1 to 3 latent query, cache, rotated query and its cache. Sizes follow from the tensors.
    What float weights do with ``beta`` is not published; it is added where it is not empty.
    """
    mode = _cache_mode(params)
    chain = _Chain(
        inputs,
        arithmetic,
        float_param(NAME, params, "epsilon", 1e-5),
        enum_param(NAME, params, "quantMode", QuantMode, 0),
    )
    x, slots, cache = chain.need("x"), chain.need("slots"), chain.need("cache")
    latent_size, rope = chain.need("gamma2").numel(), chain.need("cos").shape[-1]
    heads, plain = chain.need("wuk").shape[0], chain.need("wuk").shape[-2]
    down = chain.project(x, 0, "wdqkv")
    sizes = [latent_size, rope, down.shape[1] - latent_size - rope]
    latent, key, query = torch.split(down, sizes, dim=1)
    up = chain.project(query, 1, "wuq").reshape(len(x), heads, plain + rope)
    query_latent, query_rope = chain.absorb(up[..., :plain]), chain.rotate(up[..., plain:])
    key_latent = chain.rounded(chain.norm(latent, 2)).unsqueeze(1)
    key_rope = chain.rotate(key.unsqueeze(1))
    if mode is CacheMode.KVCACHE:
        token = torch.cat([key_latent, key_rope], dim=-1)
        written = write_slots(NAME, cache, token, slots, blocked=False)
        joined = torch.cat([query_latent, query_rope], dim=-1)
        return Result((joined, written), {_AT["cache"]: written})
    if mode is CacheMode.INT8_NZCACHE:
        factor = chain.need("query_scale").float().reshape(1, -1, 1)
        query_latent = to_int8(query_latent.float() * factor, arithmetic.int8_min)
        inverse = 1.0 / chain.need("cache_scale").float()
        key_latent = to_int8(key_latent.float() * inverse, arithmetic.int8_min)
    blocked = mode is not CacheMode.KROPE_CTKV
    rope_cache = chain.need("rope_cache")
    written = write_slots(NAME, cache, key_latent, slots, blocked=blocked)
    rope_written = write_slots(NAME, rope_cache, key_rope, slots, blocked=blocked)
    updated = {_AT["cache"]: written, _AT["rope_cache"]: rope_written}
    return Result((query_latent, written, query_rope, rope_written), updated)
