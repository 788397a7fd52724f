"""Parameters of MultiLatentAttention and the inputs that they imply."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ait_llm.opcheck.golden.base import Params, Refusal
from ait_llm.opcheck.golden.support import enum_param, float_param, int_param, refused

NAME = "MultiLatentAttentionOperation"


class MaskType(IntEnum):
    """Values of ``maskType``."""

    NONE = 0
    SPEC = 1
    MASK_FREE = 2
    CAUSAL = 3
    SWA_NORM = 4


class CalcType(IntEnum):
    """Values of ``calcType``."""

    NONE = 0
    SPEC = 1
    RING = 2
    SPEC_AND_RING = 3
    PREFILL = 4


class CacheMode(IntEnum):
    """Values of ``cacheMode``, of MultiLatentAttention and MlaPreprocess."""

    KVCACHE = 0
    KROPE_CTKV = 1
    INT8_NZCACHE = 2
    NZCACHE = 3


@dataclass(frozen=True, slots=True)
class Config:
    """The parameters, and the names of the inputs that they imply, in order."""

    heads: int
    kv_heads: int
    scale: float
    mask: MaskType
    calc: CalcType
    cache: CacheMode
    window: int
    names: tuple[str, ...]

    @property
    def prefill(self) -> bool:
        return self.calc is CalcType.PREFILL

    @property
    def ring(self) -> bool:
        return self.calc in (CalcType.RING, CalcType.SPEC_AND_RING)


def read_config(params: Params) -> Config:
    """Read the parameters.

    Raises:
        OperationError: they exclude each other.
    """
    heads, kv_heads = (int_param(NAME, params, key, 0) for key in ("headNum", "kvHeadNum"))
    mask = enum_param(NAME, params, "maskType", MaskType, 0)
    calc = enum_param(NAME, params, "calcType", CalcType, 0)
    cache = enum_param(NAME, params, "cacheMode", CacheMode, 0)
    window = int_param(NAME, params, "windowSize", 0)
    prefill = calc is CalcType.PREFILL
    spec = calc in (CalcType.SPEC, CalcType.SPEC_AND_RING)
    refusals = {
        f"headNum is {heads}; it takes at least 1": heads < 1,
        f"kvHeadNum is {kv_heads}; it takes a divisor of headNum, 1 while decoding": (
            kv_heads < 1 or heads % kv_heads if prefill else kv_heads != 1
        ),
        f"maskType {mask.name} needs calcType SPEC, SPEC_AND_RING or PREFILL": (
            mask is not MaskType.NONE and not spec and not prefill
        ),
        "maskType SPEC does not go with calcType PREFILL": mask is MaskType.SPEC and prefill,
        "maskType SWA_NORM goes with calcType PREFILL and a windowSize": (
            mask is MaskType.SWA_NORM and (not prefill or window < 1)
        ),
        f"cacheMode is {cache.name}; PREFILL takes KROPE_CTKV": (
            prefill and cache is not CacheMode.KROPE_CTKV
        ),
        "cacheMode is KVCACHE; it takes KROPE_CTKV, INT8_NZCACHE or NZCACHE": (
            not prefill and cache is CacheMode.KVCACHE
        ),
    }
    for reason, wrong in refusals.items():
        if wrong:
            raise refused(NAME, reason, Refusal.PARAM)
    has_mask = mask not in (MaskType.NONE, MaskType.CAUSAL)
    if prefill:
        names = ["query", "query_rope", "key", "key_rope", "value", "query_lengths", "key_lengths"]
        optional = {"mask": has_mask}
    else:
        names = ["query", "query_rope", "cache", "rope_cache", "tables", "key_lengths"]
        int8 = cache is CacheMode.INT8_NZCACHE
        optional = {
            "mask": has_mask,
            "query_lengths": spec,
            "score_scale": int8,
            "value_scale": int8,
            "mask_status": bool(int_param(NAME, params, "maskUseStatusType", 0)),
        }
    names += [name for name, present in optional.items() if present]
    scale = float_param(NAME, params, "qkScale", 1.0)
    return Config(heads, kv_heads, scale, mask, calc, cache, window, tuple(names))
