"""Latent attention, its preparation, and attention over shared or tiled keys."""

from __future__ import annotations

from ait_llm.hostatb.operators.generic import Names, add, listed
from ait_llm.hostatb.operators.launch import Param
from ait_llm.hostatb.params.attention import MultiLatentAttentionParam, RingMLAParam

_Calc = MultiLatentAttentionParam.CalcType
_Mask = MultiLatentAttentionParam.MaskType
_Cache = MultiLatentAttentionParam.CacheMode
_RINGS = (_Calc.CALC_TYPE_RING, _Calc.CALC_TYPE_SPEC_AND_RING)
_SPECS = (_Calc.CALC_TYPE_SPEC, _Calc.CALC_TYPE_SPEC_AND_RING)
_DECODE = "query queryRope kvCache kvCacheRope block_tables contextLens"
_PREFILL = "query queryRope key keyRope value qSeqLen kvSeqLen"
_PREPROCESS = (
    "input gamma0 beta0 quantScale0 quantOffset0 wdqkv deScale0 bias0 gamma1 beta1 quantScale1 "
    "quantOffset1 wuq deScale1 bias1 gamma2 cos sin wuk kvcache kvCacheRope slotmapping ctkvScale "
    "qNopeScale"
)


def _latent_names(param: Param) -> Names:
    calc, mask = int(param["calcType"]), int(param["maskType"])
    masked = ("mask",) if mask not in (_Mask.UNDEFINED, _Mask.MASK_TYPE_CAUSAL_MASK) else ()
    if calc == _Calc.CALC_TYPE_PREFILL:
        return (*_PREFILL.split(), *masked), ("attenOut",)
    spec = calc in _SPECS
    int8 = int(param["cacheMode"]) == _Cache.INT8_NZCACHE
    inputs = (
        *_DECODE.split(),
        *masked,
        *(("qSeqlen",) if spec else ()),
        *(("qkDescale", "pvDescale") if int8 else ()),
        *(("maskUseStatus",) if int(param["maskUseStatusType"]) else ()),
    )
    # The operator table spells the output in two ways.
    plain = int(param["cacheMode"]) == _Cache.KROPE_CTKV and not spec
    output = "attenOut" if plain else "attenout"
    return inputs, (output, "lseOut") if calc in _RINGS else (output,)


def _preprocess_names(param: Param) -> Names:
    joined = int(param["cacheMode"]) == _Cache.KVCACHE
    outputs = "qOut kvCacheOut" if joined else "qOut0 kvCacheOut0 qOut1 kvCacheOut1"
    return tuple(_PREPROCESS.split()), tuple(outputs.split())


def _preprocess_aliases(param: Param) -> tuple[int | None, ...]:
    joined = int(param["cacheMode"]) == _Cache.KVCACHE
    return (None, 19) if joined else (None, 19, None, 20)


def _ring_names(param: Param) -> Names:
    inputs = ("query_split1", "query_split2", "key_split1", "key_split2", "value", "mask", "seqLen")
    first = int(param["calcType"]) == RingMLAParam.CalcType.CALC_TYPE_FIRST_RING
    return (*inputs, *(() if first else ("prevOut", "prevLse"))), ("attnOut", "softmaxLse")


add("FaUpdateOperation", listed("lse go", "output"))
add("MlaPreprocessOperation", _preprocess_names, aliases=_preprocess_aliases)
add("MultiLatentAttentionOperation", _latent_names)
add(
    "NormRopeReshapeOperation",
    listed("x gamma keyRope cos sin slotMapping keycachein", "keycacheout"),
    aliases=lambda _: (6,),
)
add("RazorFusionAttentionOperation", listed("query key value", "output"))
add(
    "RelayAttentionOperation",
    listed(
        "query key value keyShare valueShare attentionMask seqLen kvSeqLen kvShareMap kvShareLen",
        "output",
    ),
)
add("RingMLAOperation", _ring_names)
