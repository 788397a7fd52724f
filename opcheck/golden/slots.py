"""Writing tokens into a paged cache by slot number.

Slot ``s`` is entry ``s % block_size`` of block ``s // block_size``. A negative slot is skipped;
of two tokens for one slot the later wins.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.opcheck.golden.support import refused


def segments(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Enumerate ``counts[i]`` entries for every i.

    Returns:
        For each entry, its i and its position within the ``counts[i]`` entries.
    """
    owners = torch.repeat_interleave(torch.arange(len(counts)), counts)
    starts = counts.cumsum(0) - counts
    return owners, torch.arange(len(owners)) - starts[owners]


def is_blocked(cache_shape: Sequence[int], features: Sequence[int]) -> bool:
    """Whether a cache stores tokens of shape ``features`` in NZ blocks.

    ``[nb, bs, heads, D]`` is plain; ``[nb, heads * D / n0, bs, n0]`` is blocked. A shape that fits
    both is taken as plain.
    """
    heads, size = features
    return tuple(cache_shape[2:]) != (heads, size) and (
        cache_shape[1] * cache_shape[3] == heads * size
    )


def write_slots(op: str, cache: Tensor, tokens: Tensor, slots: Tensor, *, blocked: bool) -> Tensor:
    """A copy of the cache with the tokens written.

    Args:
        op: operator name, for messages.
        cache: ``[nb, bs, ...]``, or ``[nb, c1, bs, n0]`` if blocked.
        tokens: ``[T, ...]``, features as in one cache entry.
        slots: ``[T]``, any integer dtype.
        blocked: the cache is in NZ blocks.

    Raises:
        OperationError: features do not match, or a slot is past the cache.
    """
    plain = (cache.transpose(1, 2) if blocked else cache).clone(
        memory_format=torch.contiguous_format
    )
    entries = plain.flatten(0, 1).flatten(1)
    features = tokens.flatten(1)
    targets = slots.reshape(-1).to(torch.int64)
    if features.shape[1] != entries.shape[1] or len(targets) != len(features):
        raise refused(
            op,
            f"{list(tokens.shape)} tokens and {len(targets)} slots do not fit a cache of "
            f"{list(cache.shape)}; a token must fill one entry and have one slot",
        )
    wanted = targets >= 0
    if bool((targets >= len(entries)).any()):
        raise refused(op, f"slot {int(targets.max())} is past the cache of {len(entries)} entries")
    order = torch.arange(len(targets))[wanted]
    latest = torch.full((len(entries),), -1).scatter_reduce(0, targets[wanted], order, "amax")
    written = latest >= 0
    entries[written] = features[latest[written]].to(cache.dtype)
    return plain.transpose(1, 2).contiguous() if blocked else plain
