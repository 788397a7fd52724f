"""Parameters of PagedAttention, the inputs they imply, and the shapes that fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from ait_llm.core import FORMAT_FRACTAL_NZ, DType, TensorDesc
from ait_llm.opcheck.golden.base import Params
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I8,
    I32,
    I64,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.support import (
    bool_param,
    dtype_param,
    enum_param,
    float_param,
    int_param,
    refused,
)

NAME = "PagedAttentionOperation"


class MaskType(IntEnum):
    """Values of ``maskType``."""

    NONE = 0
    NORM = 1
    ALIBI = 2
    SPEC = 3
    MASK_FREE = 4
    NORM_COMPRESS = 5


class QuantType(IntEnum):
    """Values of ``quantType``."""

    NONE = 0
    DEQUANT_FUSION = 1
    QKV_OFFLINE = 2
    QKV_ONLINE = 3


class CompressType(IntEnum):
    """Values of ``compressType``."""

    NONE = 0
    KVHEAD = 1
    KVHEAD_ROPE = 2


@dataclass(frozen=True, slots=True)
class Config:
    """The parameters, and the names of the inputs that they imply, in order."""

    heads: int
    kv_heads: int
    scale: float
    mask: MaskType
    quant: QuantType
    compress: CompressType
    spec: bool
    value_size: int
    head_major: bool
    out_dtype: DType
    names: tuple[str, ...]

    @property
    def narrow(self) -> bool:
        """Kernels whose heads and blocks have a common limit; the others take wider ones."""
        if self.quant is QuantType.DEQUANT_FUSION or self.compress is not CompressType.NONE:
            return True
        queries = self.spec or self.quant is not QuantType.NONE
        return "log_n" in self.names or (queries and self.value_size == 0)


def read_config(params: Params, count: int) -> Config:
    """Read the parameters. ``scaleType`` is not dumped: one input more than implied is logN."""
    heads = int_param(NAME, params, "headNum", 0)
    kv_heads = int_param(NAME, params, "kvHeadNum", 0) or heads
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise refused(
            NAME, f"headNum is {heads} and kvHeadNum {kv_heads}; the first must be a multiple"
        )
    mask = enum_param(NAME, params, "maskType", MaskType, 0)
    quant = enum_param(NAME, params, "quantType", QuantType, 0)
    compress = enum_param(NAME, params, "compressType", CompressType, 0)
    if compress is not CompressType.NONE and quant > QuantType.DEQUANT_FUSION:
        raise refused(NAME, "compressType and an int8 query exclude each other; choose one")
    spec = bool(int_param(NAME, params, "calcType", 0))
    value_size = int_param(NAME, params, "mlaVHeadSize", 0)
    offsets = bool_param(NAME, params, "hasQuantOffset", False)
    batch_status = bool_param(NAME, params, "batchRunStatusEnable", False)
    optional = {
        "value": value_size == 0,
        "tables": True,
        "lengths": True,
        "mask": mask is not MaskType.NONE,
        "status": batch_status,
        "key_scale": quant is not QuantType.NONE,
        "key_offset": quant is QuantType.DEQUANT_FUSION and offsets,
        "value_scale": quant is not QuantType.NONE,
        "value_offset": quant is QuantType.DEQUANT_FUSION and offsets,
        "query_lengths": spec,
        "razor": compress is CompressType.KVHEAD_ROPE,
        "probability_scale": quant is QuantType.QKV_OFFLINE,
    }
    names = ["query", "key", *(name for name, present in optional.items() if present)]
    if int_param(NAME, params, "scaleType", 0) or count == len(names) + 1:
        names.append("log_n")
    return Config(
        heads,
        kv_heads,
        float_param(NAME, params, "qkScale", 1.0),
        mask,
        quant,
        compress,
        spec,
        value_size,
        bool(int_param(NAME, params, "inputLayout", 0)),
        dtype_param(NAME, params, "outDataType"),
        tuple(names),
    )


_SCALES = {QuantType.DEQUANT_FUSION: (F32, I64), QuantType.QKV_OFFLINE: (F32,)}


def _dtypes(config: Config) -> list[tuple[DType, ...]]:
    """Rows of the operator table for the inputs that the parameters imply."""
    int8_query = config.quant in (QuantType.QKV_OFFLINE, QuantType.QKV_ONLINE)
    rows = []
    for real in (F16, BF16):
        for scale in _SCALES.get(config.quant, (F32,)):
            for log_n in (F32, F16) if "log_n" in config.names else (F32,):
                cache = real if config.quant is QuantType.NONE else I8
                types = {
                    "query": I8 if int8_query else real,
                    "key": cache,
                    "value": cache,
                    "mask": real,
                    "key_scale": scale,
                    "value_scale": scale,
                    "razor": F32,
                    "probability_scale": F32,
                    "log_n": log_n,
                }
                rows.append(tuple(types.get(name, I32) for name in config.names))
    return rows


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[T, H, Dv]`` in the dtype of the query, for an int8 one in ``outDataType``."""
    config = read_config(params, len(descs))
    check_count(NAME, descs, len(config.names))
    check_dtypes(NAME, descs, _dtypes(config))
    at = {name: index for index, name in enumerate(config.names)}
    for name, rank in {"query": 3, "key": 4, "value": 4, "tables": 2, "lengths": 1}.items():
        if name in at:
            check_rank(NAME, descs, at[name], rank)
    query, key = descs[0], descs[1]
    head_size = query.shape[2]
    nz = key.format == FORMAT_FRACTAL_NZ
    size_axis = (key.shape[1] * key.shape[3] // config.kv_heads) if nz else key.shape[3]
    if query.shape[1] != config.heads or size_axis != head_size:
        raise refused(
            NAME,
            f"query {list(query.shape)} and key cache {list(key.shape)} do not have "
            f"{config.heads} and {config.kv_heads} heads of one size",
        )
    if config.value_size > head_size:
        raise refused(NAME, f"mlaVHeadSize is {config.value_size}; keys have {head_size} entries")
    block_size = key.shape[2] if nz or config.head_major else key.shape[1]
    if (nz or config.narrow) and (head_size > 256 or head_size * block_size > 128 * 128):
        raise refused(
            NAME,
            f"head size {head_size} with blocks of {block_size}; it takes at most 256, and a "
            "product of at most 16384",
        )
    if head_size > 576:
        raise refused(NAME, f"head size is {head_size}; it takes at most 576")
    tables, lengths = descs[at["tables"]], descs[at["lengths"]]
    check_shape(NAME, descs, at["lengths"], tables.shape[:1])
    rows = lengths.shape[0] // (config.kv_heads if config.compress else 1)
    if not config.spec and query.shape[0] > rows:
        raise refused(NAME, f"query has {query.shape[0]} tokens for {rows} sequences")
    value_size = config.value_size or (head_size if nz else descs[2].shape[3])
    int8_query = query.dtype is I8
    if int8_query and config.out_dtype not in (F16, BF16):
        raise refused(NAME, "an int8 query needs outDataType float16 (1) or bf16 (27)")
    dtype = config.out_dtype if int8_query else query.dtype
    return (replace(query, [*query.shape[:2], value_size], dtype),)
