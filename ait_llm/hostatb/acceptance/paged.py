"""PagedAttention."""

from __future__ import annotations

from ait_llm.core import DType, TensorDesc
from ait_llm.hostatb.acceptance.base import (
    Acceptance,
    Descs,
    Params,
    accept,
    counted_as,
    require_input,
    require_param,
)
from ait_llm.hostatb.acceptance.matrix import require_rank
from ait_llm.hostatb.acceptance.table import has_section
from ait_llm.hostatb.params.attention import PagedAttentionParam
from ait_llm.opcheck.golden.base import Refusal

_Mask = PagedAttentionParam.MaskType
_Quant = PagedAttentionParam.QuantType
_QKV = (_Quant.TYPE_QUANT_QKV_OFFLINE, _Quant.TYPE_QUANT_QKV_ONLINE)
_MOST_LATENT, _MOST_BATCH = 576, 8192
_HALF = (DType.FLOAT16.code, DType.BFLOAT16.code)


def _is_spec(params: Params) -> bool:
    return bool(params["calcType"] == 1)


def _is_latent(params: Params) -> bool:
    return bool(params["mlaVHeadSize"] > 0)


def _is_bnsd(params: Params) -> bool:
    return bool(params["inputLayout"] == 1)


def _forbid(params: Params, mode: str, *names: str) -> None:
    """Other modes that a mode excludes."""
    for name in names:
        require_param(not params[name], name, int(params[name]), f"0 ({mode})")


def _create(params: Params) -> None:
    heads, kv_heads = params["headNum"], params["kvHeadNum"]
    require_param(heads > 0, "headNum", heads, "> 0")
    fits = kv_heads >= 0 and (kv_heads == 0 or heads % kv_heads == 0)
    require_param(fits, "kvHeadNum", kv_heads, f"0, {heads} / n")
    mask, quant = params["maskType"], params["quantType"]
    if params["compressType"] == 2:
        _forbid(params, "compressType 2", "maskType", "batchRunStatusEnable")
    if _is_spec(params):
        _forbid(params, "calcType 1", "batchRunStatusEnable", "compressType")
        fits = _is_latent(params) or mask in (_Mask.MASK_TYPE_NORM, _Mask.MASK_TYPE_SPEC)
        require_param(fits, "maskType", int(mask), "1, 3 (calcType 1)")
    if quant == _Quant.TYPE_DEQUANT_FUSION:
        _forbid(params, "quantType 1", "calcType")
    if quant in _QKV:
        out = int(params["outDataType"])
        require_param(out in _HALF, "outDataType", out, "1, 27 (quantType)")
        _forbid(params, "quantType", "hasQuantOffset", "compressType", "calcType")
    if params["scaleType"] == 1:
        _forbid(params, "scaleType 1", "quantType", "calcType", "compressType")
    if _is_bnsd(params):
        _forbid(params, "inputLayout 1", "calcType", "compressType", "quantType", "scaleType")
    if _is_latent(params):
        _create_latent(params)


def _create_latent(params: Params) -> None:
    mask, mode = params["maskType"], "mlaVHeadSize"
    require_param(mask != _Mask.MASK_TYPE_ALIBI, "maskType", int(mask), f"0, 1, 3 ({mode})")
    if _is_spec(params):
        require_param(mask != _Mask.MASK_TYPE_NORM, "maskType", int(mask), f"0, 3 ({mode})")
        _forbid(params, mode, "quantType")
    _forbid(params, mode, "compressType", "scaleType", "inputLayout")
    quant = params["quantType"]
    wanted = quant != _Quant.TYPE_DEQUANT_FUSION
    require_param(wanted, "quantType", int(quant), f"0, 2, 3 ({mode})")
    require_param(params["kvHeadNum"] == 1, "kvHeadNum", params["kvHeadNum"], f"1 ({mode})")
    size = params["mlaVHeadSize"]
    require_param(size <= _MOST_LATENT, mode, size, f"<= {_MOST_LATENT}")


def _table(params: Params) -> str:
    """Combinations without a section are not looked at."""
    name = (_latent_name if _is_latent(params) else _plain_name)(params)
    return name if has_section(name) else ""


def _latent_name(params: Params) -> str:
    quant = params["quantType"]
    name = "PagedAttentionOperationMla" + ("Mask" if params["maskType"] else "")
    name += "Batch" if params["batchRunStatusEnable"] else ""
    name += {_QKV[0]: "QuantOffline", _QKV[1]: "QuantOnline"}.get(quant, "")
    return name + ("Qlens" if _is_spec(params) else "")


