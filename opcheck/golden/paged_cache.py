"""Reading keys and values of one sequence from a paged cache."""

from __future__ import annotations

import torch
from torch import Tensor

from ait_llm.opcheck.golden.layout import nz_to_nd
from ait_llm.opcheck.golden.support import refused


def token_major(
    cache: Tensor, heads: int, head_size: int | None, *, head_major: bool
) -> tuple[int, bool, bool]:
    """Block size of a cache and which layout it has.

    Layouts: ``[nb, bs, heads, D]``, ``[nb, bs, heads * D]``, head-major ``[nb, heads, bs, D]``, or
    NZ ``[nb, heads * D / n0, bs, n0]``.

    Args:
        cache: the cache.
        heads: key/value heads.
        head_size: D if known.
        head_major: prefer the head-major layout.

    Returns:
        Block size, whether it is NZ, whether it is head-major.
    """
    shape = cache.shape
    if cache.dim() == 3:
        return shape[1], False, False
    if head_major and shape[1] == heads:
        return shape[2], False, True
    if shape[2] == heads and head_size in (None, shape[3]):
        return shape[1], False, False
    if head_size is not None and shape[1] * shape[3] == heads * head_size:
        return shape[2], True, False
    if shape[1] == heads:
        return shape[2], False, True
    return shape[1], False, False


def read_pages(
    op: str,
    cache: Tensor,
    table: Tensor,
    length: int,
    *,
    heads: int,
    head_size: int | None = None,
    head_major: bool = False,
) -> Tensor:
    """The first ``length`` entries of a sequence, ``[length, heads, D]`` in the cache's dtype.

    Key j is entry ``j % bs`` of block ``table[j // bs]``.

    Args:
        op: operator name, for messages.
        cache: paged cache in one of the layouts of :func:`token_major`.
        table: block numbers of the sequence.
        length: entries to read.
        heads: key/value heads.
        head_size: D if known.
        head_major: the cache is ``[nb, heads, bs, D]`` where that fits.

    Raises:
        OperationError: the table is too short or names a block that the cache lacks.
    """
    block_size, blocked, by_head = token_major(cache, heads, head_size, head_major=head_major)
    count = -(-length // block_size)
    blocks = table.reshape(-1)[:count].to(torch.int64)
    if len(blocks) < count or bool((blocks < 0).any()) or bool((blocks >= cache.shape[0]).any()):
        raise refused(
            op,
            f"{length} entries need {count} blocks of {block_size}; the block table gives "
            f"{blocks.tolist()[:8]} for a cache of {cache.shape[0]} blocks",
        )
    pages = cache.index_select(0, blocks)
    if blocked:
        pages = nz_to_nd(pages)
    elif by_head:
        pages = pages.transpose(1, 2)
    return pages.reshape(count * block_size, heads, -1)[:length]
