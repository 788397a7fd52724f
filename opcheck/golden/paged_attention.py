"""PagedAttention: attention of new tokens over keys and values in a paged cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ait_llm.core import DType
from ait_llm.opcheck.golden.attention_core import attend
from ait_llm.opcheck.golden.attention_half import attention_of
from ait_llm.opcheck.golden.attention_int8 import attend_int8
from ait_llm.opcheck.golden.base import ATTENTION, Arithmetic, Noting, Params, Result, golden_op
from ait_llm.opcheck.golden.masks import (
    Bias,
    Mask,
    key_bias,
    split_heads,
    tensor_mask,
    total,
    unblocked,
)
from ait_llm.opcheck.golden.paged_attention_config import (
    NAME,
    CompressType,
    Config,
    MaskType,
    QuantType,
    infer_shape,
    read_config,
)
from ait_llm.opcheck.golden.paged_cache import read_pages
from ait_llm.opcheck.golden.quantise import scale_from_bits
from ait_llm.opcheck.golden.support import (
    desc_of,
    int_param,
    optional_at,
    refused,
    tensor_at,
    torch_dtype,
)


@dataclass(frozen=True, slots=True)
class _Sequence:
    """One sequence: its number, rows of the query, keys."""

    number: int
    first: int
    rows: int
    keys: int


def _sequences(named: dict[str, Tensor], tokens: int) -> list[_Sequence]:
    """Which query rows belong to which sequence.

    Sequences without keys have no rows: the kernels take the rows of the others one after the
    other. What is switched off produces nothing, and its rows may be absent from the query; the
    number of tokens tells. With compression each key/value head of a token is a sequence, and those
    behind one without keys move up, too.
    """
    contexts = named["lengths"].reshape(-1).tolist()
    counts = [1] * len(contexts)
    if "query_lengths" in named:
        counts = named["query_lengths"].reshape(-1).tolist()
    active = [True] * len(contexts)
    if "status" in named:
        active = [bool(flag) for flag in named["status"].reshape(-1).tolist()]
    counts = [rows if keys > 0 else 0 for keys, rows in zip(contexts, counts, strict=True)]
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


def _mask(config: Config, named: dict[str, Tensor], sequence: _Sequence) -> Mask:
    """The mask of one sequence; these kernels add mask tensors as they are."""
    if config.mask in (MaskType.MASK_FREE, MaskType.NORM_COMPRESS):
        return Mask(diagonal=sequence.keys - sequence.rows)
    if config.mask is MaskType.NONE:
        return Mask()
    mask = unblocked(named["mask"], config.heads, sequence.keys)
    mask = split_heads(mask, config.heads, named["lengths"].shape[0])
    first_row = 0
    if config.mask is MaskType.SPEC:
        # rows of all sequences in one mask, also where blocks keep a leading 1
        first_row = sequence.first if mask.dim() == 2 or len(mask) == 1 else 0
    elif config.spec and mask.shape[-2] > 1:
        first_row = sequence.keys - sequence.rows
    per_head = config.mask is MaskType.ALIBI and mask.shape[0] == config.heads
    number = sequence.number
    if config.compress is not CompressType.NONE and config.heads in mask.shape[:-2]:
        mask, per_head = _of_own_heads(config, mask, number), True
    bias = tensor_mask(
        NAME,
        mask,
        batch=number,
        per_head=per_head,
        first_row=first_row,
        rows=sequence.rows,
        keys=sequence.keys,
    )
    return Mask(bias)


def _of_own_heads(config: Config, mask: Tensor, number: int) -> Tensor:
    """The heads ``[G, rows, keys]`` of a mask that share the keys of a compressed sequence.

    Each key/value head of a request is a sequence of its own there.
    """
    request, head = divmod(number, config.kv_heads)
    group = config.heads // config.kv_heads
    heads = slice(head * group, (head + 1) * group)
    return mask[heads] if mask.dim() == 3 else mask[request if len(mask) > 1 else 0, heads]


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
    config: Config, named: dict[str, Tensor], sequence: _Sequence, head_size: int
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


def _log_n(config: Config, named: dict[str, Tensor], sequence: _Sequence) -> Tensor:
    """The factor of a sequence's scores, one element."""
    entry = sequence.number // (config.kv_heads if config.compress else 1)
    return named["log_n"].reshape(-1)[entry].reshape(1)


