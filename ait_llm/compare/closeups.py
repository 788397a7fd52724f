"""Closeups of the pairs that a reader of the report opens first."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from ait_llm.compare.alignment import Aligned, ShapeMismatchError, align, pairs
from ait_llm.compare.blocks import blocks_of
from ait_llm.compare.histogram import sample
from ait_llm.compare.pair import Settings
from ait_llm.compare.progress import Stopped
from ait_llm.compare.values import open_values
from ait_llm.core.closeup import ERROR_DECADES, WINDOW, Closeup
from ait_llm.core.comparison import Comparison, Origin, Verdict
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.match.model import Match

MAX_CLOSEUPS = 12
MAX_ELEMENTS = 1 << 26  # of one side in all: what failed is read once more for it
CELLS = (32, 48)
VALUE_BINS = 32
WORST = 6


def closeups_of(
    comparisons: Sequence[Comparison],
    origins: Sequence[Origin],
    matches: Mapping[int, Match],
    settings: Settings,
) -> tuple[Closeup, ...]:
    """Look closely at the pairs at the origins, then at those that fail first.

    Args:
        comparisons: all of the report.
        origins: what was found.
        matches: of the failing pairs, by their place among the comparisons.
        settings: of all pairs.

    Returns:
        At most :data:`MAX_CLOSEUPS`, and of at most :data:`MAX_ELEMENTS` elements in all; none of
        complex numbers, and none of what cannot be read any more.
        Fewer where ``settings.stop`` is set meanwhile.
    """
    failing = [place for place in matches if comparisons[place].verdict is Verdict.FAIL]
    failing.sort(key=lambda place: (comparisons[place].record.role != "out", place))
    first = [item.index for item in origins if item.index is not None and item.index in matches]
    found: list[Closeup] = []
    room = MAX_ELEMENTS
    for place in dict.fromkeys([*first, *failing]):
        if len(found) == MAX_CLOSEUPS:
            break
        match = matches[place]
        if not match.golden.tensor.has_data or not match.mine.tensor.has_data:
            continue
        # What became unreadable after it was measured costs the picture, not the report.
        try:
            closeup = _closeup(place, match, settings, room)
        except Stopped:
            break
        except (AitError, ShapeMismatchError, OSError, ValueError, MemoryError):
            continue
        if closeup is not None:
            found.append(closeup)
            room -= prod(closeup.shape)
    return tuple(found)


def _closeup(place: int, match: Match, settings: Settings, room: int) -> Closeup | None:
    """None of what is larger than the room, of nothing, and of complex numbers."""
    with open_values(match.golden.tensor) as first, open_values(match.mine.tensor) as second:
        golden = Aligned(first, match.golden.views, settings.stop)
        mine = Aligned(second, match.mine.views, settings.stop)
        shape = align(golden, mine)
        types = golden.type, mine.type
        if not 0 < golden.size <= room or any(
            np.issubdtype(each, np.complexfloating) for each in types
        ):
            return None
        return look_closely(place, golden, mine, shape)


def look_closely(place: int, golden: Aligned, mine: Aligned, shape: tuple[int, ...]) -> Closeup:
    """The closeup of two aligned tensors of real numbers that have at least one element.

    Raises:
        FormatError: a file became shorter meanwhile.
        Stopped: reading was asked to end.
    """
    columns = shape[-1] if shape else 1
    rows = golden.size // columns
    cells = min(rows, CELLS[0]), min(columns, CELLS[1])
    largest = np.zeros(cells)
    worst = np.zeros(0, np.int64)
    heights = np.zeros(0)
    squares, count, low, high = 0.0, 0, np.inf, -np.inf
    start = 0
    for block in pairs(golden, mine, by_rows=True):
        theirs, ours = (side.astype(np.float64) for side in block)
        errors = _errors(theirs, ours)
        _fold(largest, errors, start, rows, columns)
        heights, worst = _largest(heights, worst, errors, start)
        finite = theirs[np.isfinite(theirs)]
        squares += float(np.square(finite).sum())
        count += finite.size
        for values in (finite, ours[np.isfinite(ours)]):
            if values.size:
                low, high = min(low, values.min()), max(high, values.max())
        start += errors.size
    root = np.sqrt(squares / count) if count else 0.0
    low, high = (float(low), float(high)) if low <= high else (0.0, 0.0)
    counts = _value_counts(golden, mine, low, high)
    windows = _windows(golden, mine, shape, _neighbours(worst, rows, columns))
    return Closeup(
        index=place,
        shape=shape,
        cells=cells,
        errors=base64.b64encode(error_codes(largest / (root or 1.0)).tobytes()).decode("ascii"),
        low=low,
        high=high,
        golden_counts=counts[0],
        my_counts=counts[1],
        worst=tuple(worst.tolist()),
        golden_windows=windows[0],
        my_windows=windows[1],
    )


def error_codes(errors: Array) -> Array:
    """Errors over golden's root mean square as bytes, see :attr:`Closeup.errors`."""
    first, last = ERROR_DECADES
    with np.errstate(divide="ignore"):
        share = (np.log10(errors) - first) / (last - first)
    codes = 1 + np.clip(np.nan_to_num(share, posinf=1.0, neginf=0.0), 0, 1) * 253
    codes[errors == 0] = 0
    codes[np.isinf(errors)] = 255
    bytes_: Array = codes.round().astype(np.uint8)
    return bytes_


