"""Which tensors of two runs hold the same numbers, in whatever form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

Array = np.ndarray[Any, Any]
KeyT = TypeVar("KeyT")
LEAST = 8
"""Tensors with fewer different numbers than this carry no label."""
_PROBES = 4
HUGE = 1e30
"""Beyond it a number is a mask's minus infinity."""


def labels_of(array: Array) -> Array:
    """The different numbers of a tensor in ascending order, without zeros and infinities.

    None if some of its memory was never written, see ``UnwrittenIsNaN``.
    """
    if array.dtype.kind != "f" or np.isnan(array).any():
        return np.empty(0)
    numbers = array[np.isfinite(array) & (np.abs(array) < HUGE)].astype(np.float64)
    found: Array = np.unique(numbers[numbers != 0])
    return found


@dataclass(frozen=True)
class Content(Generic[KeyT]):
    """Tensors of one run with exactly the same numbers.

    Attributes:
        numbers: ascending.
        keys: of the tensors.
    """

    numbers: Array
    keys: list[KeyT]


def contents_of(arrays: Mapping[KeyT, Array]) -> list[Content[KeyT]]:
    """The labelled tensors of a run, those with the same numbers together."""
    found: dict[bytes, Content[KeyT]] = {}
    for key, array in arrays.items():
        numbers = labels_of(array)
        if numbers.size >= LEAST:
            found.setdefault(numbers.tobytes(), Content(numbers, [])).keys.append(key)
    return list(found.values())


class _Index:
    """Finds the contents in which a number occurs."""

    def __init__(self, contents: Sequence[Content[Any]]) -> None:
        sizes = [each.numbers.size for each in contents]
        numbers = np.concatenate([np.empty(0), *(each.numbers for each in contents)])
        owners = np.repeat(np.arange(len(contents)), sizes)
        order = np.argsort(numbers, kind="stable")
        self._numbers, self._owners = numbers[order], owners[order]

    def holders(self, number: float, within: float) -> set[int]:
        """Contents with a number that differs by at most ``within``."""
        first, last = np.searchsorted(self._numbers, [number - within, number + within])
        return set(self._owners[first : last + 1].tolist())


def _is_within(part: Array, whole: Array, within: float) -> bool:
    """True if every number of ``part`` is among those of ``whole``."""
    above = np.searchsorted(whole, part).clip(0, whole.size - 1)
    below = (above - 1).clip(0)
    distance = np.minimum(np.abs(whole[above] - part), np.abs(whole[below] - part))
    return bool((distance <= within).all())


def shared(
    golden: Mapping[KeyT, Array], mine: Mapping[KeyT, Array], tolerance: float
) -> tuple[dict[KeyT, KeyT], dict[KeyT, KeyT]]:
    """Tensors of either run that the other holds in some form, each with one that shows it.

    Args:
        golden, mine: tensors of the runs.
        tolerance: how far equal numbers may lie apart, relative to the largest of the tensor.
    """
    sides = contents_of(golden), contents_of(mine)
    found: tuple[dict[KeyT, KeyT], dict[KeyT, KeyT]] = ({}, {})
    for side, other in ((0, 1), (1, 0)):
        index = _Index(sides[other])
        for content in sides[side]:
            numbers = content.numbers
            within = tolerance * float(np.abs(numbers).max())
            places = np.linspace(0, numbers.size - 1, _PROBES).round().astype(int)
            holders = set.intersection(
                *(index.holders(float(numbers[place]), within) for place in places)
            )
            for holder in holders:
                whole = sides[other][holder]
                if not _is_within(numbers, whole.numbers, within):
                    continue
                for key in content.keys:
                    found[side].setdefault(key, whole.keys[0])
                for key in whole.keys:
                    found[other].setdefault(key, content.keys[0])
    return found
