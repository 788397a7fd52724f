"""PagedAttention: attention of new tokens over keys and values in a paged cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from ait_llm.core import FORMAT_FRACTAL_NZ, DType, TensorDesc
from ait_llm.opcheck.golden.attention_core import attend, attend_int8
from ait_llm.opcheck.golden.base import Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.masks import (
    Bias,
    Mask,
    key_bias,
    split_heads,
    tensor_mask,
    total,
    unblocked,
)
from ait_llm.opcheck.golden.paged_cache import read_pages
from ait_llm.opcheck.golden.quantise import scale_from_bits
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
    tensor_at,
    torch_dtype,
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
class _Config:
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


def _config(params: Params, count: int) -> _Config:
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
    return _Config(
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


def _dtypes(config: _Config) -> list[tuple[DType, ...]]:
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
    config = _config(params, len(descs))
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
    mla = config.value_size > 0 or (not nz and descs[2].shape[3] != head_size)
    if not mla and (head_size > 256 or head_size * block_size > 128 * 128):
        raise refused(
            NAME,
            f"head size {head_size} with blocks of {block_size}; it takes at most 256, and a "
            "product of at most 16384",
        )
    if mla and head_size > 576:
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


@dataclass(frozen=True, slots=True)
class _Sequence:
    """One sequence: its number, rows of the query, keys."""

    number: int
    first: int
    rows: int
    keys: int


def _sequences(named: dict[str, Tensor], tokens: int) -> list[_Sequence]:
    """Which query rows belong to which sequence.

    Sequences that are switched off or empty produce nothing. Rows of switched-off sequences may
    be absent from the query; the number of tokens tells.
    """
    contexts = named["lengths"].reshape(-1).tolist()
    counts = [1] * len(contexts)
    if "query_lengths" in named:
        counts = named["query_lengths"].reshape(-1).tolist()
    active = [True] * len(contexts)
    if "status" in named:
        active = [bool(flag) for flag in named["status"].reshape(-1).tolist()]
    absent = tokens < sum(counts)
    found, first = [], 0
    for number, (keys, rows) in enumerate(zip(contexts, counts, strict=True)):
        if absent and not active[number]:
            continue
        if active[number] and keys > 0 and rows > 0:
            found.append(_Sequence(number, first, rows, keys))
        first += rows
    if first > tokens:
        raise refused(NAME, f"the lengths take {first} query rows; the query has {tokens}")
    return found


def _mask(config: _Config, named: dict[str, Tensor], sequence: _Sequence) -> Mask:
    """The mask of one sequence; these kernels add mask tensors as they are."""
    if config.mask in (MaskType.MASK_FREE, MaskType.NORM_COMPRESS):
        return Mask(diagonal=sequence.keys - sequence.rows)
    if config.mask is MaskType.NONE:
        return Mask()
    mask = unblocked(named["mask"], config.heads, sequence.keys)
    mask = split_heads(mask, config.heads, named["lengths"].shape[0])
    first_row = 0
    if config.mask is MaskType.SPEC:
        first_row = sequence.first if mask.dim() == 2 else 0
    elif config.spec and mask.shape[-2] > 1:
        first_row = sequence.keys - sequence.rows
    per_head = config.mask is MaskType.ALIBI and mask.shape[0] == config.heads
    bias = tensor_mask(
        NAME,
        mask,
        batch=sequence.number,
        per_head=per_head,
        first_row=first_row,
        rows=sequence.rows,
        keys=sequence.keys,
    )
    return Mask(bias)


def _channel_vector(vector: Tensor, heads: int, head: int | None) -> Tensor:
    """``[Hk * D]`` as ``[heads, D]``, or one head of it."""
    table = scale_from_bits(vector) if vector.dtype != torch.int32 else vector.float()
    table = table.reshape(heads, -1)
    return table if head is None else table[head : head + 1]


def _dequantised(
    cached: Tensor, named: dict[str, Tensor], which: str, heads: int, head: int | None
) -> Tensor:
    """``(cached + offset) * scale`` per channel of the flattened heads."""
    values = cached.float()
    if f"{which}_offset" in named:
        values = values + _channel_vector(named[f"{which}_offset"], heads, head)
    return values * _channel_vector(named[f"{which}_scale"], heads, head)


def _keys_and_values(
    config: _Config, named: dict[str, Tensor], sequence: _Sequence, head_size: int
) -> tuple[Tensor, Tensor]:
    """Cached keys and values of a sequence, dequantised where fusion asks for it."""
    compressed = config.compress is not CompressType.NONE
    heads = 1 if compressed else config.kv_heads
    table = named["tables"][sequence.number]

    def read(name: str, size: int | None) -> Tensor:
        cached = read_pages(
            NAME,
            named[name],
            table,
            sequence.keys,
            heads=heads,
            head_size=size,
            head_major=config.head_major,
        )
        if config.quant is not QuantType.DEQUANT_FUSION:
            return cached
        head = sequence.number % config.kv_heads if compressed else None
        return _dequantised(cached, named, name, config.kv_heads, head)

    keys = read("key", head_size)
    if config.value_size:
        return keys, keys[..., : config.value_size]
    value_cache = named["value"]
    same_layout = value_cache.shape == named["key"].shape
    return keys, read("value", head_size if same_layout else None)


def _log_n(config: _Config, named: dict[str, Tensor], sequence: _Sequence) -> Tensor:
    """The factor of a sequence's scores, one element."""
    entry = sequence.number // (config.kv_heads if config.compress else 1)
    return named["log_n"].reshape(-1)[entry].reshape(1)