def _errors(golden: Array, mine: Array) -> Array:
    """Absolute errors; infinite where one side alone is not finite, none where both are alike."""
    with np.errstate(invalid="ignore", over="ignore"):
        errors: Array = np.abs(mine - golden)
    alike = (golden == mine) | (np.isnan(golden) & np.isnan(mine))
    errors[alike] = 0
    errors[~alike & ~(np.isfinite(golden) & np.isfinite(mine))] = np.inf
    return errors


def _fold(largest: Array, errors: Array, start: int, rows: int, columns: int) -> None:
    """Take the errors of a block, which begins at element ``start``, into the cells."""
    down, across = largest.shape
    if start % columns or errors.size % columns:  # a part of one row
        places = (start % columns + np.arange(errors.size)) * across // columns
        np.maximum.at(largest[start // columns * down // rows], places, errors)
        return
    edges = -(-np.arange(across) * columns // across)  # the first column of each cell
    by_row = np.maximum.reduceat(errors.reshape(-1, columns), edges, axis=1)
    places = (start // columns + np.arange(len(by_row))) * down // rows
    np.maximum.at(largest, places, by_row)


def _largest(heights: Array, places: Array, errors: Array, start: int) -> tuple[Array, Array]:
    """The :data:`WORST` largest errors so far, the largest and first ones first; none that is 0."""
    own = np.argsort(-errors, kind="stable")[:WORST] if errors.size <= 4096 else _top(errors)
    heights = np.concatenate([heights, errors[own]])
    places = np.concatenate([places, own + start])
    order = np.argsort(-heights, kind="stable")[:WORST]
    order = order[heights[order] > 0]
    return heights[order], places[order]


def _top(errors: Array) -> Array:
    chosen: Array = np.sort(np.argpartition(-errors, WORST)[:WORST])
    return chosen[np.argsort(-errors[chosen], kind="stable")]


def _value_counts(
    golden: Aligned, mine: Aligned, low: float, high: float
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many elements of each side lie in each part between the lowest and the highest value."""
    counts = np.zeros((2, VALUE_BINS), np.int64)
    for block, stride in sample(golden, mine):
        for side, values in enumerate((golden.block(block), mine.block(block))):
            part = values[::stride].astype(np.float64)
            part = part[np.isfinite(part)]
            counts[side] += np.histogram(part, VALUE_BINS, (low, high))[0]
    return tuple(counts[0].tolist()), tuple(counts[1].tolist())


def _neighbours(places: Array, rows: int, columns: int) -> Array:
    """Numbers of the elements around each place, one neighbourhood each; -1 beyond the edges."""
    down, across = (np.arange(length) - length // 2 for length in WINDOW)
    row = (places // columns)[:, None, None] + down[:, None]
    column = (places % columns)[:, None, None] + across[None, :]
    inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
    found: Array = np.where(inside, row * columns + column, -1).reshape(-1)
    return found


def _windows(
    golden: Aligned, mine: Aligned, shape: tuple[int, ...], places: Array
) -> list[tuple[float, ...]]:
    """The values of both sides at each place, NaN for a place of -1."""
    found = np.full((2, places.size), np.nan)
    for block in blocks_of(shape, flat=False):
        here = (places >= block.start) & (places < block.stop)
        if here.any():
            for side, each in enumerate((golden, mine)):
                found[side, here] = each.block(block)[places[here] - block.start]
    return [tuple(side.tolist()) for side in found]
