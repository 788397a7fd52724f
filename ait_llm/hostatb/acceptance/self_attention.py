"""What SelfAttention's parameters may be together."""

from __future__ import annotations

from ait_llm.core import DType
from ait_llm.hostatb.acceptance.base import Params, require_param
from ait_llm.hostatb.acceptance.table import has_section
from ait_llm.hostatb.params.attention import SelfAttentionParam

Mask = SelfAttentionParam.MaskType
Calc = SelfAttentionParam.CalcType
Quant = SelfAttentionParam.QuantType
QKV = (Quant.TYPE_QUANT_QKV_OFFLINE, Quant.TYPE_QUANT_QKV_ONLINE)
SLOPES = (
    Mask.MASK_TYPE_ALIBI_COMPRESS,
    Mask.MASK_TYPE_ALIBI_COMPRESS_SQRT,
    Mask.MASK_TYPE_ALIBI_COMPRESS_LEFT_ALIGN,
)
WINDOWS = (Mask.MASK_TYPE_SLIDING_WINDOW_NORM, Mask.MASK_TYPE_SLIDING_WINDOW_COMPRESS)
MOST_LATENT = 576
_HALF = (DType.FLOAT16.code, DType.BFLOAT16.code)
_PRECISE, _FAST = 1, 2  # kernelType


def is_latent(params: Params) -> bool:
    """Keys and values are in one tensor."""
    return bool(params["mlaVHeadSize"] > 0)


def is_bnsd(params: Params) -> bool:
    """Heads come before the sequence."""
    return bool(params["inputLayout"] == 1)


def is_bypass(params: Params) -> bool:
    """There are no new keys and values beside the cache."""
    return bool(params["kvcacheCfg"] == 1)


def has_mask(params: Params) -> bool:
    """One of the inputs is a mask."""
    mask = params["maskType"]
    windowed = params["calcType"] == Calc.DECODER and mask == WINDOWS[0]
    return mask not in (Mask.MASK_TYPE_UNDEFINED, Mask.MASK_TYPE_CAUSAL_MASK) and not windowed


def kv_heads_of(params: Params) -> int:
    """Heads of keys and values."""
    return int(params["kvHeadNum"] or params["headNum"])


def _forbid(params: Params, mode: str, *names: str) -> None:
    for name in names:
        require_param(not params[name], name, params[name], f"0 ({mode})")


def create(params: Params) -> None:
    """Look at the parameters.

    Raises:
        RefusedError: they do not go together.
    """
    heads, kv_heads = params["headNum"], params["kvHeadNum"]
    require_param(heads > 0, "headNum", heads, "> 0")
    fits = kv_heads >= 0 and (kv_heads == 0 or heads % kv_heads == 0)
    require_param(fits, "kvHeadNum", kv_heads, f"0, {heads} / n")
    mask, calc, quant = params["maskType"], params["calcType"], params["quantType"]
    require_param(quant != Quant.TYPE_DEQUANT_FUSION, "quantType", int(quant), "0, 2, 3")
    if quant in QKV:
        out = int(params["outDataType"])
        require_param(out in _HALF, "outDataType", out, "1, 27 (quantType)")
        require_param(calc == Calc.PA_ENCODER, "calcType", int(calc), "3 (quantType)")
        _forbid(params, "quantType", "scaleType")
    if calc == Calc.PA_ENCODER:
        _forbid(params, "calcType 3", "kvcacheCfg")
    elif calc != Calc.PREFIX_ENCODER:
        require_param(mask not in SLOPES, "maskType", int(mask), "0 to 3, 7 to 9")
    if mask == Mask.MASK_TYPE_UNDEFINED:
        require_param(params["isTriuMask"] != 1, "isTriuMask", 1, "0 (maskType 0)")
    if is_bnsd(params):
        _create_bnsd(params)
    if is_latent(params):
        _create_latent(params)
    _create_window(params)
    kernel = int(params["kernelType"])
    require_param(kernel != _FAST, "kernelType", kernel, "0, 1")
    if calc == Calc.PREFIX_ENCODER:
        _create_prefix(params)


def _create_bnsd(params: Params) -> None:
    mode, calc = "inputLayout 1", params["calcType"]
    _forbid(params, mode, "scaleType", "quantType")
    require_param(calc != Calc.PREFIX_ENCODER, "calcType", int(calc), f"0 to 3 ({mode})")
    if calc == Calc.PA_ENCODER:
        _forbid(params, mode, "mlaVHeadSize", "kernelType", "maskType")
        return
    require_param(is_bypass(params), "kvcacheCfg", int(params["kvcacheCfg"]), f"1 ({mode})")
    require_param(params["maskType"] != 0, "maskType", 0, f"> 0 ({mode})")


