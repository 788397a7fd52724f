"""How the parts of several ranks make up one tensor, and how that is written down.

A layout is short text, the same on the screen, in tables and in mapping files:

- ``replicate``: every rank holds all of it;
- ``sum``: it is the sum of what the ranks hold;
- ``shard 0``: the ranks' parts lie one after the other along axis 0, of any sizes;
- ``shard 0 blocks 4+4+4``: along axis 0 each rank has 4 of each of three blocks, as of query, key
  and value in one projection; ``4+2x2+2x2`` if two ranks share each part of the last two;
- ``shard 1 groups 2``: the first half of the ranks holds all of it, and the second half again;
- ``ids 7+7+6``, ``rows 7+7+6``: indices into a table that is cut so, and what was found there.

``transposed`` before the text says that the ranks hold the matrix transposed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["replicate", "sum", "shard", "ids", "rows"]
_TEXT = re.compile(
    r"(?P<turned>transposed )?"
    r"(?:(?P<kind>replicate|sum)|shard (?P<axis>\d+)(?: blocks (?P<blocks>[\dx+]+))?"
    r"|(?P<table>ids|rows) (?P<rows>\d+(?:\+\d+)*))"
    r"(?: groups (?P<groups>\d+))?"
)
_BLOCK = re.compile(r"(\d+)(?:x(\d+))?")


@dataclass(frozen=True, slots=True)
class Block:
    """One of several blocks along the axis of a shard.

    Attributes:
        size: elements that each rank holds of it.
        copies: consecutive ranks that hold the same ones.
    """

    size: int
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """How parts make up a whole.

    Attributes:
        kind: see the module.
        axis: along which parts lie, of the whole.
        blocks: of the parts; empty for parts of any sizes, one after the other.
        groups: how often all of it is there.
        rows: of the table on each rank, for ``ids`` and ``rows``.
        turned: the parts are transposed.
    """

    kind: Kind
    axis: int = 0
    blocks: tuple[Block, ...] = ()
    groups: int = 1
    rows: tuple[int, ...] = ()
    turned: bool = False

    def __str__(self) -> str:
        words = ["transposed"] if self.turned else []
        words.append(self.kind)
        if self.kind == "shard":
            words.append(str(self.axis))
        if self.blocks:
            words += ["blocks", "+".join(map(_block_text, self.blocks))]
        if self.rows:
            words.append("+".join(map(str, self.rows)))
        if self.groups > 1:
            words += ["groups", str(self.groups)]
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Range:
    """Where a piece of a part lies.

    Attributes:
        start, stop: in the whole.
        at: in the part.
    """

    start: int
    stop: int
    at: int


def parse_layout(text: str) -> Layout:
    """The layout that a text describes.

    Raises:
        ValueError: none does.
    """
    match = _TEXT.fullmatch(" ".join(text.split()))
    if match is None:
        raise ValueError(f"{text!r} is no layout; write replicate, sum, or shard AXIS")
    groups, turned = int(match["groups"] or 1), bool(match["turned"])
    if match["kind"]:
        kind: Kind = "sum" if match["kind"] == "sum" else "replicate"
        return Layout(kind, groups=groups, turned=turned)
    if match["table"]:
        rows = tuple(map(int, match["rows"].split("+")))
        return Layout("ids" if match["table"] == "ids" else "rows", rows=rows)
    return Layout("shard", int(match["axis"]), _blocks(text, match["blocks"]), groups, (), turned)


def _blocks(text: str, blocks: str | None) -> tuple[Block, ...]:
    found = []
    for part in blocks.split("+") if blocks else ():
        match = _BLOCK.fullmatch(part)
        if match is None:
            raise ValueError(f"{text!r} is no layout: blocks are sizes such as 4+2x2+2x2")
        found.append(Block(int(match[1]), int(match[2] or 1)))
    return tuple(found)


def _block_text(block: Block) -> str:
    return f"{block.size}x{block.copies}" if block.copies > 1 else str(block.size)


def ranges_of(layout: Layout, sizes: Sequence[int], whole: int) -> list[list[Range]] | None:
    """Where each rank's part lies along the axis of a ``shard``.

    Parts that go beyond the whole are padded: what is beyond is left out. None if they do not
    cover the whole, or overlap in another way than the layout says.

    Args:
        layout: a shard.
        sizes: of each rank's part along the axis.
        whole: size of the whole along it.
    """
    if not sizes or layout.groups < 1 or len(sizes) % layout.groups:
        return None
    ranks = len(sizes) // layout.groups
    found: list[list[Range]] = []
    for first in range(0, len(sizes), ranks):
        group = _group(layout.blocks, sizes[first : first + ranks])
        if group is None or not _covers(group, whole, padded=not layout.blocks):
            return None
        found += [
            [Range(r.start, min(r.stop, whole), r.at) for r in ranges if r.start < whole]
            for ranges in group
        ]
    return found


def _group(blocks: Sequence[Block], sizes: Sequence[int]) -> list[list[Range]] | None:
    """Ranges of ranks that hold all of the whole once."""
    found: list[list[Range]] = [[] for _ in sizes]
    if not blocks:
        start = 0
        for ranges, size in zip(found, sizes, strict=True):
            ranges.append(Range(start, start + size, 0))
            start += size
        return found
    if any(size != sum(block.size for block in blocks) for size in sizes):
        return None
    base = at = 0
    for block in blocks:
        if block.copies < 1 or len(sizes) % block.copies:
            return None
        for rank, ranges in enumerate(found):
            start = base + rank // block.copies * block.size
            ranges.append(Range(start, start + block.size, at))
        base += len(sizes) // block.copies * block.size
        at += block.size
    return found


def _covers(group: Sequence[Sequence[Range]], whole: int, *, padded: bool) -> bool:
    stop = max((r.stop for ranges in group for r in ranges), default=0)
    largest = max((r.stop - r.start for ranges in group for r in ranges), default=0)
    return stop == whole or (padded and whole < stop < whole + largest)
