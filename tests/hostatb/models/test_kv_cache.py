"""The paged key-value cache."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.errors import UsageError
from ait_llm.hostatb.models.config import LLAMA_PRESETS
from ait_llm.hostatb.models.kv_cache import PagedCache, blocks_for

TINY = LLAMA_PRESETS["tiny"]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 9))
def test_no_two_tokens_share_a_slot(lengths: list[int], block_size: int) -> None:
    cache = PagedCache(TINY, sum(blocks_for(n, block_size) for n in lengths), block_size)
    for sequence, length in enumerate(lengths):
        cache.reserve(sequence, length)
    slots = [cache.slot(seq, pos) for seq, length in enumerate(lengths) for pos in range(length)]
    assert len(set(slots)) == sum(lengths)


@given(st.integers(1, 30), st.integers(1, 9))
def test_a_slot_is_where_the_block_table_points(length: int, block_size: int) -> None:
    cache = PagedCache(TINY, blocks_for(length, block_size), block_size)
    cache.reserve(0, length)
    table = cache.block_tables(range(1))[0]
    for position in range(length):
        block = int(table[position // block_size])
        assert cache.slot(0, position) == block * block_size + position % block_size


def test_blocks_of_growing_sequences_interleave() -> None:
    cache = PagedCache(TINY, 4, 2)
    for length in (2, 4):
        for sequence in (0, 1):
            cache.reserve(sequence, length)
    assert cache.block_tables(range(2)).tolist() == [[3, 1], [2, 0]]


def test_growing_keeps_the_slots_of_earlier_tokens() -> None:
    cache = PagedCache(TINY, 3, 2)
    cache.reserve(0, 2)
    before = [cache.slot(0, position) for position in range(2)]
    cache.reserve(0, 5)
    assert [cache.slot(0, position) for position in range(2)] == before


def test_short_block_tables_are_padded_with_zero() -> None:
    cache = PagedCache(TINY, 4, 2)
    cache.reserve(0, 6)
    cache.reserve(1, 1)
    assert cache.block_tables(range(2)).tolist() == [[3, 2, 1], [0, 0, 0]]
    assert cache.block_tables(range(2)).dtype is torch.int32


def test_a_full_cache_says_who_needs_room() -> None:
    cache = PagedCache(TINY, 1, 2)
    cache.reserve(0, 2)
    with pytest.raises(UsageError, match="sequence 1 needs room for 1 tokens"):
        cache.reserve(1, 1)
