"""ReshapeAndCache: keys and values of new tokens into the paged cache.

Three classes share the definition: the plain operator, the one with strided keys and values, and
Omni. Dumps rarely carry the parameters; what they lack follows from the number of inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import torch
from torch import Tensor

from ait_llm.core import FORMAT_FRACTAL_NZ, DType, TensorDesc
from ait_llm.opcheck.golden.base import (
    MOVES,
    Arithmetic,
    KernelArithmetic,
    Params,
    Result,
    golden_op,
)
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    I8,
    I32,
    I64,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
)
from ait_llm.opcheck.golden.slots import is_blocked, segments, write_slots
from ait_llm.opcheck.golden.support import enum_param, refused, tensor_at

NAME = "ReshapeAndCacheOperation"
OMNI = "ReshapeAndCacheOmniOperation"
STRIDED = "ReshapeAndCacheWithStrideOperation"


class CompressType(IntEnum):
    """Values of ``compressType``."""

    NONE = 0
    KVHEAD = 1
    KVHEAD_ROPE = 2


class KvCacheCfg(IntEnum):
    """Values of ``kvCacheCfg``."""

    K_AND_V = 0
    K_ONLY = 1
    NZ = 2


_BASE_COUNT = {CompressType.NONE: 5, CompressType.KVHEAD: 7, CompressType.KVHEAD_ROPE: 8}


def _config(op: str, params: Params, count: int) -> tuple[CompressType, KvCacheCfg]:
    """Compression and cache configuration, from the parameters or else the input count."""
    if op == OMNI:
        return CompressType.KVHEAD_ROPE, KvCacheCfg.K_AND_V
    if op == STRIDED:
        count = 3 if count == 5 else count - 4
    compress = {7: CompressType.KVHEAD, 8: CompressType.KVHEAD_ROPE}.get(count, CompressType.NONE)
    cache = KvCacheCfg.K_ONLY if count == 3 else KvCacheCfg.K_AND_V
    return (
        enum_param(op, params, "compressType", CompressType, compress),
        enum_param(op, params, "kvCacheCfg", KvCacheCfg, cache),
    )


def _check_cache(op: str, descs: Sequence[TensorDesc], token: int, cache: int, nz: bool) -> None:
    """The cache holds tokens of the input's heads and head size."""
    _, heads, size = descs[token].shape
    blocks, block_size = descs[cache].shape[0], descs[cache].shape[2 if nz else 1]
    if not nz:
        check_shape(op, descs, cache, (blocks, block_size, heads, size))
        return
    columns = 32 if descs[token].dtype is I8 else 16
    if block_size % 16 or heads * size % columns:
        raise refused(
            op,
            f"input {cache} has shape {list(descs[cache].shape)}; NZ blocks take a block size of "
            f"multiples of 16 and {columns} columns that divide {heads * size}",
        )
    check_shape(op, descs, cache, (blocks, heads * size // columns, block_size, columns))


def _check_compressed(op: str, descs: Sequence[TensorDesc]) -> None:
    key, value, key_cache, value_cache = descs[:4]
    size = key.shape[2]
    if value.shape[2] != size or size % 32:
        raise refused(
            op, f"head sizes {size} and {value.shape[2]}; compression takes equal multiples of 32"
        )
    for index, cache in ((2, key_cache), (3, value_cache)):
        check_shape(op, descs, index, (*cache.shape[:2], 1, size))


def _infer(op: str, descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The caches keep their descriptions."""
    compress, config = _config(op, params, len(descs))
    single = config is KvCacheCfg.K_ONLY
    base = 3 if single else _BASE_COUNT[compress]
    extra = 0 if op != STRIDED else (2 if single else 4)
    check_count(op, descs, base + extra)
    caches = {0: 1} if single else {0: 2, 1: 3}
    for token, cache in caches.items():
        check_rank(op, descs, token, 3)
        check_rank(op, descs, cache, 4)
    slots_index = 2 if single else 4
    check_rank(op, descs, slots_index, 1)
    nz = config is KvCacheCfg.NZ or descs[max(caches.values())].format == FORMAT_FRACTAL_NZ
    floats = (F16, BF16) if op != NAME or compress is CompressType.KVHEAD_ROPE else (F16, BF16, I8)
    rows: list[tuple[DType, ...]] = [(x,) * (2 * len(caches)) for x in floats]
    if nz:
        rows += [(I8, x, I8, x) for x in (F16, BF16)] + [(F16, BF16) * 2, (BF16, F16) * 2]
    indices = (I32,) * (base - 2 * len(caches)) + (I64,) * extra
    check_dtypes(op, descs, [row + indices for row in rows])
    if not single and descs[0].shape[:2] != descs[1].shape[:2]:
        raise refused(
            op,
            f"key {list(descs[0].shape)} and value {list(descs[1].shape)} differ in tokens or "
            "heads; make them equal",
        )
    if compress is not CompressType.NONE:
        _check_compressed(op, descs)
    else:
        for token, cache in caches.items():
            _check_cache(op, descs, token, cache, nz)
        check_shape(op, descs, slots_index, descs[0].shape[:1])
    return tuple(descs[cache] for cache in caches.values())


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The caches keep their descriptions."""
    return _infer(NAME, descs, params)


def infer_shape_omni(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The caches keep their descriptions."""
    return _infer(OMNI, descs, params)


def infer_shape_strided(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The caches keep their descriptions."""
    return _infer(STRIDED, descs, params)


def _sources(
    wins: Tensor, lengths: Tensor, offsets: Tensor | None, *, mean: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Which token goes where when each (batch, head) row keeps only a part of its tokens.

    Args:
        wins: tokens in the window of each row ``[B * Hk]``.
        lengths: tokens of the row's sequence ``[B * Hk]``.
        offsets: start of the window that is left out, -1 to keep all; None keeps the last
            ``wins`` tokens only.
        mean: the window left out is replaced by one entry.

    Returns:
        For each kept entry its row, its position among the row's entries, the token within the
        sequence that it copies, and whether it is the mean instead.
    """
    if offsets is None:
        counts = torch.minimum(wins, lengths)
        row, position = segments(counts)
        token = lengths[row] - counts[row] + position
        return row, position, token, torch.zeros_like(row, dtype=torch.bool)
    window = torch.where(offsets >= 0, wins, 0)
    inserted = (offsets >= 0).long() * int(mean)
    row, position = segments(lengths - window + inserted)
    start = torch.where(offsets >= 0, offsets, lengths)[row]
    is_mean = (position == start) & (inserted[row] > 0)
    after = position >= start + inserted[row]
    token = torch.where(after, position - inserted[row] + window[row], position)
    return row, position, token, is_mean


def _window_means(
    values: Tensor, first: Tensor, head: Tensor, wins: Tensor, arithmetic: Arithmetic
) -> Tensor:
    """Mean over ``wins[i]`` tokens from ``first[i]`` on of head ``head[i]``, rounded."""
    row, position = segments(wins)
    wide = arithmetic.widen(values[first[row] + position, head[row]])
    total = wide.new_zeros(len(wins), values.shape[-1]).index_add(0, row, wide)
    return (total / wins.clamp(min=1).unsqueeze(1)).to(values.dtype)


def _compressed(
    op: str, inputs: Sequence[Tensor | None], compress: CompressType, arithmetic: Arithmetic
) -> tuple[Tensor, ...]:
    """Write for each batch entry and head a selection of its tokens to consecutive slots."""
    slots, wins, seq_len = (tensor_at(op, inputs, index).reshape(-1).long() for index in (4, 5, 6))
    with_offsets = compress is CompressType.KVHEAD_ROPE
    offsets = tensor_at(op, inputs, 7).reshape(-1).long() if with_offsets else None
    heads = tensor_at(op, inputs, 0).shape[1]
    begins = (seq_len.cumsum(0) - seq_len).repeat_interleave(heads)
    lengths = seq_len.repeat_interleave(heads)
    row, position, token, is_mean = _sources(wins, lengths, offsets, mean=op != OMNI)
    head = torch.arange(len(wins)) % heads
    source = begins[row] + torch.where(is_mean, 0, token)
    caches = []
    for tokens_index, cache_index in ((0, 2), (1, 3)):
        values = tensor_at(op, inputs, tokens_index)
        entries = values[source, head[row]]
        if offsets is not None and bool(is_mean.any()):
            averaged = row[is_mean]
            entries[is_mean] = _window_means(
                values,
                (begins + offsets)[averaged],
                head[averaged],
                wins[averaged],
                arithmetic,
            )
        cache = tensor_at(op, inputs, cache_index)
        caches.append(write_slots(op, cache, entries, slots[row] + position, blocked=False))
    return tuple(caches)


def _strided(inputs: Sequence[Tensor | None], single: bool) -> list[Tensor | None]:
    """Inputs with key and value viewed through their strides and offsets (element counts)."""
    viewed = list(inputs)
    for index in range(1 if single else 2):
        base = len(inputs) - (2 if single else 4) + index
        strides = tensor_at(STRIDED, inputs, base)
        offset = tensor_at(STRIDED, inputs, base + (1 if single else 2))
        tokens = tensor_at(STRIDED, inputs, index)
        viewed[index] = tokens.reshape(-1).as_strided(
            tokens.shape, strides.tolist(), int(offset.reshape(-1)[0])
        )
    return viewed


def _compute(
    op: str, inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic
) -> Result:
    compress, config = _config(op, params, len(inputs))
    single = config is KvCacheCfg.K_ONLY
    if op == STRIDED:
        inputs = _strided(inputs, single)
    if compress is not CompressType.NONE:
        caches = _compressed(op, inputs, compress, arithmetic)
        return Result(caches, dict(enumerate(caches, start=2)))
    first_cache = 1 if single else 2
    slots = tensor_at(op, inputs, 2 if single else 4)
    updated = {}
    for index in range(first_cache):
        tokens = tensor_at(op, inputs, index)
        cache = tensor_at(op, inputs, first_cache + index)
        blocked = config is KvCacheCfg.NZ or is_blocked(cache.shape, tokens.shape[1:])
        updated[first_cache + index] = write_slots(op, cache, tokens, slots, blocked=blocked)
    return Result(tuple(updated.values()), updated)


def _kernel(params: Params) -> KernelArithmetic:
    """Only KVHEAD_ROPE computes something, the mean of a window."""
    return KernelArithmetic(moves=params.get("compressType", 0) != CompressType.KVHEAD_ROPE)


@golden_op(NAME, infer_shape=infer_shape, kernel=_kernel)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``cache[slot // bs, slot % bs] = token``; the caches are inputs and outputs.

    Inputs: key ``[T, Hk, D]``, value, key cache ``[nb, bs, Hk, D]`` (NZ
    ``[nb, Hk * D / n0, bs, n0]``), value cache, slots ``[T]``; K_ONLY key, key cache, slots.
    Compressed: caches ``[nb, bs, 1, D]``, slots ``[B * Hk]``, wins ``[B * Hk]``, lengths ``[B]``,
    and for KVHEAD_ROPE window starts ``[B * Hk]``. KVHEAD keeps the last ``wins`` tokens of each
    head; KVHEAD_ROPE replaces the window by its mean.
    """
    return _compute(NAME, inputs, params, arithmetic)


@golden_op(OMNI, infer_shape=infer_shape_omni, kernel=MOVES)
def compute_omni(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """As KVHEAD_ROPE, but the window is left out without a mean."""
    return _compute(OMNI, inputs, params, arithmetic)


@golden_op(STRIDED, infer_shape=infer_shape_strided, kernel=MOVES)
def compute_strided(
    inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic
) -> Result:
    """The plain operator on key and value viewed with strides and offsets, the last inputs."""
    return _compute(STRIDED, inputs, params, arithmetic)
