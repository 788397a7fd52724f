"""MultiLatentAttention: attention over latent keys in a paged cache, and its prefill form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.attention_half import attention_with_lse_of
from ait_llm.opcheck.golden.base import (
    ATTENTION,
    HALF_FACTOR,
    Arithmetic,
    KernelArithmetic,
    Params,
    Result,
    golden_op,
)
from ait_llm.opcheck.golden.latent_int8 import attend_latent_int8
from ait_llm.opcheck.golden.masks import MASKED, Mask, effective, tensor_mask
from ait_llm.opcheck.golden.multi_latent_attention_config import (
    NAME,
    CacheMode,
    CalcType,
    Config,
    MaskType,
    read_config,
)
from ait_llm.opcheck.golden.paged_cache import read_pages
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I8,
    I32,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.support import refused, tensor_at

_BLOCK, _LATENT, _ROPE, _NOPE = 128, 512, 64, 128


def _check_decode(descs: Sequence[TensorDesc], config: Config) -> None:
    for index, rank in enumerate((3, 3, 4, 4, 2, 1)):
        check_rank(NAME, descs, index, rank)
    tokens, blocks = descs[0].shape[0], descs[2].shape[0]
    check_shape(NAME, descs, 0, (tokens, config.heads, _LATENT))
    check_shape(NAME, descs, 1, (tokens, config.heads, _ROPE))
    if config.cache is CacheMode.KROPE_CTKV:
        check_shape(NAME, descs, 2, (blocks, _BLOCK, 1, _LATENT))
        check_shape(NAME, descs, 3, (blocks, _BLOCK, 1, _ROPE))
    else:
        columns = 32 if config.cache is CacheMode.INT8_NZCACHE else 16
        check_shape(NAME, descs, 2, (blocks, _LATENT // columns, _BLOCK, columns))
        check_shape(NAME, descs, 3, (blocks, _ROPE // 16, _BLOCK, 16))
    batch = descs[4].shape[0]
    check_shape(NAME, descs, 5, (batch,))
    if config.calc is CalcType.NONE and tokens != batch:
        raise refused(NAME, f"there are {tokens} query rows for {batch} block tables")
    at = {name: index for index, name in enumerate(config.names)}
    for name, length in {
        "query_lengths": batch,
        "score_scale": config.heads,
        "value_scale": config.heads,
        "mask_status": batch,
    }.items():
        if name in at:
            check_shape(NAME, descs, at[name], (length,))


def _check_prefill(descs: Sequence[TensorDesc], config: Config) -> None:
    tokens = descs[0].shape[0] if descs[0].shape else 0
    for index, size in ((0, _NOPE), (1, _ROPE)):
        check_shape(NAME, descs, index, (tokens, config.heads * size), (tokens, config.heads, size))
    for index, rank in ((2, 3), (3, 3), (4, 3), (5, 1)):
        check_rank(NAME, descs, index, rank)
    check_shape(NAME, descs, 6, descs[5].shape)
    key = descs[2].shape
    packed = (key[0], config.kv_heads, _NOPE)
    padded = (descs[5].shape[0], key[1], config.kv_heads * _NOPE)
    check_shape(
        NAME, descs, 2, *((padded,) if config.mask is MaskType.CAUSAL else (packed, padded))
    )
    check_shape(NAME, descs, 3, (*key[:2], key[2] // 2))
    check_shape(NAME, descs, 4, key)
    if config.mask is MaskType.MASK_FREE and len(descs[7].shape) == 2:
        check_shape(NAME, descs, 7, (512, 512))


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The query's shape in the dtype of its rotated part; for rings also ``[T, H, 1]``."""
    config = read_config(params)
    check_count(NAME, descs, len(config.names))
    rows = []
    for real in (F16, BF16):
        int8 = config.cache is CacheMode.INT8_NZCACHE
        types = dict.fromkeys(("query", "cache"), I8 if int8 else real)
        types |= dict.fromkeys(("query_rope", "rope_cache", "mask"), real)
        types |= dict.fromkeys(("key", "key_rope", "value"), real)
        types |= dict.fromkeys(("score_scale", "value_scale"), F32)
        rows.append(tuple(types.get(name, I32) for name in config.names))
    check_dtypes(NAME, descs, rows)
    (_check_prefill if config.prefill else _check_decode)(descs, config)
    query, real = descs[0], descs[1].dtype
    output = replace(query, dtype=real)
    if not config.ring:
        return (output,)
    lse = F32 if config.cache is CacheMode.INT8_NZCACHE else real
    return output, replace(query, (*query.shape[:2], 1), lse)