def _razor(config: _Config, named: dict[str, Tensor], sequence: _Sequence) -> Bias | None:
    """An offset per cached key, added before the scale."""
    if "razor" not in named:
        return None
    offsets = named["razor"]
    pages = read_pages(
        NAME,
        offsets.reshape(*offsets.shape[:2], 1),
        named["tables"][sequence.number],
        sequence.keys,
        heads=1,
    )
    factor = config.scale
    if "log_n" in named:
        factor *= float(_log_n(config, named, sequence)[0])
    return key_bias(pages.reshape(-1) * factor)


@golden_op(NAME, infer_shape=infer_shape)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Attention of each sequence's rows over the keys that its block table names.

    Inputs, each where enabled: query ``[T, H, D]``, key cache, value cache ``[nb, bs, Hk, D]``
    (head-major or NZ too), block tables ``[B, n]``, context lengths ``[B]``, mask, run status
    ``[B]``, key scale, key offset, value scale, value offset, query lengths ``[B]`` (else one row
    per sequence), razor offsets, probability scale ``[H]``, logN ``[B]``. With compression the
    caches have one head and tables and lengths one row per key/value head.
    """
    present = [tensor for tensor in inputs if tensor is not None]
    config = _config(params, len(present))
    named = {name: tensor_at(NAME, present, i) for i, name in enumerate(config.names)}
    query = named["query"]
    tokens, heads, head_size = query.shape
    if config.compress is not CompressType.NONE:
        query = query.reshape(tokens * config.kv_heads, heads // config.kv_heads, head_size)
    outputs = {}
    for sequence in _sequences(named, query.shape[0]):
        rows = slice(sequence.first, sequence.first + sequence.rows)
        keys, values = _keys_and_values(config, named, sequence, head_size)
        mask = _mask(config, named, sequence)
        mask = Mask(total(mask.bias, _razor(config, named, sequence)), mask.diagonal)
        log_n = _log_n(config, named, sequence) if "log_n" in named else None
        if query.dtype == torch.int8:
            outputs[rows.start, rows.stop] = attend_int8(
                query[rows],
                keys,
                values,
                scale=config.scale,
                score_scale=named["key_scale"],
                value_scale=named["value_scale"],
                probability_scale=named.get("probability_scale"),
                mask=mask,
                row_scale=log_n,
            )
        else:
            outputs[rows.start, rows.stop] = attend(
                arithmetic.widen(query[rows]),
                arithmetic.widen(keys).to(arithmetic.widen(query[:0]).dtype),
                arithmetic.widen(values).to(arithmetic.widen(query[:0]).dtype),
                scale=config.scale,
                mask=mask,
                row_scale=log_n,
            )
    return Result((_gather(config, named, outputs, query, arithmetic),))


def _gather(
    config: _Config,
    named: dict[str, Tensor],
    outputs: dict[tuple[int, int], Tensor],
    query: Tensor,
    arithmetic: Arithmetic,
) -> Tensor:
    """All rows in the output's shape and dtype; rows without a sequence are zero."""
    value_size = config.value_size
    for part in outputs.values():
        value_size = part.shape[2]
    rows = torch.zeros(
        query.shape[0],
        query.shape[1],
        value_size or query.shape[2],
        dtype=torch.float32 if query.dtype == torch.int8 else arithmetic.widen(query[:0]).dtype,
    )
    for (first, last), part in outputs.items():
        rows[first:last] = part
    rows = rows.reshape(named["query"].shape[0], config.heads, rows.shape[2])
    if query.dtype != torch.int8:
        return arithmetic.round(rows, query.dtype)
    mask_dtype = named["mask"].dtype if "mask" in named else torch.float16
    known = config.out_dtype is not DType.UNDEFINED
    return arithmetic.round(rows, torch_dtype(config.out_dtype) if known else mask_dtype)
