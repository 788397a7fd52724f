"""Which block of one side belongs to which block of the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ait_llm.match.programs.align import Aligner
from ait_llm.match.programs.links import AMBIGUOUS, SURE
from ait_llm.match.programs.tokens import Tokens
from ait_llm.program.describe import integers
from ait_llm.program.layers import Block, blocks
from ait_llm.program.program import Side, Unit
from ait_llm.program.roles import Role


@dataclass(frozen=True, slots=True)
class Place:
    """Two blocks to be aligned.

    Attributes:
        atb, torch: the blocks.
        where: how reasons call it.
        certainty: limit of the confidence of what is found in it.
    """

    atb: Block
    torch: Block
    where: str
    certainty: float = SURE


def plan(atb: Side, torch: Side, aligner: Aligner) -> list[Place]:
    """Pair the blocks of two sides."""
    left, right = blocks(atb), blocks(torch)
    if _sizes(left) and _sizes(right) and len(_sizes(left)) != len(_sizes(right)):
        left, right = _largest_only(left), _largest_only(right)
    if not _sizes(left) or not _sizes(right):
        whole = [
            Block(None, 0, -1, tuple(u for b in side for u in b.units)) for side in (left, right)
        ]
        return [Place(whole[0], whole[1], "of the model")]
    places = []
    for stack in range(len(_sizes(left)) + 1):
        between = [
            next(b for b in side if b.stack == stack and b.layer is None) for side in (left, right)
        ]
        where = "before the layers" if stack < len(_sizes(left)) else "behind the layers"
        places.append(Place(between[0], between[1], where))
        rows = [
            [b for b in side if b.stack == stack and b.layer is not None] for side in (left, right)
        ]
        places += _pair_layers(rows[0], rows[1], aligner)
    return places


def _sizes(found: Sequence[Block]) -> dict[int, int]:
    """Number of layers of each row."""
    sizes: dict[int, int] = {}
    for block in found:
        if block.layer is not None:
            sizes[block.stack] = sizes.get(block.stack, 0) + 1
    return sizes


def _largest_only(found: list[Block]) -> list[Block]:
    """Keep the row with the most units; other rows count as what lies before or behind it."""
    units: dict[int, int] = {}
    for block in found:
        if block.layer is not None:
            units[block.stack] = units.get(block.stack, 0) + len(block.units)
    chosen = max(units, key=lambda stack: units[stack])
    before: list[Unit] = []
    behind: list[Unit] = []
    layers = []
    for block in found:
        if block.layer is not None and block.stack == chosen:
            layers.append(Block(block.layer, 0, block.number, block.units))
        elif block.stack <= chosen and not layers:
            before += block.units
        else:
            behind += block.units
    return [Block(None, 0, -1, tuple(before)), *layers, Block(None, 1, -1, tuple(behind))]


def _pair_layers(left: list[Block], right: list[Block], aligner: Aligner) -> list[Place]:
    if len(left) == len(right):
        return [Place(a, t, f"of layer {t.number}") for a, t in zip(left, right, strict=True)]
    shorter, longer = sorted((left, right), key=len)
    fits = [
        start
        for start in range(len(longer) - len(shorter) + 1)
        if all(
            _alike(a, b, aligner, turned=shorter is right)
            for a, b in zip(shorter, longer[start:], strict=False)
        )
    ]
    if not fits:
        return []
    start = fits[0]
    by_number = [
        s
        for s in fits
        if all(a.number == b.number for a, b in zip(shorter, longer[s:], strict=False))
    ]
    certainty = SURE if len(fits) == 1 else AMBIGUOUS
    if by_number:
        start = by_number[0]
    pairs = list(zip(shorter, longer[start:], strict=False))
    if shorter is right:
        pairs = [(b, a) for a, b in pairs]
    return [Place(a, t, f"of layer {t.number}", certainty) for a, t in pairs]


def _alike(a: Block, b: Block, aligner: Aligner, *, turned: bool) -> bool:
    """True if most units of the smaller block have a partner."""
    left, right = (b, a) if turned else (a, b)
    pairs = aligner.align(left.units, right.units)
    return 2 * sum(len(pair.torch) for pair in pairs) >= len(right.units)


def same_ids(atb: Side, torch: Side, tokens: Tokens | None) -> set[tuple[int, int]]:
    """Embeddings of both sides that are looked up by the same ids."""
    found: set[tuple[int, int]] = set()
    if tokens is None:
        return found
    mine = [unit for unit in atb.units if unit.role is Role.EMBEDDING]
    theirs = [unit for unit in torch.units if unit.role is Role.EMBEDDING]
    for t in theirs:
        padded = None if t.source is None else integers(t.source.uses[0].tensor)
        if padded is None:
            continue
        if padded.shape == (1, tokens.seq):
            padded = np.broadcast_to(padded, (tokens.batch, tokens.seq))
        if padded.shape != (tokens.batch, tokens.seq):
            continue
        places = list(tokens.rows or range(tokens.batch * tokens.seq))
        wanted = padded.reshape(-1)[places]
        for a in mine:
            ids = None if a.source is None else integers(a.source.uses[0].tensor)
            if ids is not None and np.array_equal(ids.reshape(-1), wanted):
                found.add((a.op, t.op))
    return found
