"""Operators on key and value caches that have no recorded kernels."""

from __future__ import annotations

from ait_llm.hostatb.operators.generic import Names, add, listed
from ait_llm.hostatb.operators.launch import Param
from ait_llm.hostatb.params.cache import (
    PagedCacheLoadParam,
    ReshapeAndCacheParam,
    ReshapeAndCacheWithStrideParam,
)

_Compress = ReshapeAndCacheParam.CompressType
_BYPASS = ReshapeAndCacheWithStrideParam.KvCacheCfg.K_CACHE_V_BYPASS
_BLOCKED = PagedCacheLoadParam.KvCacheCfg.K_CACHE_V_CACHE_NZ
_OMNI = "key value keyCache valueCache slots wins seqLen offsetindex"


def _strided_names(param: Param) -> Names:
    if int(param["kvCacheCfg"]) == _BYPASS:
        return ("key", "keyCache", "slots", "kStride", "kOffset"), ("outKeyCache",)
    compress = int(param["compressType"])
    inputs: tuple[str, ...] = ("key", "value", "keyCache", "valueCache", "slots")
    if compress != _Compress.COMPRESS_TYPE_UNDEFINED:
        inputs += ("wins", "seqLen")
    if compress == _Compress.COMPRESS_TYPE_KVHEAD_ROPE:
        inputs += ("offsetindex",)
    return (*inputs, "kStride", "vStride", "kOffset", "vOffset"), ("outKeyCache", "outValueCache")


def _load_names(param: Param) -> Names:
    starts = () if int(param["kvCacheCfg"]) == _BLOCKED else ("seq_starts",)
    inputs = ("keyCache", "valueCache", "blocktables", "contextlens", "Key", "Value", *starts)
    return inputs, ("outKey", "outValue")


# The operator table names two outputs of BlockCopy, which it does not have.
add(
    "BlockCopyOperation",
    listed("kcache vcache srcIndices dstIndices cumSum", ""),
    updated=(0, 1),
)
add("KvCacheOperation", listed("newKv layerId past tokenOffset seqLen", ""), updated=(2,))
add("PagedCacheLoadOperation", _load_names, aliases=lambda _: (4, 5))
add(
    "ReshapeAndCacheOmniOperation",
    listed(_OMNI, "outKeyCache outValueCache"),
    aliases=lambda _: (2, 3),
)
add(
    "ReshapeAndCacheWithStrideOperation",
    _strided_names,
    aliases=lambda param: (1,) if int(param["kvCacheCfg"]) == _BYPASS else (2, 3),
)
