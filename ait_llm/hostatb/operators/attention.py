"""Kernels of Rope, SelfAttention and PagedAttention."""

from __future__ import annotations

from typing import Any

from ait_llm.core import DType
from ait_llm.hostatb.operators.launch import Descs, Param, single_kernel
from ait_llm.hostatb.params.attention import PagedAttentionParam, SelfAttentionParam
from ait_llm.hostatb.spec import OperatorSpec, Plan, operator_specs

_Self = SelfAttentionParam
_Paged = PagedAttentionParam
_Mask = SelfAttentionParam.MaskType
_ROPE_TILING = 64
_ATTENTION_TILING = 1024
_COMPRESSED_ALIBI = (
    _Mask.MASK_TYPE_ALIBI_COMPRESS,
    _Mask.MASK_TYPE_ALIBI_COMPRESS_SQRT,
    _Mask.MASK_TYPE_ALIBI_COMPRESS_LEFT_ALIGN,
)
# The kernel library numbers some masks differently from the operation.
_MKI_MASKS: dict[int, int] = {
    _Mask.MASK_TYPE_NORM_COMPRESS: 1,
    **dict.fromkeys(_COMPRESSED_ALIBI, 2),
    _Mask.MASK_TYPE_SLIDING_WINDOW_NORM: 4,
    _Mask.MASK_TYPE_SLIDING_WINDOW_COMPRESS: 5,
    _Mask.MASK_TYPE_CAUSAL_MASK: 10,
}

Names = tuple[tuple[str, ...], tuple[str, ...]]


def _rope_plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    return single_kernel(
        "AtbRopeKernel",
        "RopeOperation",
        {"cosFormat": param["cosFormat"], "rotaryCoeff": param["rotaryCoeff"]},
        "RopeOperation",
        param,
        inputs,
        outputs,
        _ROPE_TILING,
    )


def _has_mask(param: Param) -> bool:
    mask = int(param["maskType"])
    if int(param["calcType"]) == _Self.CalcType.DECODER:
        return mask not in (_Mask.MASK_TYPE_UNDEFINED, _Mask.MASK_TYPE_SLIDING_WINDOW_NORM)
    return mask not in (_Mask.MASK_TYPE_UNDEFINED, _Mask.MASK_TYPE_CAUSAL_MASK)


def _optional(*entries: tuple[object, str]) -> tuple[str, ...]:
    return tuple(name for present, name in entries if present)


def _self_names(param: Param) -> Names:
    calc, mask = int(param["calcType"]), int(param["maskType"])
    slopes, quant = mask in _COMPRESSED_ALIBI, int(param["quantType"])
    mask_name = _optional((_has_mask(param), "mask"))
    log_n = _optional((int(param["scaleType"]) == _Self.ScaleType.SCALE_TYPE_LOGN, "logN"))
    if calc == _Self.CalcType.PREFIX_ENCODER:
        inputs = ("query", "key", "value", "blockTables", *mask_name, "seqLen", "kvSeqLen")
        return inputs + _optional((slopes, "slopes")), ("attnOut",)
    if calc == _Self.CalcType.PA_ENCODER:
        value = _optional((not param["mlaVHeadSize"], "value"))
        scales: tuple[str, ...] = ()
        if quant in (_Self.QuantType.TYPE_QUANT_QKV_OFFLINE, _Self.QuantType.TYPE_QUANT_QKV_ONLINE):
            scales = ("qkDescale", "qkOffset", "vpvDescale", "vpvOffset")
        offline = _optional((quant == _Self.QuantType.TYPE_QUANT_QKV_OFFLINE, "pScale"))
        rest = _optional((slopes, "slopes")) + scales + offline + log_n
        return ("query", "key", *value, *mask_name, "seqLen", *rest), ("attnOut",)
    bypass = int(param["kvcacheCfg"]) == _Self.KvCacheCfg.K_BYPASS_V_BYPASS
    new = () if bypass else ("key", "value")
    rest = _optional((param["batchRunStatusEnable"], "batchRunStatus"), (slopes, "slopes")) + log_n
    caches = ("cacheK", "cacheV", *mask_name, "tokenOffset", "seqLen", "layerId")
    return ("query", *new, *caches, *rest), ("attnOut",)


def _self_updated_inputs(param: Param) -> tuple[int, ...]:
    bypass = int(param["kvcacheCfg"]) == _Self.KvCacheCfg.K_BYPASS_V_BYPASS
    contiguous = int(param["calcType"]) <= _Self.CalcType.DECODER
    return (3, 4) if contiguous and not bypass else ()


def _self_kernel(param: Param, inputs: Descs) -> tuple[str, int]:
    """Kernel name and number of the kernel library's type."""
    calc = int(param["calcType"])
    precise = int(param["kernelType"]) == _Self.KernelType.KERNELTYPE_HIGH_PRECISION
    bf16 = inputs[0].dtype is DType.BFLOAT16 or int(param["outDataType"]) == DType.BFLOAT16.code
    if calc == _Self.CalcType.PREFIX_ENCODER:
        return "UnpadFlashAttentionBF16PrefixCacheNdKernel", 2012
    if calc == _Self.CalcType.PA_ENCODER and param["mlaVHeadSize"]:
        return "MultiLatentAttentionEncoderCombineCacheKernel", 2010 if precise else 2008
    if calc == _Self.CalcType.DECODER:
        return "UnpadFlashAttentionDecoderNdKernel", 12
    default = 10 if calc == _Self.CalcType.PA_ENCODER else 1
    name = f"UnpadFlashAttention{'BF16' if bf16 or precise else ''}NdKernel"
    return name, 2001 if precise else default