@dataclass(frozen=True, slots=True)
class _Sequence:
    number: int
    first: int
    rows: int
    keys: int


def _sequences(config: Config, named: dict[str, Tensor], tokens: int) -> list[_Sequence]:
    keys = named["key_lengths"].reshape(-1).tolist()
    rows = [1] * len(keys)
    if "query_lengths" in named:
        rows = named["query_lengths"].reshape(-1).tolist()
    elif tokens != len(keys) and len(keys) and tokens % len(keys) == 0:
        rows = [tokens // len(keys)] * len(keys)
    found, first = [], 0
    for number, (count, length) in enumerate(zip(rows, keys, strict=True)):
        if count > 0 and length > 0:
            found.append(_Sequence(number, first, count, length))
        first += count
    if first > tokens:
        raise refused(NAME, f"the lengths take {first} query rows; the query has {tokens}")
    return found


def _mask(config: Config, named: dict[str, Tensor], sequence: _Sequence) -> Mask:
    """The mask of one sequence.

    Causal ones end at the last key. A mask-free template that is zero, for all or for this
    sequence, switches the mask off, as a zero status does.
    """
    if config.mask is MaskType.NONE:
        return Mask()
    if "mask_status" in named and not bool(named["mask_status"].reshape(-1)[sequence.number]):
        return Mask()
    diagonal = sequence.keys - sequence.rows
    if config.mask is MaskType.SWA_NORM:
        return Mask(diagonal=diagonal, window=config.window)
    if config.mask is MaskType.CAUSAL:
        return Mask(diagonal=diagonal)
    mask = named["mask"]
    if config.mask is MaskType.MASK_FREE:
        template = mask[sequence.number] if mask.dim() == 3 and len(mask) > 1 else mask
        return Mask(diagonal=diagonal) if bool((template != 0).any()) else Mask()
    coefficient = MASKED if mask.dtype == torch.bfloat16 and mask.dim() < 4 else 1.0
    bias = tensor_mask(
        NAME,
        effective(mask, coefficient),
        batch=sequence.number,
        per_head=False,
        first_row=sequence.first if mask.dim() == 2 else 0,
        rows=sequence.rows,
        keys=sequence.keys,
    )
    return Mask(bias)


def _prefill_keys(
    config: Config, named: dict[str, Tensor], sequence: _Sequence, first_key: int
) -> tuple[Tensor, Tensor]:
    """Keys with their rotated part, and values, of one sequence; packed or padded by batch."""
    parts = []
    for name in ("key", "key_rope", "value"):
        tensor = named[name]
        if tensor.shape[1] == config.kv_heads and tensor.shape[2] <= _NOPE:
            rows = tensor[first_key : first_key + sequence.keys]
        else:
            rows = tensor[sequence.number, : sequence.keys]
            rows = rows.reshape(len(rows), config.kv_heads, -1)
        if len(rows) < sequence.keys:
            raise refused(NAME, f"{name} has too few tokens for sequence {sequence.number}")
        parts.append(rows)
    return torch.cat(parts[:2], dim=-1), parts[2]


def _cached(named: dict[str, Tensor], sequence: _Sequence) -> tuple[Tensor, Tensor]:
    """Latent and rotated keys of one sequence, ``[ks, 1, 512]`` and ``[ks, 1, 64]``."""
    table = named["tables"][sequence.number]

    def read(cache: str, like: str) -> Tensor:
        size = named[like].shape[2]
        return read_pages(NAME, named[cache], table, sequence.keys, heads=1, head_size=size)

    return read("cache", "query"), read("rope_cache", "query_rope")


def _kernel(params: Params) -> KernelArithmetic:
    return HALF_FACTOR if params.get("calcType") == CalcType.PREFILL else ATTENTION


@golden_op(NAME, infer_shape=infer_shape, kernel=_kernel)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Softmax attention whose keys are a latent and a rotated part and whose values are latent.

    Inputs while decoding: query ``[T, H, 512]`` (int8 in cache mode 2), its rotated part
    ``[T, H, 64]``, latent cache ``[nb, bs, 1, 512]`` and rotated cache ``[nb, bs, 1, 64]`` (NZ in
    modes 2 and 3), block tables, key lengths, and where enabled mask, query lengths, scales of
    scores and values ``[H]``, mask status ``[B]``. Prefill: query, rotated query, keys, rotated
    keys, values, query lengths, key lengths, mask. Rows of sequences without keys are undefined.

    Int8 probabilities are quantised per row and block of 512 keys with its maximum,
    ``round(half(P / s))`` with ``s = max / 127``.
    """
    config = read_config(params)
    present = [tensor for tensor in inputs if tensor is not None]
    if len(present) < len(config.names):
        raise refused(NAME, f"got {len(present)} inputs; it takes {', '.join(config.names)}")
    named = {name: tensor_at(NAME, present, i) for i, name in enumerate(config.names)}
    query, rotated = named["query"], named["query_rope"]
    shape = query.shape
    query = query.reshape(len(query), config.heads, -1)
    rotated = rotated.reshape(len(rotated), config.heads, -1)
    int8 = query.dtype == torch.int8
    wide = torch.float32 if int8 else arithmetic.widen(query[:0]).dtype
    output = torch.zeros(query.shape, dtype=wide)
    lse = torch.full((*query.shape[:2], 1), -math.inf, dtype=wide)
    idle = torch.ones(len(query), dtype=torch.bool)
    first_key = 0
    for sequence in _sequences(config, named, len(query)):
        rows = slice(sequence.first, sequence.first + sequence.rows)
        mask = _mask(config, named, sequence)
        if int8:
            latent, rope = _cached(named, sequence)
            part, total = attend_latent_int8(
                query[rows],
                rotated[rows],
                latent,
                rope,
                scale=config.scale,
                score_scale=named["score_scale"],
                value_scale=named["value_scale"],
                mask=mask,
            )
        else:
            if config.prefill:
                keys, values = _prefill_keys(config, named, sequence, first_key)
            else:
                values, rope = _cached(named, sequence)
                keys = torch.cat([values, rope], dim=-1)
            joined = torch.cat([query[rows], rotated[rows]], dim=-1)
            attention = attention_with_lse_of(arithmetic, query.dtype, plain=not config.prefill)
            part, total = attention(
                arithmetic.widen(joined),
                arithmetic.widen(keys),
                arithmetic.widen(values),
                scale=config.scale,
                mask=mask,
            )
        first_key += sequence.keys
        output[rows], lse[rows], idle[rows] = part, total.unsqueeze(-1), False
    result = arithmetic.round(output.reshape(shape), rotated.dtype)
    undefined = {}
    if bool(idle.any()):
        undefined[0] = idle.reshape(-1, *(1,) * (result.dim() - 1))
    if not config.ring:
        return Result((result,), undefined=undefined)
    if undefined:
        undefined[1] = idle.reshape(-1, 1, 1)
    lse = lse.masked_fill(lse == -math.inf, 0.0)
    rounded = arithmetic.round(lse, torch.float32 if int8 else rotated.dtype)
    return Result((result, rounded), undefined=undefined)