def _razor(config: Config, named: dict[str, Tensor], sequence: _Sequence) -> Bias | None:
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


def _recover(
    inputs: Sequence[Tensor | None], outputs: Sequence[Tensor | None], params: Params
) -> Params:
    """``outDataType`` and ``inputLayout`` are never printed.

    The first is the output's dtype. The second is told by the shape of the key cache, unless it
    fits more than one layout; logN is told by the number of inputs.
    """
    query, key = optional_at(inputs, 0), optional_at(inputs, 1)
    found: dict[str, object] = {}
    if query is None or key is None:
        return params
    output = optional_at(outputs, 0)
    if query.dtype == torch.int8 and output is not None:
        found["outDataType"] = desc_of(output).dtype.code
    heads = int_param(NAME, params, "kvHeadNum", 0) or int_param(NAME, params, "headNum", 0)
    size = query.shape[-1]
    blocked = (
        key.dim() == 4
        and key.shape[3] in (16, 32)
        and key.shape[1] * key.shape[3] == (heads * size)
    )
    if key.dim() == 4 and key.shape[1] == heads and key.shape[2] != heads and not blocked:
        found["inputLayout"] = 1
    return {**found, **params}


@golden_op(NAME, infer_shape=infer_shape, recover=_recover, kernel=ATTENTION)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Attention of each sequence's rows over the keys that its block table names.

    Inputs, each where enabled: query ``[T, H, D]``, key cache, value cache ``[nb, bs, Hk, D]``
    (head-major or NZ too), block tables ``[B, n]``, context lengths ``[B]``, mask, run status
    ``[B]``, key scale, key offset, value scale, value offset, query lengths ``[B]`` (else one row
    per sequence), razor offsets, probability scale ``[H]``, logN ``[B]``. With compression the
    caches have one head and tables and lengths one row per key/value head.
    """
    present = [tensor for tensor in inputs if tensor is not None]
    config = read_config(params, len(present))
    named = {name: tensor_at(NAME, present, i) for i, name in enumerate(config.names)}
    query = named["query"]
    tokens, heads, head_size = query.shape
    if config.compress is not CompressType.NONE:
        query = query.reshape(tokens * config.kv_heads, heads // config.kv_heads, head_size)
    outputs = {}
    felt = query.new_full(query.shape[:2], math.nan, dtype=torch.float32)
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
            # Kernels of several tokens keep scores in float16, those of one do not.
            attention = attention_of(arithmetic, query.dtype, plain=not config.spec)
            if attention is attend and isinstance(arithmetic, Noting):
                attention = partial(attend, sensitivity=felt[rows])
            outputs[rows.start, rows.stop] = attention(
                arithmetic.widen(query[rows]),
                arithmetic.widen(keys).to(arithmetic.widen(query[:0]).dtype),
                arithmetic.widen(values).to(arithmetic.widen(query[:0]).dtype),
                scale=config.scale,
                mask=mask,
                row_scale=log_n,
            )
    output = _gather(config, named, outputs, query, arithmetic)
    idle = torch.ones(len(query), dtype=torch.bool)
    for first, last in outputs:
        idle[first:last] = False
    known = {} if bool(felt.isnan().any()) else {0: felt.reshape(tokens, heads, 1)}
    if not bool(idle.any()):
        return Result((output,), sensitivity=known)
    # With compression a query row holds several rows of heads.
    idle = idle.reshape(tokens, -1, 1).repeat_interleave(query.shape[1], dim=1)
    return Result((output,), undefined={0: idle})


def _gather(
    config: Config,
    named: dict[str, Tensor],
    outputs: dict[tuple[int, int], Tensor],
    query: Tensor,
    arithmetic: Arithmetic,
) -> Tensor:
    """All rows in the output's shape and dtype; rows without a sequence are undefined."""
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