def _self_plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    name, kind = _self_kernel(param, inputs)
    mask = int(param["maskType"])
    logn = int(param["scaleType"]) == _Self.ScaleType.SCALE_TYPE_LOGN
    mki_param: dict[str, Any] = {
        "type": kind,
        "headSize": param["headNum"],
        "qSeqLen": [],
        "kvSeqLen": [],
        "tor": param["qkScale"],
        "kvHead": param["kvHeadNum"],
        "batchRunStatus": [],
        "isClamp": int(param["clampType"]),
        "clampMin": param["clampMin"],
        "clampMax": param["clampMax"],
        "maskType": _MKI_MASKS.get(mask, mask),
        "alibiLeftAlign": int(mask == _Mask.MASK_TYPE_ALIBI_COMPRESS_LEFT_ALIGN),
        "isAlibiMaskSqrt": int(mask == _Mask.MASK_TYPE_ALIBI_COMPRESS_SQRT),
        "compressHead": False,
        "isTriuMask": param["isTriuMask"],
        "quantType": int(param["quantType"]),
        "outDataType": int(param["outDataType"]),
        "scaleType": 2 if logn else 0,
        "windowSize": param["windowSize"],
        "cacheType": int(param["cacheType"]),
        "headDimV": param["mlaVHeadSize"],
        "kvShareMap": [],
        "kvShareLen": [],
    }
    return single_kernel(
        name,
        "UnpadFlashAttentionOperation",
        mki_param,
        "SelfAttentionOperation",
        param,
        inputs,
        outputs,
        _ATTENTION_TILING,
    )


def _paged_names(param: Param) -> Names:
    quant, offset = int(param["quantType"]), param["hasQuantOffset"]
    value = _optional((not param["mlaVHeadSize"], "value"))
    scales: tuple[str, ...] = ()
    if quant == _Paged.QuantType.TYPE_DEQUANT_FUSION:
        scales = ("kDescale", "kOffset", "vDescale", "vOffset")[:: 1 if offset else 2]
    elif quant != _Paged.QuantType.TYPE_QUANT_UNQUANT:
        scales = ("kDescale", "vDescale")
    rope = int(param["compressType"]) == _Paged.CompressType.COMPRESS_TYPE_KVHEAD_ROPE
    rest = _optional(
        (int(param["calcType"]) == _Paged.CalcType.CALC_TYPE_SPEC, "qSeqLen"),
        (rope, "razorOffset"),
        (quant == _Paged.QuantType.TYPE_QUANT_QKV_OFFLINE, "pScale"),
        (int(param.get("scaleType", 0)) == _Paged.ScaleType.SCALE_TYPE_LOGN, "logN"),
    )
    mask = _optional((param["maskType"], "mask"), (param["batchRunStatusEnable"], "batchRunStatus"))
    return ("query", "key", *value, "blockTable", "contextLen", *mask, *scales, *rest), ("paOut",)


def _paged_plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    name, kind = "PagedAttentionMaskNdKernel", 2002
    if param["mlaVHeadSize"] and int(param["calcType"]) == _Paged.CalcType.CALC_TYPE_SPEC:
        name, kind = "PagedMultiLatentAttentionMultiTokenPredictionMaskNdKernel", 2006
    elif param["mlaVHeadSize"]:
        name, kind = "PagedMultiLatentAttentionCombineCacheMaskNdKernel", 2005
    logn = int(param.get("scaleType", 0)) == _Paged.ScaleType.SCALE_TYPE_LOGN
    mki_param: dict[str, Any] = {
        "type": kind,
        "isTriuMask": 0,
        "identityM": [0],
        "headSize": param["headNum"],
        "tor": param["qkScale"],
        "kvHead": param["kvHeadNum"],
        "maskType": int(param["maskType"]),
        "qSeqLen": [],
        "kvSeqLen": [],
        "batchRunStatus": [],
        "compressHead": bool(param["compressType"]),
        "quantType": int(param["quantType"]),
        "outDataType": int(param.get("outDataType", -1)),
        "scaleType": 2 if logn else 0,
        "headDimV": param["mlaVHeadSize"],
    }
    return single_kernel(
        name,
        "PagedAttentionOperation",
        mki_param,
        "PagedAttentionOperation",
        param,
        inputs,
        outputs,
        _ATTENTION_TILING,
    )


for _spec in (
    OperatorSpec(
        "RopeOperation",
        lambda _: (("x1", "x2", "x3", "x4", "x5"), ("output1", "output2")),
        _rope_plan,
    ),
    OperatorSpec(
        "SelfAttentionOperation", _self_names, _self_plan, updated_inputs=_self_updated_inputs
    ),
    OperatorSpec("PagedAttentionOperation", _paged_names, _paged_plan),
):
    operator_specs.register(_spec.name)(_spec)
