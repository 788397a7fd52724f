"""Parameters of attention operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from ait_llm.hostatb.params.base import UNPRINTED, Param
from ait_llm.hostatb.params.enums import AclDataType, InputLayout
from ait_llm.hostatb.params.fields import Float32, Int32, UInt32


@dataclass(repr=False)
class SelfAttentionParam(Param):
    """Attention over contiguous keys and values, with or without a contiguous cache."""

    class CalcType(IntEnum):
        UNDEFINED = 0
        ENCODER = 1
        DECODER = 2
        PA_ENCODER = 3
        PREFIX_ENCODER = 4

    class KernelType(IntEnum):
        KERNELTYPE_DEFAULT = 0
        KERNELTYPE_HIGH_PRECISION = 1
        KERNELTYPE_EXP_M8V2 = 2

    class ClampType(IntEnum):
        CLAMP_TYPE_UNDEFINED = 0
        CLAMP_TYPE_MIN_MAX = 1

    class MaskType(IntEnum):
        MASK_TYPE_UNDEFINED = 0
        MASK_TYPE_NORM = 1
        MASK_TYPE_ALIBI = 2
        MASK_TYPE_NORM_COMPRESS = 3
        MASK_TYPE_ALIBI_COMPRESS = 4
        MASK_TYPE_ALIBI_COMPRESS_SQRT = 5
        MASK_TYPE_ALIBI_COMPRESS_LEFT_ALIGN = 6
        MASK_TYPE_SLIDING_WINDOW_NORM = 7
        MASK_TYPE_SLIDING_WINDOW_COMPRESS = 8
        MASK_TYPE_CAUSAL_MASK = 9

    class KvCacheCfg(IntEnum):
        K_CACHE_V_CACHE = 0
        K_BYPASS_V_BYPASS = 1

    class ScaleType(IntEnum):
        SCALE_TYPE_TOR = 0
        SCALE_TYPE_LOGN = 1
        SCALE_TYPE_MAX = 2

    class QuantType(IntEnum):
        TYPE_QUANT_UNQUANT = 0
        TYPE_QUANT_UNDEFINED = 0
        TYPE_DEQUANT_FUSION = 1
        TYPE_QUANT_QKV_OFFLINE = 2
        TYPE_QUANT_QKV_ONLINE = 3

    class CacheType(IntEnum):
        CACHE_TYPE_NORM = 0
        CACHE_TYPE_SWA = 1

    quant_type: QuantType = QuantType.TYPE_QUANT_UNQUANT
    out_data_type: AclDataType = AclDataType.ACL_DT_UNDEFINED
    head_num: Int32 = 0
    kv_head_num: Int32 = 0
    q_scale: Float32 = 1.0
    qk_scale: Float32 = 1.0
    batch_run_status_enable: bool = False
    is_triu_mask: UInt32 = 0
    calc_type: CalcType = CalcType.UNDEFINED
    kernel_type: KernelType = KernelType.KERNELTYPE_DEFAULT
    clamp_type: ClampType = ClampType.CLAMP_TYPE_UNDEFINED
    clamp_min: Float32 = 0.0
    clamp_max: Float32 = 0.0
    mask_type: MaskType = MaskType.MASK_TYPE_UNDEFINED
    kvcache_cfg: KvCacheCfg = KvCacheCfg.K_CACHE_V_CACHE
    scale_type: ScaleType = ScaleType.SCALE_TYPE_TOR
    input_layout: InputLayout = InputLayout.TYPE_BSND
    mla_v_head_size: UInt32 = 0
    cache_type: CacheType = CacheType.CACHE_TYPE_NORM
    window_size: UInt32 = 0


@dataclass(repr=False)
class PagedAttentionParam(Param):
    """Decoding attention over a paged cache."""

    class MaskType(IntEnum):
        UNDEFINED = 0
        MASK_TYPE_NORM = 1
        MASK_TYPE_ALIBI = 2
        MASK_TYPE_SPEC = 3
        MASK_TYPE_MASK_FREE = 4
        MASK_TYPE_NORM_COMPRESS = 5

    class QuantType(IntEnum):
        TYPE_QUANT_UNQUANT = 0
        TYPE_QUANT_UNDEFINED = 0
        TYPE_DEQUANT_FUSION = 1
        TYPE_QUANT_QKV_OFFLINE = 2
        TYPE_QUANT_QKV_ONLINE = 3

    class CompressType(IntEnum):
        COMPRESS_TYPE_UNDEFINED = 0
        COMPRESS_TYPE_KVHEAD = 1
        COMPRESS_TYPE_KVHEAD_ROPE = 2
        COMPRESS_TYPE_MAX = 3

    class CalcType(IntEnum):
        CALC_TYPE_UNDEFINED = 0
        CALC_TYPE_SPEC = 1

    class ScaleType(IntEnum):
        SCALE_TYPE_TOR = 0
        SCALE_TYPE_LOGN = 1
        SCALE_TYPE_MAX = 2

    head_num: Int32 = 0
    qk_scale: Float32 = 1.0
    kv_head_num: Int32 = 0
    mask_type: MaskType = MaskType.UNDEFINED
    batch_run_status_enable: bool = False
    quant_type: QuantType = QuantType.TYPE_QUANT_UNQUANT
    out_data_type: AclDataType = field(default=AclDataType.ACL_DT_UNDEFINED, metadata=UNPRINTED)
    has_quant_offset: bool = False
    compress_type: CompressType = CompressType.COMPRESS_TYPE_UNDEFINED
    calc_type: CalcType = CalcType.CALC_TYPE_UNDEFINED
    scale_type: ScaleType = field(default=ScaleType.SCALE_TYPE_TOR, metadata=UNPRINTED)
    input_layout: InputLayout = field(default=InputLayout.TYPE_BSND, metadata=UNPRINTED)
    mla_v_head_size: UInt32 = 0
    q_scale: Float32 = field(default=0.0, metadata=UNPRINTED)


@dataclass(repr=False)
class RelayAttentionParam(Param):
    """Attention over a shared prefix and per-request keys."""

    class MaskType(IntEnum):
        MASK_TYPE_UNDEFINED = 0
        MASK_TYPE_NORM = 1

    head_num: Int32 = 0
    qk_scale: Float32 = 1.0
    kv_head_num: Int32 = 0
    mask_type: MaskType = MaskType.MASK_TYPE_UNDEFINED


@dataclass(repr=False)
class RazorFusionAttentionParam(Param):
    """Attention with a razor-shaped mask."""

    head_num: Int32 = 1
    kv_head_num: Int32 = 1
    qk_scale: Float32 = 1.0
    razor_len: Int32 = 0
    pre_tokens: Int32 = 0
    next_tokens: Int32 = 0
    tile_q: Int32 = 0
    tile_kv: Int32 = 0
    text_q_len: Int32 = 0
    text_kv_len: Int32 = 0


@dataclass(repr=False)
class RingMLAParam(Param):
    """One step of ring attention with latent keys."""

    class CalcType(IntEnum):
        CALC_TYPE_DEFAULT = 0
        CALC_TYPE_FIRST_RING = 1
        CALC_TYPE_FISRT_RING = 1
        CALC_TYPE_MAX = 2

    class KernelType(IntEnum):
        KERNELTYPE_DEFAULT = 0
        KERNELTYPE_HIGH_PRECISION = 1

    class MaskType(IntEnum):
        NO_MASK = 0
        MASK_TYPE_TRIU = 1

    calc_type: CalcType = CalcType.CALC_TYPE_DEFAULT
    head_num: Int32 = 0
    kv_head_num: Int32 = 0
    qk_scale: Float32 = 1.0
    kernel_type: KernelType = KernelType.KERNELTYPE_HIGH_PRECISION
    mask_type: MaskType = MaskType.MASK_TYPE_TRIU
    input_layout: InputLayout = InputLayout.TYPE_BSND


class _MlaCacheMode(IntEnum):
    KVCACHE = 0
    KROPE_CTKV = 1
    INT8_NZCACHE = 2
    NZCACHE = 3


@dataclass(repr=False)
class MultiLatentAttentionParam(Param):
    """Paged attention over latent keys."""

    CacheMode = _MlaCacheMode

    class MaskType(IntEnum):
        UNDEFINED = 0
        MASK_TYPE_SPEC = 1
        MASK_TYPE_MASK_FREE = 2
        MASK_TYPE_CAUSAL_MASK = 3
        MASK_TYPE_SWA_NORM = 4

    class CalcType(IntEnum):
        CALC_TYPE_UNDEFINED = 0
        CALC_TYPE_SPEC = 1
        CALC_TYPE_RING = 2
        CALC_TYPE_SPEC_AND_RING = 3
        CALC_TYPE_PREFILL = 4

    class MaskUseStatusType(IntEnum):
        MASK_USE_STATUS_TYPE_UNDEFINED = 0
        MASK_USE_STATUS_TYPE_BATCH_MASK = 1
        MASK_USE_STATUS_TYPE_MAX = 2

    head_num: Int32 = 0
    qk_scale: Float32 = 1.0
    kv_head_num: Int32 = 0
    mask_type: MaskType = MaskType.UNDEFINED
    calc_type: CalcType = CalcType.CALC_TYPE_UNDEFINED
    cache_mode: _MlaCacheMode = _MlaCacheMode.KVCACHE
    window_size: UInt32 = 0
    mask_use_status_type: MaskUseStatusType = MaskUseStatusType.MASK_USE_STATUS_TYPE_UNDEFINED


@dataclass(repr=False)
class MlaPreprocessParam(Param):
    """Projection, normalisation and rotation before latent attention."""

    CacheMode = _MlaCacheMode

    class QuantMode(IntEnum):
        PER_TENSOR_QUANT_ASYMM = 0
        PER_TOKEN_QUANT_SYMM = 1
        PER_TOKEN_QUANT_ASYMM = 2
        UNQUANT = 3

    wdq_dim: UInt32 = 0
    q_rope_dim: UInt32 = 0
    k_rope_dim: UInt32 = 0
    epsilon: Float32 = 1e-5
    q_rotary_coeff: Int32 = 2
    k_rotary_coeff: Int32 = 2
    transpose_wdq: bool = True
    transpose_wuq: bool = True
    transpose_wuk: bool = True
    cache_mode: _MlaCacheMode = _MlaCacheMode.KVCACHE
    quant_mode: QuantMode = QuantMode.PER_TENSOR_QUANT_ASYMM


@dataclass(repr=False)
class FaUpdateParam(Param):
    """Merging of partial attention results."""

    class FaUpdateType(IntEnum):
        DECODE_UPDATE = 0

    fa_update_type: FaUpdateType = FaUpdateType.DECODE_UPDATE
    sp: UInt32 = 1


@dataclass(repr=False)
class RopeParam(Param):
    """Rotary position embedding of queries and keys."""

    rotary_coeff: Int32 = 4
    cos_format: Int32 = 0


@dataclass(repr=False)
class RopeQConcatParam(Param):
    """Rotary embedding joined to the rest of the query; no fields."""

    prints_json = False
