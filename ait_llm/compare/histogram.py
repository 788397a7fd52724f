"""How the errors of a failing pair are distributed, for a picture of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ait_llm.compare.alignment import Aligned
from ait_llm.compare.blocks import Block, blocks_of
from ait_llm.core.comparison import HISTOGRAM_BINS, HISTOGRAM_EDGES
from ait_llm.formats.elements import Array

SAMPLE = 1 << 16  # elements; a histogram of more looks the same and takes its time
_RUNS = 64  # of consecutive elements, spread evenly
_EDGES = np.array(HISTOGRAM_EDGES)


def error_histogram(
    golden: Aligned,
    mine: Aligned,
    worst_values: tuple[float, float] | None = None,
    has_bad: bool = False,
) -> tuple[int, ...] | None:
    """Count elements by relative error, in the bins of ``core.comparison.HISTOGRAM_EDGES``.

    Args:
        golden, mine: aligned tensors of the same dims. Of tensors with more than :data:`SAMPLE`
            elements about so many are counted.
        worst_values: golden's and my value where the absolute error is largest; counted even if
            the sample missed it.
        has_bad: True if some element is not finite on one side; the same.

    Returns:
        None for complex numbers, which have no place on this scale.

    Raises:
        Stopped: reading was asked to end.
        FormatError: a file became shorter meanwhile.
    """
    if any(np.issubdtype(side.type, np.complexfloating) for side in (golden, mine)):
        return None
    counts = np.zeros(HISTOGRAM_BINS, np.int64)
    for block, stride in sample(golden, mine):
        first, second = golden.block(block), mine.block(block)
        counts += bin_counts(first[::stride], second[::stride])
        golden.release(first)
        mine.release(second)
    missed = []
    if worst_values is not None:
        missed.append(bin_counts(*(np.array([value]) for value in worst_values)))
    if has_bad:
        missed.append(bin_counts(np.array([np.nan]), np.array([0.0])))
    for one in missed:
        if not counts[one.argmax()]:
            counts += one
    return tuple(counts.tolist())


def bin_counts(golden: Array, mine: Array) -> Array:
    """Counts of the bins, for 1-D arrays of real numbers."""
    g, m = golden.astype(np.float64), mine.astype(np.float64)
    with np.errstate(all="ignore"):
        relative = np.abs(m - g) / np.abs(g)
    places = 1 + np.searchsorted(_EDGES, relative, side="right")
    places[m == g] = 0
    places[~(np.isfinite(g) & np.isfinite(m))] = HISTOGRAM_BINS - 1
    counts: Array = np.bincount(places, minlength=HISTOGRAM_BINS)
    return counts


def sample(golden: Aligned, mine: Aligned) -> Iterator[tuple[Block, int]]:
    """Blocks, and at which stride their elements are counted."""
    size = golden.size
    flat = golden.is_flat and mine.is_flat
    if flat and size > SAMPLE:
        length = SAMPLE // _RUNS
        for start in np.linspace(0, size - length, _RUNS).astype(int).tolist():
            yield Block(start, start + length, (), (start, start + length)), 1
        return
    # Elements that are made block by block: a few whole blocks.
    blocks = list(blocks_of(golden.shape, flat=flat))
    chosen = blocks[:: max(1, len(blocks) // 4)]
    stride = max(1, sum(block.stop - block.start for block in chosen) // SAMPLE)
    for block in chosen:
        yield block, stride
