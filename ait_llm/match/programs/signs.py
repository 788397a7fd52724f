"""Signs of rows: numbers of 64 bits that say what was computed.

A sum has the sum of the signs of its summands, in whatever order they were added, and zeros have
none; all else mixes the signs of what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import prod

import numpy as np
import numpy.typing as npt

Signs = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Signed:
    """The signs of a value.

    Attributes:
        signs: one for each row, the last axis being 1; or one for each element.
        width: of a row; 0 where each element has a sign of its own.
        seeds: of a product, what its columns are computed of; None for all else.
    """

    signs: Signs
    width: int
    seeds: Signs | None = None


def sign(*words: object) -> np.uint64:
    """The sign of a name."""
    digest = blake2b(repr(words).encode(), digest_size=8).digest()
    found: np.uint64 = np.uint64(int.from_bytes(digest, "big"))
    return found


def mixed(name: object, *signs: Signs) -> Signs:
    """The signs of what is computed of others, in their order."""
    with np.errstate(over="ignore"):
        found = np.asarray(sign(name))
        for each in signs:
            found = (found ^ each) * np.uint64(0x9E3779B97F4A7C15)
            found = (found ^ (found >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            found = found ^ (found >> np.uint64(32))
    return found


def shaped(signed: Signed, shape: tuple[int, ...]) -> Signed | None:
    """Signs of a value in another shape; None if its rows are others there."""
    if signed.width and (not shape or shape[-1] != signed.width):
        return None
    wanted = (*shape[:-1], 1) if signed.width else shape
    if prod(wanted) != signed.signs.size:
        return None
    seeds = None if signed.seeds is None else signed.seeds.reshape(wanted)
    return Signed(signed.signs.reshape(wanted), signed.width, seeds)


def cells(columns: int, rows: Sequence[int], *words: object) -> Signed:
    """Signs of every element of ``[rows, columns]``.

    Args:
        columns: their number.
        rows: what each row is called.
        words: what the value is called.
    """
    names = np.asarray(rows, np.uint64)[:, None]
    return Signed(mixed(words, names, np.arange(columns, dtype=np.uint64)[None]), 0)


def whole_rows(shape: tuple[int, ...], rows: Sequence[int], *words: object) -> Signed:
    """Signs of every row of a value of a shape; other arguments as for :func:`cells`."""
    names = np.asarray(rows, np.uint64)
    return Signed(mixed(words, names).reshape(*shape[:-1], 1), shape[-1])
