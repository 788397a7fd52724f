"""Choices that two healthy runs make differently: experts, or tokens, whose scores lie too close.

A choice of the highest scores is no arithmetic. Where the scores of two runs agree within rounding
and lie closer together than that, each run may choose another, and whatever is computed from the
choice differs by as much as it likes. Such a choice is right on both sides if each follows from
the scores that its own run made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ait_llm.core import DType
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.judge.pairs import judge_pair
from ait_llm.judge.tolerance import Tolerance, tolerance_for
from ait_llm.metrics import measure_pair

_MOST_ELEMENTS = 1 << 24


@dataclass(frozen=True, slots=True)
class OtherChoice:
    """A choice that differs and is right on both sides.

    Attributes:
        rows: how many rows chose otherwise.
        total: of how many.
        row: the first of them, by its flat number.
        golden, mine: what only one side chose there.
        margin: how far their scores are apart on golden's side.
    """

    rows: int
    total: int
    row: int
    golden: tuple[int, ...]
    mine: tuple[int, ...]
    margin: float


@dataclass(frozen=True, slots=True)
class Chosen:
    """One side of a choice.

    Attributes:
        operation: that chose.
        tensor: whole numbers, ``[..., chosen]``: places along the last dimension of the scores.
        rows: those of the first axis that are compared, such as the real tokens of a padded batch;
            None for all.
    """

    operation: Operation
    tensor: Tensor
    rows: tuple[int, ...] | None = None

    def values(self, tensor: Tensor) -> Array:
        """The rows of a tensor that are compared."""
        array = tensor.nd()
        return array if self.rows is None else array[list(self.rows)]


def other_choice(golden: Chosen, mine: Chosen, rounded_to: DType | None) -> OtherChoice | None:
    """What differs between two choices of the highest scores, if each is right.

    Args:
        golden, mine: the choices, which are not equal.
        rounded_to: coarsest type that the scores went through.

    Returns:
        None where a choice does not follow from scores of its own side, or the scores of the sides
        differ by more than rounding.
    """
    try:
        first, second = golden.values(golden.tensor), mine.values(mine.tensor)
        if first.shape != second.shape or not first.ndim or not _are_places(first, second):
            return None
        for one, other in _scores(golden, mine, first, second):
            arrays = golden.values(one), mine.values(other)
            if _agree(*arrays, (one.dtype, other.dtype), rounded_to):
                return _difference(*arrays, first, second)
    except (AitError, OSError, ValueError, IndexError):
        return None
    return None


def _are_places(first: Array, second: Array) -> bool:
    return all(a.dtype.kind in "iu" and a.size and int(a.min()) >= 0 for a in (first, second))


def _scores(
    golden: Chosen, mine: Chosen, first: Array, second: Array
) -> Iterator[tuple[Tensor, Tensor]]:
    """Tensors of both operations, in the same place, of which the choices are the highest."""
    own = {(tensor.role, tensor.index): tensor for tensor in mine.operation.tensors}
    for tensor in golden.operation.tensors:
        other = own.get((tensor.role, tensor.index))
        if (
            other is not None
            and _may_be_scores(tensor, golden.tensor, first)
            and _may_be_scores(other, mine.tensor, second)
            and _follows(first, golden.values(tensor))
            and _follows(second, mine.values(other))
        ):
            yield tensor, other


def _may_be_scores(tensor: Tensor, choice: Tensor, chosen: Array) -> bool:
    shape = tensor.shape
    return (
        tensor.has_data
        and tensor.dtype.is_floating
        and len(shape) == len(choice.shape)
        and shape[:-1] == choice.shape[:-1]
        and shape[-1] > int(chosen.max())
        and prod(shape) <= _MOST_ELEMENTS
    )


def _follows(chosen: Array, scores: Array) -> bool:
    """True if the chosen places hold the highest scores of each row, in any order."""
    taken = np.sort(_taken(scores, chosen), axis=-1)
    highest = np.sort(scores.astype(np.float64), axis=-1)[..., -chosen.shape[-1] :]
    return bool(np.array_equal(taken, highest))


def _taken(scores: Array, chosen: Array) -> Array:
    return np.take_along_axis(scores.astype(np.float64), chosen.astype(np.int64), axis=-1)


def _agree(
    golden: Array, mine: Array, types: tuple[DType, DType], rounded_to: DType | None
) -> bool:
    tolerance = None
    if rounded_to is not None:
        widest = max(
            (tolerance_for(*types), tolerance_for(rounded_to, rounded_to)),
            key=lambda limits: limits.relative_euclidean,
        )
        tolerance = Tolerance(widest.relative_euclidean, widest.max_element)
    measured = measure_pair(golden, mine, golden_dtype=types[0], my_dtype=types[1])
    return judge_pair(measured, *types, tolerance).verdict.value == "PASS"


def _difference(golden: Array, mine: Array, first: Array, second: Array) -> OtherChoice | None:
    width, count = golden.shape[-1], first.shape[-1]
    scores = golden.reshape(-1, width).astype(np.float64)
    rows = [
        (number, sorted(set(one) - set(other)), sorted(set(other) - set(one)))
        for number, (one, other) in enumerate(
            zip(_rows(first, count), _rows(second, count), strict=True)
        )
        if one != other
    ]
    if not rows:
        return None
    number, only_golden, only_mine = next((row for row in rows if row[1]), rows[0])
    margin = 0.0
    if only_golden and only_mine:
        margin = float(scores[number, only_golden].min() - scores[number, only_mine].max())
    return OtherChoice(len(rows), len(scores), number, tuple(only_golden), tuple(only_mine), margin)


def _rows(chosen: Array, count: int) -> Sequence[list[int]]:
    found: list[list[int]] = chosen.reshape(-1, count).astype(np.int64).tolist()
    return found
