"""Layouts that shapes alone permit, the likelier ones first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ait_llm.compare.api.shards.layout import Block, Layout

Shape = tuple[int, ...]
_MOST_BLOCKS = 8  # of equal size in one projection
_MOST_QUERIES = 64  # query heads for each key head


def candidates(whole: Shape, parts: Sequence[Shape]) -> list[Layout]:
    """Layouts that may make parts of these shapes a whole of that shape.

    Args:
        whole: shape of the tensor on the side with fewer ranks.
        parts: shapes of the other side, by rank.
    """
    found = list(_straight(whole, parts))
    if len(whole) == 2 and all(len(part) == 2 for part in parts):
        turned = [(part[1], part[0]) for part in parts]
        if whole[0] != whole[1] or not found:
            found += [_turned(each) for each in _straight(whole, turned)]
    return found


def _straight(whole: Shape, parts: Sequence[Shape]) -> Iterator[Layout]:
    if all(part == whole for part in parts):
        yield Layout("replicate")
        yield Layout("sum")
        return
    for axis in range(len(whole)):
        if all(_differ_at(part, whole, axis) for part in parts):
            yield from _along(axis, whole[axis], [part[axis] for part in parts])


def _turned(layout: Layout) -> Layout:
    return Layout(layout.kind, layout.axis, layout.blocks, layout.groups, layout.rows, turned=True)


def _differ_at(part: Shape, whole: Shape, axis: int) -> bool:
    return len(part) == len(whole) and part[:axis] + part[axis + 1 :] == (
        whole[:axis] + whole[axis + 1 :]
    )


def _along(axis: int, whole: int, sizes: Sequence[int]) -> Iterator[Layout]:
    ranks = len(sizes)
    for groups in _divisors(ranks):
        size = ranks // groups
        sums = {sum(sizes[first : first + size]) for first in range(0, ranks, size)}
        if sums == {whole}:
            yield Layout("shard", axis, groups=groups)
    if len(set(sizes)) == 1:
        for groups in _divisors(ranks):
            for blocks in _blocks(whole, ranks // groups, sizes[0]):
                yield Layout("shard", axis, blocks, groups)
    if whole < sum(sizes) < whole + max(sizes):
        yield Layout("shard", axis)  # padded


def _blocks(whole: int, ranks: int, size: int) -> Iterator[tuple[Block, ...]]:
    """Ways to cut equal parts into blocks that are cut over the ranks one by one."""
    if ranks * size == whole:
        for count in range(2, _MOST_BLOCKS + 1):
            if size % count == 0:
                yield (Block(size // count),) * count
        for queries in range(2, _MOST_QUERIES + 1):
            if size % (queries + 2) == 0:
                key = size // (queries + 2)
                yield Block(queries * key), Block(key), Block(key)
    for copies in _divisors(ranks)[1:]:
        if ranks // copies * size == whole:
            yield (Block(size, copies),)
        # Keys and values that several ranks share beside queries that they do not.
        beyond, step = ranks * size - whole, 2 * (ranks - ranks // copies)
        if beyond > 0 and beyond % step == 0 and size > 2 * beyond // step:
            key = beyond // step
            yield Block(size - 2 * key), Block(key, copies), Block(key, copies)


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def parts_of_unknown(parts: Sequence[Shape]) -> Iterator[Layout]:
    """Layouts of parts whose whole is not known, the likelier first."""
    if len(set(parts)) == 1:
        yield Layout("replicate")
    for axis in range(len(parts[0])):
        if all(_differ_at(part, parts[0], axis) for part in parts):
            yield Layout("shard", axis)
    if len(set(parts)) == 1:
        yield Layout("sum")
        for axis, size in enumerate(parts[0]):
            for blocks in _blocks(len(parts) * size, len(parts), size):
                if all(block.copies == 1 for block in blocks):
                    yield Layout("shard", axis, blocks)
