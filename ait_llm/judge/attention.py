"""The attention that code between projections computes, held to what rounding permits.

A capture of modules shows queries, keys and values, and what the output projection reads, and
nothing of the attention between them. Which formula a program uses is not known from its names: it
is one that golden's own values prove. With it mine are judged in the same way.

What rounding does is simulated: each step of the formula is rounded at random to the type of the
run, as the slowest of kernels that are in use would, and what that changes is the deviation that a
correct kernel has at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ait_llm.core import DType
from ait_llm.formats.elements import Array
from ait_llm.judge.attention_formula import Formula, Given, Step, context

# How often it is simulated for so many elements of keys at most; of more, neighbours tell enough.
_SAMPLES = ((1 << 10, 32), (1 << 14, 8), (1 << 62, 3))
_SEED = 20261123
Compute = Callable[[Step], "tuple[Array, Array] | None"]
_EXPONENT = 0x7FF << 52  # of the bits of a float64
# Long sums of float32 in another order, and exponentials of vector units, leave so many roundings.
_FLOAT32_ROUNDINGS = 32
# A formula that is further off than this share has another cause than rounding.
_OTHER, _NOTHING = 0.1, 1e-3
# Few samples may all miss what one rounding does. What is further off anywhere than chance makes it
# by them is simulated so often before anybody is accused. Kernels that scale early or late, or
# normalise late, are then within 3.7 deviations anywhere, and more than eight have no arithmetic.
ASKED, _SURE, _SURELY = 1.0, 64, 8 / 12
# A correct kernel is within one deviation in the root mean square, and within so many anywhere.
_PROVED, _SCATTER = 1.15, 12.0
# What no arithmetic explains. Where few rows tell, chance makes up for more: those of a row share
# what rounded scores do to it.
_BEYOND, _CHANCE = 1.4, 1.4
_OVER_GOLDEN = 1.5


@dataclass(frozen=True, slots=True)
class Distance:
    """How far a result is from its formula, in what rounding permits.

    Attributes:
        deviations: root mean square of the errors, in deviations of a correct kernel.
        worst: error of an element over the most that chance makes of its deviation.
        rows: rows of heads that it is made of.
        place: of the element that is furthest off: request, token and element of the result.
        value, right: what is there, and what should be.
    """

    deviations: float
    worst: float
    rows: int
    place: tuple[int, int, int]
    value: float
    right: float

    @property
    def is_proved(self) -> bool:
        """True if rounding explains all of it."""
        return self.deviations <= _PROVED + 1 / math.sqrt(self.rows) and self.worst <= 1

    def is_beyond(self, golden: Distance, anywhere: float = _BEYOND) -> bool:
        """True if no arithmetic in use explains it, and golden's errors are less.

        Args:
            golden: distance of golden's result.
            anywhere: what the worst element may have.
        """
        if self.worst > max(anywhere, _OVER_GOLDEN * golden.worst):
            return True
        limit = _BEYOND + _CHANCE / math.sqrt(self.rows)
        return self.deviations > max(limit, _OVER_GOLDEN * golden.deviations)


def beyond(mine: Given, golden: Given, formula: Formula, rows: Array) -> Distance | None:
    """How far my result is from a formula, if no arithmetic in use explains it.

    That costs as much as dozens of looks, and is for those that are :data:`ASKED` for.

    Args:
        mine, golden: what both compute with; golden's result is that of the formula.
        formula: see there.
        rows: numbers of the tokens that are looked at.

    Returns:
        None where rounding explains it, or nothing can be told.
    """
    found, other = (distance(each, formula, rows, samples=_SURE) for each in (mine, golden))
    if found is None or other is None or not found.is_beyond(other, _SURELY):
        return None
    return found


def distance(
    given: Given, formula: Formula, rows: Array, *, samples: int | None = None
) -> Distance | None:
    """How far the result of an attention is from a formula.

    Args:
        given: what it computes with, as float64.
        formula: see there.
        rows: numbers of the tokens that are looked at.
        samples: how often rounding is simulated; None for as often as is cheap.

    Returns:
        None where the formula does not fit the shapes, or nothing can be told.
    """

    def computed(step: Step) -> tuple[Array, Array] | None:
        return context(given, formula, rows, step)

    if samples is None:
        samples = next(count for most, count in _SAMPLES if given.key.size <= most)
    return simulated(given.result[:, :, rows], computed, given.dtype, samples, rows)


def simulated(
    made: Array, compute: Compute, dtype: DType, samples: int, rows: Array
) -> Distance | None:
    """How far a result is from what a formula makes, in deviations of a correct kernel.

    Args:
        made: the result, ``[B, H, R, Dv]``.
        compute: the same by the formula, with what happens to each value on the way, and which
            rows ``[B, H, R]`` of it tell something; None where it does not fit the shapes.
        dtype: in which it is computed.
        samples: how often rounding is simulated.
        rows: numbers of the tokens R.

    Returns:
        None where nothing can be told.
    """
    exact = _exact(made, compute)
    if exact is None:
        return None
    right, seen = exact
    error, size = np.abs(made - right), _root_mean_square(right[seen])
    if _root_mean_square(error[seen]) > _OTHER * size:
        return _told(made, right, error / (_NOTHING * size), seen, rows)
    step = _rounding(dtype, np.random.default_rng(_SEED))
    squares = np.zeros_like(right)
    for _ in range(samples):
        moved = compute(step)
        if moved is not None:
            squares += np.square(moved[0] - right) / samples
    # Elements of a row share what rounded scores do to it; samples scatter.
    squares = np.maximum(squares, squares.mean(-1, keepdims=True))
    deviation = np.sqrt(squares) + float(np.finfo(np.float64).tiny)
    return _told(made, right, error / deviation, seen, rows)


def may_fit(given: Given, formula: Formula, rows: Array) -> bool:
    """False where a result is not that of a formula, rounding or not; see :func:`distance`."""
    made = given.result[:, :, rows]
    exact = _exact(made, lambda step: context(given, formula, rows, step))
    if exact is None:
        return False
    right, seen = exact
    error = np.abs(made - right)[seen]
    return _root_mean_square(error) <= _OTHER * _root_mean_square(right[seen])


def _exact(made: Array, compute: Compute) -> tuple[Array, Array] | None:
    """The unrounded result, and which rows of it tell something; None where nothing can be told."""
    exact = compute(lambda values: values)
    if exact is None:
        return None
    right, seen = exact
    if right.shape != made.shape:  # golden's attention is of blocks of tokens, say
        return None
    if not (np.isfinite(made[seen]).all() and np.isfinite(right[seen]).all() and right[seen].any()):
        return None
    return right, seen


def _told(made: Array, right: Array, factors: Array, seen: Array, rows: Array) -> Distance:
    """Factors are errors in deviations; those of rows that tell nothing do not count."""
    factors = np.where(seen[..., None], factors, 0)
    places = np.unravel_index(int(factors.argmax()), factors.shape)
    request, head, row, element = map(int, places)
    token = int(rows[row])
    return Distance(
        _root_mean_square(factors[seen]),
        float(factors.max()) / _SCATTER,
        int(seen.sum()),
        (request, token, head * right.shape[-1] + element),
        float(made[request, head, row, element]),
        float(right[request, head, row, element]),
    )


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _rounding(dtype: DType, random: np.random.Generator) -> Step:
    """Rounds as if what is rounded lay anywhere between two neighbours."""
    info = ml_dtypes.finfo(dtype.numpy_type)  # type: ignore[no-untyped-call]
    eps, least = float(info.eps), float(info.smallest_normal)
    if dtype.bits > 16:
        eps *= _FLOAT32_ROUNDINGS

    def rounded(values: Array) -> Array:
        size = np.maximum(np.abs(values), least)
        # Without its significand a float64 is the power of two below it.
        gaps = np.bitwise_and(size.view(np.int64), _EXPONENT).view(np.float64)
        gaps *= random.random(values.shape, np.float32) - np.float32(0.5)
        gaps *= eps
        gaps += values
        return gaps

    return rounded
