"""What the formula of an attention makes on its way, in the forms in which programs make it.

Another program runs operators where a captured module computes in one piece. What they make is one
of these, brought into another order of axes, or padded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ait_llm.formats.elements import Array
from ait_llm.judge.attention_formula import Formula, Given, context, keys_and_queries

# What hides a place is lower, other numbers are not. It stands out where it is at another place.
_LOWEST, _STANDS_OUT = -9e3, 8.0
_LEAST, _LEAST_BITS = 4, 24  # different numbers, and what whole numbers tell, that are no chance
_MOST_AXES = 4
_FAR = 0.01  # what is further off is another value


def formula_stages(given: Given, formula: Formula) -> Iterator[Array]:
    """All that a formula makes of queries, keys and values, those first.

    Args:
        given: what it computes with, as float64.
        formula: what golden's values prove it to be.
    """
    made: list[Array] = []

    def kept(values: Array) -> Array:
        made.append(values)
        return values

    rows = np.arange(given.query.shape[2])
    if context(given, formula, rows, kept) is None:
        return
    root, groups = math.sqrt(formula.scale), given.query.shape[1] // given.key.shape[1]
    query, key, value = keys_and_queries(given, formula, rows) or (given.query, given.key, None)
    parts = [given.query, given.key, query, key]
    parts += [query * formula.scale, query * root, key * root]
    parts += [given.value] if value is None else [given.value, value]
    parts += [np.repeat(each, groups, 1) for each in parts if each.shape[1] != query.shape[1]]
    for each in parts:
        yield each
        if each.shape[-1] % 2 == 0:  # halves as the pairs of another rotary layout
            yield each.reshape(*each.shape[:-1], 2, -1).swapaxes(-1, -2).reshape(each.shape)
    for heads in (given.query, given.key):
        yield from _rotating(heads, given)
    yield from made
    scores, weights, _ = made[-3:]
    yield np.where(weights == 0, -np.inf, scores)
    yield np.where(weights[:1, :1] == 0, -np.inf, 0.0)  # the mask, one for all heads


def _rotating(heads: Array, given: Given) -> Iterator[Array]:
    """What rotates heads on the way, half by half."""
    if given.tables is None:
        return
    cos, sin = (each[:, None] for each in given.tables)
    half = min(cos.shape[-1], heads.shape[-1]) // 2
    one, other = heads[..., :half], heads[..., half : 2 * half]
    crossed = np.concatenate((-other, one), -1)
    yield from (one, other, -other, crossed)
    if cos.shape[-1] == 2 * half:
        yield heads[..., : 2 * half] * cos
        yield crossed * sin


@dataclass(frozen=True)
class Stage:
    """Something that golden made, to be found again in another form.

    Attributes:
        values: of any shape and type; those that hide places are lowest numbers.
    """

    values: Array

    @cached_property
    def tells(self) -> bool:
        """True if it is not equal to something else by chance."""
        plain = self._plain
        if plain is None:
            return False
        shown, size = plain.shown, self.values.size
        count, hidden = np.unique(shown).size, size - shown.size
        if _is_whole(self.values) or (hidden and count < _LEAST):
            return bool(size * math.log2(max(1, count + bool(hidden))) >= _LEAST_BITS)
        return count >= _LEAST

    def distance(self, other: Array) -> float | None:
        """Relative distance of what may be the same in another form; None if it is not.

        Args:
            other: of the same kind of numbers; one axis may go on with zeros, or with more choices.
        """
        plain = self._plain
        if plain is None or _is_whole(other) != _is_whole(self.values):
            return None
        cuts = (_wide(each) for each in self._cuts(other))
        found = [each for cut in cuts if (each := plain.distance(cut)) is not None]
        return min(found, default=None)

    @cached_property
    def _plain(self) -> _Plain | None:
        axes = [size for size in self.values.shape if size != 1]
        if len(axes) > _MOST_AXES or 0 in axes or self.values.dtype.kind in "bcOSU":
            return None
        values = _wide(self.values).reshape(axes)
        shown = values[values > _LOWEST]
        if not shown.size or not np.isfinite(shown).all():
            return None
        out = _STANDS_OUT * float(np.abs(shown).max()) or 1.0
        return _Plain(np.where(values > _LOWEST, values, out), shown, out)

    def _cuts(self, other: Array) -> Iterator[Array]:
        if other.size == self.values.size:
            yield other
            return
        for axis, size in enumerate(other.shape):
            row = other.size // size if size else 0
            length, left = divmod(self.values.size, row) if row else (0, 1)
            if left or not 0 < length < size or length not in self.values.shape:
                continue
            rest = np.take(other, range(length, size), axis)
            if _is_whole(other) or not rest.any() or (_wide(rest) <= _LOWEST).all():
                yield np.take(other, range(length), axis)


@dataclass(frozen=True, slots=True)
class _Plain:
    """Values without axes of length one.

    Attributes:
        values: where places are hidden, ``out``.
        shown: those of other places.
        out: a number that stands out.
    """

    values: Array
    shown: Array
    out: float

    def distance(self, other: Array) -> float | None:
        """Relative distance, whatever the order of the axes; None if it is something else."""
        flat = np.where(other > _LOWEST, other, self.out).reshape(-1)
        length = float(np.linalg.norm(self.values))
        if not length:
            return None if flat.any() else 0.0
        if not abs(float(np.linalg.norm(flat)) - length) <= _FAR * length:
            return None  # so it is of any order of axes
        orders = itertools.permutations(range(self.values.ndim))
        turned = (self.values.transpose(order).reshape(-1) for order in orders)
        return min(float(np.linalg.norm(flat - each)) for each in turned) / length


def _is_whole(values: Array) -> bool:
    return values.dtype.kind in "iu"


def _wide(values: Array) -> Array:
    return values.astype(np.float64)