def _plain_name(params: Params) -> str:
    quant = params["quantType"]
    if params["scaleType"] == 1:
        head = "LogN1"
    else:
        head = f"QKVQuantOnline{quant == _QKV[1]:d}QKVQuantOffline{quant == _QKV[0]:d}"
    return (
        f"PagedAttentionOperation{head}RazorOffset{params['compressType'] == 2:d}"
        f"QLens{_is_spec(params):d}Mask{params['maskType'] != 0:d}"
        f"Batch{params['batchRunStatusEnable']:d}"
        f"Quant{quant == _Quant.TYPE_DEQUANT_FUSION:d}Offset{params['hasQuantOffset']:d}"
    )


def _inputs(params: Params, inputs: Descs) -> None:
    if _is_bnsd(params):
        _bnsd_inputs(inputs)
    else:
        _bsnd_inputs(params, inputs)
    if params["maskType"] == _Mask.MASK_TYPE_MASK_FREE:
        require_param(False, "maskType", int(params["maskType"]), "0 to 3", Refusal.DIM)


def _bnsd_inputs(inputs: Descs) -> None:
    query, keys, values = inputs[:3]
    for index, rank in enumerate((3, 4, 4, 2, 1)):
        require_rank(index, inputs[index], rank)
    size = query.shape[2]
    require_input(keys.shape[3] == size, 1, keys, f"[n, h, s, {size}]")
    fits = values.shape[::2] == keys.shape[::2] and values.shape[3] == size
    require_input(fits, 2, values, f"[{keys.shape[0]}, h, {keys.shape[2]}, {size}]")


def _bsnd_inputs(params: Params, inputs: Descs) -> None:
    latent = _is_latent(params)
    query, keys = inputs[:2]
    tables = 2 if latent else 3
    if not latent:
        require_rank(2, inputs[2], 4)
    for index, rank in ((0, 3), (1, 4), (tables, 2), (tables + 1, 1)):
        require_rank(index, inputs[index], rank)
    if params["batchRunStatusEnable"]:
        for index in (tables, tables + 1):
            fits = inputs[index].shape[0] >= query.shape[0]
            require_input(fits, index, inputs[index], f">= [{query.shape[0]}]")
    size = keys.shape[3]
    values = None if latent else inputs[2]
    if values is not None:
        fits = values.shape[:3] == keys.shape[:3]
        require_input(fits, 2, values, f"{list(keys.shape[:3])} + [d]")
    require_input(size == query.shape[2], 1, keys, f"[n, s, h, {query.shape[2]}]")
    _check_sizes(params, inputs, keys, values)


def _check_sizes(
    params: Params, inputs: Descs, keys: TensorDesc, values: TensorDesc | None
) -> None:
    """Limits of the kernels: of heads and of blocks."""
    size, block = keys.shape[3], keys.shape[1]
    value_size = params["mlaVHeadSize"] if values is None else values.shape[3]
    quant, spec = params["quantType"], _is_spec(params)
    special = quant == _Quant.TYPE_DEQUANT_FUSION or params["scaleType"] == 1
    special = special or params["compressType"] != 0
    if special or (values is not None and (spec or quant in _QKV)):
        if values is not None:
            require_input(value_size == size, 2, values, f"[n, s, h, {size}]")
        fits = size <= 256 and size * block <= 128 * 128
        require_input(fits, 1, keys, "d <= 256, d * s <= 16384")
        return
    require_input(params["mlaVHeadSize"] <= size, 1, keys, f"d >= {params['mlaVHeadSize']}")
    require_input(max(size, value_size) <= _MOST_LATENT, 1, keys, f"d <= {_MOST_LATENT}")
    if values is None:
        # the library looks at the lengths here, whose place is that of block tables elsewhere
        fits = inputs[3].shape[0] <= _MOST_BATCH
        require_input(fits, 3, inputs[3], f"[<= {_MOST_BATCH}]")
        heads = params["kvHeadNum"] == 1 and params["headNum"] in (16, 32)
        if heads and block == 256 and (size, value_size) == (576, 512) and not spec:
            return
    fits = max(size, value_size) <= 256 or block <= 128
    require_input(fits, 1, keys, "d <= 256, s <= 128")


def _setup(params: Params, inputs: Descs) -> None:
    require_rank(1, inputs[1], 4)
    _inputs(params, inputs)
    keys = inputs[1]
    scaled = params["scaleType"] == 1
    if params["compressType"] == 2:
        index = len(inputs) - (2 if scaled else 1)
        wanted = keys.shape[:2]
        require_input(inputs[index].shape == wanted, index, inputs[index], str(list(wanted)))
    if scaled:
        index, batch = len(inputs) - 1, inputs[4].shape[0]
        require_input(inputs[index].shape == (batch,), index, inputs[index], f"[{batch}]")


accept(
    Acceptance("PagedAttentionOperation", _table, _create, _inputs, counted_as(Refusal.DIM), _setup)
)
