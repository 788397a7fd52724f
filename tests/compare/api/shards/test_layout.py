"""Layouts as text, and where they put each rank's part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.compare.api.shards.layout import Block, Layout, parse_layout, ranges_of

BLOCKS = st.lists(st.builds(Block, st.integers(1, 9), st.integers(1, 4)), max_size=3).map(tuple)
SHARDS = st.builds(
    Layout, st.just("shard"), st.integers(0, 5), BLOCKS, st.integers(1, 4), turned=st.booleans()
)
TABLES = st.builds(
    Layout,
    st.sampled_from(["ids", "rows"]),
    rows=st.lists(st.integers(0, 99), min_size=1).map(tuple),
)
WHOLE = st.builds(Layout, st.sampled_from(["replicate", "sum"]), turned=st.booleans())


@given(st.one_of(SHARDS, TABLES, WHOLE))
def test_the_text_of_a_layout_is_read_back_as_the_same(layout: Layout) -> None:
    assert parse_layout(str(layout)) == layout


@pytest.mark.parametrize("text", ["", "shard", "shard x", "shard 0 blocks", "split 0", "ids"])
def test_other_text_is_no_layout(text: str) -> None:
    with pytest.raises(ValueError, match="is no layout"):
        parse_layout(text)


@given(BLOCKS, st.integers(1, 3), st.integers(1, 3))
def test_blocks_cover_the_whole_once_for_each_copy(
    blocks: tuple[Block, ...], shares: int, groups: int
) -> None:
    if not blocks:
        return
    ranks = shares * int(np.lcm.reduce([block.copies for block in blocks]))
    whole = sum(ranks // block.copies * block.size for block in blocks)
    size = sum(block.size for block in blocks)
    found = ranges_of(Layout("shard", 0, blocks, groups), [size] * ranks * groups, whole)
    assert found is not None
    counts = np.zeros(whole, int)
    for ranges in found:
        assert sum(r.stop - r.start for r in ranges) == size
        for r in ranges:
            counts[r.start : r.stop] += 1
    copies = [block.copies for block in blocks for _ in range(ranks // block.copies * block.size)]
    assert counts.tolist() == [each * groups for each in copies]


@pytest.mark.parametrize(
    ("layout", "sizes", "whole"),
    [
        ("shard 0", [4, 4], 9),  # something is missing
        ("shard 0", [4, 4], 4),  # more than padding
        ("shard 0 groups 2", [4, 4, 4], 8),
        ("shard 0 blocks 2+2", [4, 5], 9),
        ("shard 0 blocks 2x2", [2, 2, 2], 4),
    ],
)
def test_parts_that_do_not_cover_the_whole_do_not_fit(
    layout: str, sizes: list[int], whole: int
) -> None:
    assert ranges_of(parse_layout(layout), sizes, whole) is None


def test_what_pads_the_last_part_is_left_out() -> None:
    found = ranges_of(Layout("shard"), [4, 4], 7)
    assert found is not None
    assert [(r.start, r.stop, r.at) for ranges in found for r in ranges] == [(0, 4, 0), (4, 7, 0)]
