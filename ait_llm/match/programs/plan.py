"""Which block of one side belongs to which block of the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ait_llm.formats.elements import Array
from ait_llm.match.programs.align import Aligner
from ait_llm.match.programs.links import AMBIGUOUS, SURE
from ait_llm.match.programs.tokens import Tokens
from ait_llm.program.describe import integers
from ait_llm.program.layers import Block, blocks
from ait_llm.program.program import Program, Unit
from ait_llm.program.roles import Role
from ait_llm.program.rows import Rows


@dataclass(frozen=True, slots=True)
class Place:
    """Two blocks to be aligned.

    Attributes:
        left, right: the blocks.
        where: how reasons call it.
        certainty: limit of the confidence of what is found in it.
    """

    left: Block
    right: Block
    where: str
    certainty: float = SURE


def plan(left: Program, right: Program, aligner: Aligner) -> list[Place]:
    """Pair the blocks of two sides."""
    ours, theirs = blocks(left), blocks(right)
    if _sizes(ours) and _sizes(theirs) and len(_sizes(ours)) != len(_sizes(theirs)):
        ours, theirs = _largest_only(ours), _largest_only(theirs)
    if not _sizes(ours) or not _sizes(theirs):
        whole = [
            Block(None, 0, -1, tuple(u for b in side for u in b.units)) for side in (ours, theirs)
        ]
        return [Place(whole[0], whole[1], "of the model")]
    places = []
    for stack in range(len(_sizes(ours)) + 1):
        between = [
            next(b for b in side if b.stack == stack and b.layer is None) for side in (ours, theirs)
        ]
        where = "before the layers" if stack < len(_sizes(ours)) else "behind the layers"
        places.append(Place(between[0], between[1], where))
        rows = [
            [b for b in side if b.stack == stack and b.layer is not None] for side in (ours, theirs)
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
    is_right = len(right) < len(left)
    shorter, longer = (right, left) if is_right else (left, right)
    told = _by_weights(
        [aligner.digests(block.units, of_left=not is_right) for block in shorter],
        [aligner.digests(block.units, of_left=is_right) for block in longer],
    )
    if told is not None:
        both = [(shorter[n], longer[m]) for n, m in enumerate(told)]
        both = [(b, a) for a, b in both] if is_right else both
        return [Place(a, t, f"of layer {t.number}") for a, t in both]
    forms = [
        [aligner.forms(block.units, of_left=side is left) for block in side]
        for side in (shorter, longer)
    ]

    def are_alike(place: int, other: int) -> bool:
        """True if most units of the smaller block have a partner."""
        a, b = forms[0][place], forms[1][other]
        right_units = (shorter[place] if is_right else longer[other]).units
        paired = aligner.count(b, a) if is_right else aligner.count(a, b)
        return 2 * paired >= len(right_units)

    fits = [
        start
        for start in range(len(longer) - len(shorter) + 1)
        if all(are_alike(place, start + place) for place in range(len(shorter)))
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
    if is_right:
        pairs = [(b, a) for a, b in pairs]
    return [Place(a, t, f"of layer {t.number}", certainty) for a, t in pairs]


def _by_weights(shorter: list[set[bytes]], longer: list[set[bytes]]) -> list[int] | None:
    """Which of the more layers has the weights of each of the fewer; None if they do not tell.

    One layer whose weights are in none may lie between two that do, with no place for another.
    """
    holders: dict[bytes, list[int]] = {}
    for place, digests in enumerate(longer):
        for digest in digests:
            holders.setdefault(digest, []).append(place)
    found: list[int | None] = []
    for digests in shorter:
        votes = Counter(holders[each][0] for each in digests if len(holders.get(each, ())) == 1)
        place, count = votes.most_common(1)[0] if votes else (-1, 0)
        found.append(place if 2 * count > votes.total() else None)
    places = [
        before + 1 if place is None and before is not None and behind == before + 2 else place
        for before, place, behind in zip([None, *found], found, [*found[1:], None], strict=False)
    ]
    known = [place for place in places if place is not None]
    is_ascending = all(one < other for one, other in pairwise(known))
    return known if len(known) == len(shorter) and is_ascending else None


def same_ids(left: Program, right: Program, tokens: Tokens | None) -> set[tuple[int, int]]:
    """Embeddings of both sides that are looked up by the same ids."""
    found: set[tuple[int, int]] = set()
    if tokens is None:
        return found
    ours = [(u, ids) for u in left.units if (ids := _ids(u, tokens.left)) is not None]
    theirs = [(u, ids) for u in right.units if (ids := _ids(u, tokens.right)) is not None]
    rows = np.asarray(tokens.pairs, dtype=np.int64).reshape(-1, 2)
    for a, mine in ours:
        for t, other in theirs:
            if np.array_equal(mine[rows[:, 0]], other[rows[:, 1]]):
                found.add((a.op, t.op))
    return found


def _ids(unit: Unit, rows: Rows) -> Array | None:
    """What an embedding is looked up by, for each flat row; None if it is not one for each."""
    if unit.role is not Role.EMBEDDING or unit.source is None:
        return None
    ids = integers(unit.source.uses[0].tensor)
    if ids is None:
        return None
    if rows.batch and ids.shape == (1, rows.seq):
        ids = np.broadcast_to(ids, (rows.batch, rows.seq))
    return ids.reshape(-1) if ids.size == rows.count else None
