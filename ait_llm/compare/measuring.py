"""The metrics of two aligned tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ait_llm.compare.alignment import Aligned, pairs
from ait_llm.compare.blocks import BLOCK_ELEMENTS
from ait_llm.formats.elements import Array
from ait_llm.judge import tolerance_for
from ait_llm.metrics import Measurement, measure_pair

if TYPE_CHECKING:
    from ait_llm.compare.pair import Settings

_WIDE = frozenset({"float64", "complex64", "complex128"})


def measure_aligned(golden: Aligned, mine: Aligned, settings: Settings) -> Measurement:
    """Measure two tensors of the same dims, block by block.

    Raises:
        Stopped: ``settings.stop`` was set.
        FormatError: a file became shorter meanwhile.
    """
    first, second = _arrays(golden, mine, settings)
    return measure_pair(
        first,
        second,
        golden_dtype=golden.dtype,
        my_dtype=mine.dtype,
        metrics=settings.metrics,
        custom=settings.custom,
        max_element=tolerance_for(golden.dtype, mine.dtype, settings.tolerance).max_element,
        blocks=None if golden.size <= BLOCK_ELEMENTS else lambda: pairs(golden, mine),
    )


def _arrays(golden: Aligned, mine: Aligned, settings: Settings) -> tuple[Array, Array]:
    """Both tensors as arrays: real ones where someone looks at them, else of their dims only.

    Small tensors, the user's own metrics and values that may overflow when squared need the
    elements themselves. For all others the blocks are enough.
    """
    if (
        golden.size <= BLOCK_ELEMENTS
        or settings.custom
        or not _WIDE.isdisjoint((golden.type.name, mine.type.name))
    ):
        return golden.whole(), mine.whole()
    first, second = (
        np.broadcast_to(np.zeros((), side.type), side.shape) for side in (golden, mine)
    )
    return first, second
