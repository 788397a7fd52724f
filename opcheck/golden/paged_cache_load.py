"""PagedCacheLoad: keys and values of sequences out of a paged cache into dense tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Refusal, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    I8,
    I32,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
)
from ait_llm.opcheck.golden.slots import segments
from ait_llm.opcheck.golden.support import bool_param, int_param, optional_at, refused, tensor_at

NAME = "PagedCacheLoadOperation"


@dataclass(frozen=True, slots=True)
class _Config:
    blocked: bool
    cumulated: bool
    starts: bool


def _config(params: Params, key_rank: int, tables: int, lengths: int) -> _Config:
    """Dumps carry no parameters; layout and mode follow from ranks and lengths."""
    blocked = int_param(NAME, params, "kvCacheCfg", int(key_rank != 2)) == 0
    return _Config(
        blocked,
        bool_param(NAME, params, "isSeqLensCumsumMode", lengths == tables + 1),
        bool_param(NAME, params, "hasSeqStarts", not blocked),
    )


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The dense tensors keep their descriptions."""
    check_count(NAME, descs, 6, 7)
    key_cache, value_cache, tables, lengths, key, value = descs[:6]
    check_rank(NAME, descs, 2, 2)
    check_rank(NAME, descs, 3, 1)
    config = _config(params, len(key.shape), tables.shape[0], lengths.shape[0])
    check_count(NAME, descs, 6 if config.blocked else 7)
    floats = [(x, x, I32, I32, x, x) for x in (F16, I8, BF16)]
    if config.blocked:
        check_dtypes(NAME, descs, [*floats, *((I8, x, I32, I32, I8, x) for x in (F16, BF16))])
    else:
        check_dtypes(NAME, descs, [(*row, I32) for row in floats])
        check_rank(NAME, descs, 6, 1)
    for index in (0, 1):
        check_rank(NAME, descs, index, 4)
        check_rank(NAME, descs, index + 4, 2 if config.blocked else 3)
    if key_cache.shape[0] != value_cache.shape[0] or key.shape[0] != value.shape[0]:
        raise refused(NAME, "keys and values differ in their number of blocks or tokens")
    check_shape(NAME, descs, 3, (tables.shape[0] + config.cumulated,))
    for cache, dense in ((key_cache, key), (value_cache, value)):
        block_size = cache.shape[2 if config.blocked else 1]
        columns = 32 if cache.dtype is I8 else 16
        if config.blocked:
            fits = cache.shape[3] == columns and block_size % 16 == 0
            fits = fits and cache.shape[1] * columns == dense.shape[1]
        else:
            fits = cache.shape[2:] == dense.shape[1:]
        if not fits or block_size == 0:
            raise refused(
                NAME, f"cache {list(cache.shape)} does not hold tokens of {list(dense.shape)}"
            )
    return key, value


def _load(cache: Tensor, dense: Tensor, blocks: Tensor, offsets: Tensor, blocked: bool) -> Tensor:
    """A copy of the dense tensor with the entries ``cache[block, offset]`` in its first rows."""
    entries = (cache.transpose(1, 2) if blocked else cache)[blocks, offsets]
    if len(entries) > len(dense):
        raise refused(
            NAME, f"the sequences have {len(entries)} tokens; there is room for {len(dense)}"
        )
    loaded = dense.clone()
    loaded[: len(entries)] = entries.reshape(len(entries), *dense.shape[1:])
    return loaded


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Token j of sequence i is ``cache[table[i, start[i] // bs + j // bs], j % bs]``.

    Tokens follow each other in the dense tensors; those in a negative block are left out, and rows
    past the last token stay. Inputs: key and value cache ``[nb, bs, H, D]`` or NZ
    ``[nb, N / n0, bs, n0]``; block tables ``[B, n]``; lengths ``[B]``, or their cumulated sums from
    0 ``[B + 1]``; dense key and value, both overwritten; for ND caches first positions ``[B]``.
    """
    key_cache, value_cache, tables = (tensor_at(NAME, inputs, i) for i in range(3))
    lengths = tensor_at(NAME, inputs, 3).reshape(-1).long()
    key, value = tensor_at(NAME, inputs, 4), tensor_at(NAME, inputs, 5)
    config = _config(params, key.dim(), len(tables), len(lengths))
    if config.cumulated:
        lengths = lengths.diff()
    if bool((lengths < 0).any()) or len(lengths) != len(tables):
        raise refused(NAME, f"lengths {lengths.tolist()} do not fit {len(tables)} block tables")
    block_size = key_cache.shape[2 if config.blocked else 1]
    owner, position = segments(lengths)
    column = position // block_size
    starts = optional_at(inputs, 6)
    if config.starts and starts is not None:
        column = column + (starts.reshape(-1).long() // block_size)[owner]
    if len(column) and int(column.max()) >= tables.shape[1]:
        raise refused(
            NAME, f"a sequence needs {int(column.max()) + 1} blocks; tables have {tables.shape[1]}"
        )
    blocks = tables.long()[owner, column]
    if len(blocks) and int(blocks.max()) >= len(key_cache):
        raise refused(NAME, f"block {int(blocks.max())} is past the cache", Refusal.PARAM)
    shown = blocks >= 0
    blocks, offsets = blocks[shown], (position % block_size)[shown]
    loaded = tuple(
        _load(cache, dense, blocks, offsets, config.blocked)
        for cache, dense in ((key_cache, key), (value_cache, value))
    )
    return Result(loaded, {4: loaded[0], 5: loaded[1]})
