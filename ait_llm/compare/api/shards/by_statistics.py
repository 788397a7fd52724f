"""Which layout recorded statistics confirm: of parts that lie side by side, or are all the same.

Of a tensor in parts the maximum is the largest of the parts' maxima, the minimum the smallest of
their minima, the mean their mean by number of elements, and the norm the root of the sum of squares
of their norms. How parts of a sum add up, statistics do not tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ait_llm.compare.api.item import Item, is_number
from ait_llm.compare.api.shards.layout import Layout

_NAMES = ("max", "min", "mean", "norm")
Four = tuple[float | None, float | None, float | None, float | None]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StatisticsChoice:
    """A layout, and what the statistics say of it.

    Attributes:
        layout: the layout.
        off: ranks that are wrong as far as that can be told.
        reason: what is wrong, as a clause; empty if nothing is.
        combined: statistics of all parts together.
    """

    layout: Layout
    off: tuple[int, ...]
    reason: str
    combined: tuple[float | None, ...]


def choose_by_statistics(
    layouts: Iterable[Layout],
    whole: Item,
    parts: Sequence[Item],
    sizes: tuple[int, Sequence[int]],
    limit: float,
) -> StatisticsChoice | None:
    """The first layout that the statistics confirm, or that shapes leave no doubt of.

    Args:
        layouts: what shapes permit.
        whole, parts: with recorded statistics.
        sizes: elements of the whole and of each part.
        limit: largest error of a statistic, in proportion to the elements of the whole.
    """
    golden = _four(whole)
    if all(value is None for value in golden):
        return None
    wrong: StatisticsChoice | None = None
    for layout in layouts:
        if layout.kind == "replicate":
            found = _all_alike(layout, golden, parts, sizes, limit)
        elif layout.kind == "shard":
            found = _side_by_side(layout, golden, parts, sizes, limit)
        else:
            continue
        if found is not None and not found.reason:
            return found
        wrong = wrong or found
    return wrong


def _all_alike(
    layout: Layout,
    golden: Four,
    parts: Sequence[Item],
    sizes: tuple[int, Sequence[int]],
    limit: float,
) -> StatisticsChoice | None:
    found = [_error(golden, _four(part), sizes[0], limit) for part in parts]
    off = tuple(rank for rank, error in enumerate(found) if error)
    if len(off) * 2 > len(parts):  # most are something else: parts of a sum perhaps
        return None
    return StatisticsChoice(layout, off, next(filter(None, found), ""), golden)


def _side_by_side(
    layout: Layout,
    golden: Four,
    parts: Sequence[Item],
    sizes: tuple[int, Sequence[int]],
    limit: float,
) -> StatisticsChoice | None:
    copies = layout.blocks[0].copies if len(layout.blocks) == 1 else 1
    if any(block.copies != copies for block in layout.blocks):
        return None
    ranks = range(0, len(parts) // layout.groups, copies)
    if sum(sizes[1][rank] for rank in ranks) != sizes[0]:
        return None  # padded
    combined = _combined([_four(parts[r]) for r in ranks], [sizes[1][r] for r in ranks])
    reason = _error(golden, combined, sizes[0], limit)
    off = tuple(r for r, part in enumerate(parts) if _sticks_out(golden, _four(part), limit))
    for rank in range(len(parts)):  # copies must be equal to the first
        first = rank % (len(parts) // layout.groups) // copies * copies
        error = _error(_four(parts[first]), _four(parts[rank]), sizes[1][rank], limit)
        if error and rank not in off:
            off, reason = (*off, rank), reason or error
    return StatisticsChoice(layout, tuple(sorted(off)) if reason else (), reason, combined)


def _combined(parts: Sequence[Four], sizes: Sequence[int]) -> Four:
    def column(place: int) -> list[float] | None:
        found = [part[place] for part in parts]
        return None if None in found else [value for value in found if value is not None]

    maxima, minima, means, norms = map(column, range(4))
    count = sum(sizes)
    return (
        None if maxima is None else max(maxima),
        None if minima is None else min(minima),
        None
        if means is None or not count
        else math.fsum(mean * size for mean, size in zip(means, sizes, strict=True)) / count,
        None if norms is None else math.hypot(*norms),
    )


def _error(golden: Four, mine: Four, elements: int, limit: float) -> str:
    """What is further off than the limit; empty if nothing is, or nothing is known."""
    scales = _scales(golden, elements)
    for name, g, m, scale in zip(_NAMES, golden, mine, scales, strict=True):
        if g is None or m is None or g == m or (math.isnan(g) and math.isnan(m)):
            continue
        away = abs(m - g)
        if not away <= limit * scale:
            return f"the {name} is {m:.6g} and should be {g:.6g}"
    return ""


def _sticks_out(golden: Four, part: Four, limit: float) -> bool:
    """True if a part has what the whole cannot have."""
    top, bottom, _, norm = part
    scale = max((abs(each) for each in golden[:2] if each is not None), default=0.0) * limit
    return (
        any(value is not None and math.isnan(value) for value in part)
        or _beyond(top, golden[0], scale)
        or _beyond(golden[1], bottom, scale)
        or _beyond(norm, golden[3], (golden[3] or 0.0) * limit)
    )


def _beyond(one: float | None, other: float | None, allowed: float) -> bool:
    return one is not None and other is not None and one > other + allowed


def _scales(golden: Four, elements: int) -> tuple[float, float, float, float]:
    largest = max((abs(each) for each in golden[:2] if each is not None), default=0.0)
    norm = golden[3]
    rms = norm / math.sqrt(elements) if norm is not None and elements else largest
    return largest, largest, rms, norm or 0.0


def _four(item: Item) -> Four:
    found = [float(value) if is_number(value) else None for value in item.statistics]
    if isinstance(item.statistics[0], bool):  # any and all
        found[:2] = [float(bool(value)) for value in item.statistics[:2]]
    return found[0], found[1], found[2], found[3]