def _create_latent(params: Params) -> None:
    mode, calc, mask = "mlaVHeadSize", params["calcType"], params["maskType"]
    require_param(calc == Calc.PA_ENCODER, "calcType", int(calc), f"3 ({mode})")
    allowed = (Mask.MASK_TYPE_UNDEFINED, Mask.MASK_TYPE_NORM, *WINDOWS)
    require_param(mask in allowed, "maskType", int(mask), f"0, 1, 7, 8 ({mode})")
    _forbid(params, mode, "scaleType", "clampType")
    size = params["mlaVHeadSize"]
    require_param(size <= MOST_LATENT, mode, size, f"<= {MOST_LATENT}")


def _create_window(params: Params) -> None:
    window, mask = params["windowSize"], params["maskType"]
    if window == 0 and mask not in WINDOWS:
        _forbid(params, "windowSize 0", "cacheType")
        return
    fits = window > 0 and mask in WINDOWS
    require_param(fits, "windowSize", window, "> 0 (maskType 7, 8), 0")
    wrong = mask == WINDOWS[1] and params["calcType"] == Calc.DECODER
    require_param(not wrong, "calcType", int(params["calcType"]), "0, 1, 3 (maskType 8)")
    _forbid(
        params, "windowSize", "batchRunStatusEnable", "kernelType", "clampType", "quantType",
        "scaleType", "inputLayout",
    )  # fmt: skip


def _create_prefix(params: Params) -> None:
    mode, mask = "calcType 4", params["maskType"]
    _forbid(params, mode, "quantType", "batchRunStatusEnable", "clampType", "clampMin", "clampMax")
    out = int(params["outDataType"])
    require_param(out == -1, "outDataType", out, f"-1 ({mode})")
    require_param(params["qScale"] == 1, "qScale", params["qScale"], f"1 ({mode})")
    triangle, kernel = params["isTriuMask"], int(params["kernelType"])
    require_param(triangle == 1, "isTriuMask", triangle, f"1 ({mode})")
    require_param(kernel == _PRECISE, "kernelType", kernel, f"1 ({mode})")
    allowed = (*SLOPES[:2], Mask.MASK_TYPE_NORM_COMPRESS, Mask.MASK_TYPE_CAUSAL_MASK)
    require_param(mask in allowed, "maskType", int(mask), f"3, 4, 5, 9 ({mode})")
    _forbid(params, mode, "kvcacheCfg", "scaleType", "inputLayout", "cacheType", "mlaVHeadSize")


def table(params: Params) -> str:
    """The section of the operator table; combinations without one are not looked at."""
    name = "SelfAttentionOperation" + _variant(params)
    return name if has_section(name) else ""


def _variant(params: Params) -> str:
    calc, mask = params["calcType"], params["maskType"]
    if calc == Calc.PA_ENCODER:
        return _encoder_variant(params)
    if calc == Calc.PREFIX_ENCODER:
        kinds = {Mask.MASK_TYPE_NORM_COMPRESS: "", Mask.MASK_TYPE_CAUSAL_MASK: "CausalMask"}
        return "PrefixEncoder" + kinds.get(mask, "Slopes")
    return (
        f"Logn{int(params['scaleType'])}Kv{not is_bypass(params):d}Mask{has_mask(params):d}"
        f"Slopes{mask in SLOPES[:2]:d}Batch{params['batchRunStatusEnable']:d}"
    )


def _encoder_variant(params: Params) -> str:
    """Two kinds of quantisation ask for sections that do not exist: nothing is looked at."""
    quant, mask = params["quantType"], params["maskType"]
    no_mask, slopes = mask == Mask.MASK_TYPE_UNDEFINED, mask in SLOPES
    kind = "Mask0" if no_mask else "Slopes1" if slopes else ""
    if params["scaleType"] == 1:
        return f"EncoderLogn1{kind}"
    if is_latent(params):
        name = "MLA" + ("" if no_mask else "Mask")
        return name + {QKV[0]: "QuantOffline", QKV[1]: "QuantOnline"}.get(quant, "")
    if is_bnsd(params):
        return "EncoderBNSD"
    if quant == QKV[0] and not no_mask:
        return f"EncoderQKVQuantOffline{kind}"
    return "none" if quant in QKV else f"Encoder{kind}"
