"""Parameters of operators that read and write key and value caches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ait_llm.hostatb.params.base import Param


class _CompressType(IntEnum):
    COMPRESS_TYPE_UNDEFINED = 0
    COMPRESS_TYPE_KVHEAD = 1
    COMPRESS_TYPE_KVHEAD_ROPE = 2


@dataclass(repr=False)
class KvCacheParam(Param):
    """Write into a contiguous cache; no fields."""

    prints_json = False


@dataclass(repr=False)
class BlockCopyParam(Param):
    """Copy of cache blocks; no fields."""

    prints_json = False


@dataclass(repr=False)
class ReshapeAndCacheParam(Param):
    """Write of new keys and values into a paged cache."""

    CompressType = _CompressType
    prints_json = False

    class KvCacheCfg(IntEnum):
        K_CACHE_V_CACHE = 0
        K_CACHE_V_BYPASS = 1
        K_CACHE_V_CACHE_NZ = 2

    compress_type: _CompressType = _CompressType.COMPRESS_TYPE_UNDEFINED
    kv_cache_cfg: KvCacheCfg = KvCacheCfg.K_CACHE_V_CACHE


@dataclass(repr=False)
class ReshapeAndCacheWithStrideParam(Param):
    """The same for strided keys and values."""

    CompressType = _CompressType
    prints_json = False

    class KvCacheCfg(IntEnum):
        K_CACHE_V_CACHE = 0
        K_CACHE_V_BYPASS = 1

    compress_type: _CompressType = _CompressType.COMPRESS_TYPE_UNDEFINED
    kv_cache_cfg: KvCacheCfg = KvCacheCfg.K_CACHE_V_CACHE


@dataclass(repr=False)
class ReshapeAndCacheOmniParam(Param):
    """Write of compressed heads; no fields."""

    prints_json = False


@dataclass(repr=False)
class PagedCacheLoadParam(Param):
    """Read of a paged cache into contiguous tensors."""

    prints_json = False

    class KvCacheCfg(IntEnum):
        K_CACHE_V_CACHE_NZ = 0
        K_CACHE_V_CACHE_ND = 1

    kv_cache_cfg: KvCacheCfg = KvCacheCfg.K_CACHE_V_CACHE_NZ
    is_seq_lens_cumsum_mode: bool = False
    has_seq_starts: bool = False
