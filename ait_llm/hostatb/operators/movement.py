"""Kernels of Gather, Split, Concat, Slice, Transpose and ReshapeAndCache."""

from __future__ import annotations

from ait_llm.core import FORMAT_FRACTAL_NZ, DType
from ait_llm.hostatb.operators.launch import (
    CONST_TENSOR,
    TBE_TILING,
    Descs,
    Param,
    single_kernel,
)
from ait_llm.hostatb.params.cache import ReshapeAndCacheParam
from ait_llm.hostatb.spec import OperatorSpec, Plan, operator_specs
from ait_llm.opcheck.golden.base import Refusal, RefusedError

_CompressType = ReshapeAndCacheParam.CompressType
_KvCacheCfg = ReshapeAndCacheParam.KvCacheCfg
_TWO_PARTS, _THREE_PARTS = 2, 3


def _bits(dtype: DType) -> int:
    return max(dtype.bits, 8)


def _gather_plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    indices = "I64" if inputs[1].dtype is DType.INT64 else "I32"
    return single_kernel(
        f"Gather{_bits(inputs[0].dtype)}{indices}Kernel",
        "GatherOperation",
        {"axis": [param["axis"]], "batchDims": param["batchDims"]},
        "GatherOperation",
        param,
        inputs,
        outputs,
        TBE_TILING + CONST_TENSOR,
    )


def _split_names(param: Param) -> tuple[tuple[str, ...], tuple[str, ...]]:
    count = int(param["splitNum"])
    if count not in (_TWO_PARTS, _THREE_PARTS):
        raise RefusedError(f"SplitOperation makes 2 or 3 parts, splitNum is {count}", Refusal.PARAM)
    return ("x",), tuple(f"output{index + 1}" for index in range(count))


def _split_plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    sized = bool(param["splitSizes"])
    dtype = "Int64" if inputs[0].dtype is DType.INT64 else "F16"
    return single_kernel(
        f"Split{'V' if sized else ''}{dtype}Output{len(outputs)}Kernel",
        "SplitOperation",
        {"splitDim": param["splitDim"], "splitNum": param["splitNum"]},
        "SplitOperation",
        param,
        inputs,
        outputs,
        TBE_TILING + 2 * CONST_TENSOR if sized else TBE_TILING,
    )


def _concat_plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    dtype = "F32" if outputs[0].dtype is DType.FLOAT32 else "F16"
    return single_kernel(
        f"Concat{dtype}Input2Kernel",
        "ConcatOperation",
        {"concatDim": param["concatDim"]},
        "ConcatOperation",
        param,
        inputs,
        outputs,
    )


def _slice_plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    bits = _bits(outputs[0].dtype)
    width = "F16" if bits == DType.FLOAT16.bits else f"Int{bits}"
    return single_kernel(
        f"Slice{width}Int64Kernel",
        "SliceOperation",
        {"offsets": param["offsets"], "size": param["size"]},
        "SliceOperation",
        param,
        inputs,
        outputs,
        TBE_TILING + 2 * CONST_TENSOR,
    )


def _transpose_plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    return single_kernel(
        f"Transpose{_bits(inputs[0].dtype)}Kernel",
        "TransposeOperation",
        {"perm": param["perm"]},
        "TransposeOperation",
        param,
        inputs,
        outputs,
        TBE_TILING + CONST_TENSOR,
    )


def _cache_names(param: Param) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if int(param["kvCacheCfg"]) == _KvCacheCfg.K_CACHE_V_BYPASS:
        return ("key", "keyCache", "slots"), ("outKeyCache",)
    inputs: tuple[str, ...] = ("key", "value", "keyCache", "valueCache", "slots")
    if int(param["compressType"]) != _CompressType.COMPRESS_TYPE_UNDEFINED:
        inputs += ("wins", "seqLen")
    if int(param["compressType"]) == _CompressType.COMPRESS_TYPE_KVHEAD_ROPE:
        inputs += ("offsetindex",)
    return inputs, ("outKeyCache", "outValueCache")


def _cache_kernel(param: Param, inputs: Descs) -> tuple[str, int]:
    """Kernel name and number of the kernel library's type."""
    if int(param["kvCacheCfg"]) == _KvCacheCfg.K_CACHE_V_BYPASS:
        return "ReshapeAndCacheNdSisoKernel", 4
    if int(param["compressType"]) == _CompressType.COMPRESS_TYPE_KVHEAD:
        return "ReshapeAndCacheCompressKernel", 2
    if int(param["compressType"]) == _CompressType.COMPRESS_TYPE_KVHEAD_ROPE:
        return "ReshapeAndCacheCompressRopeKernel", 3
    if inputs[2].format == FORMAT_FRACTAL_NZ:
        return "ReshapeAndCacheNzKernel", 1
    return "ReshapeAndCacheNdKernel", 0


def _cache_plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    name, kind = _cache_kernel(param, inputs)
    return single_kernel(
        name,
        "ReshapeAndCacheOperation",
        {"type": kind},
        "ReshapeAndCacheOperation",
        param,
        inputs,
        outputs,
        64,
    )


def _cache_aliases(param: Param) -> tuple[int | None, ...]:
    return (1,) if int(param["kvCacheCfg"]) == _KvCacheCfg.K_CACHE_V_BYPASS else (2, 3)


for _spec in (
    OperatorSpec("GatherOperation", lambda _: (("x", "indices"), ("output",)), _gather_plan),
    OperatorSpec("SplitOperation", _split_names, _split_plan),
    OperatorSpec("ConcatOperation", lambda _: (("x", "y"), ("output",)), _concat_plan),
    OperatorSpec("SliceOperation", lambda _: (("x",), ("output",)), _slice_plan),
    OperatorSpec("TransposeOperation", lambda _: (("x",), ("output",)), _transpose_plan),
    OperatorSpec(
        "ReshapeAndCacheOperation",
        _cache_names,
        _cache_plan,
        has_param_json=False,
        output_aliases=_cache_aliases,
    ),
):
    operator_specs.register(_spec.name)(_spec)
