"""Sums that one side shows as an operator and the other one makes in the code of a module.

Between two norms, a residual sum shows on both sides as what the second norm reads. Where one side
has no norm to show (captures of calls list no ``rms_norm``), the sum itself remains: it adds up two
values that answer two of the other side, and there it is the next value of its shape that no
operation gives. That this is the sum of the two is confirmed within the other side, where a
fault moves sum and summands alike. What half of the sums show holds for the same place in other
layers, so that a sum of other shares still has its counterpart.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import ml_dtypes
import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.match.programs.links import AMBIGUOUS, LIKELY, POSSIBLE, Link, Links
from ait_llm.program.describe import is_float, shape_of, size_of
from ait_llm.program.flow import Value
from ait_llm.program.program import Program
from ait_llm.program.roles import Role

_REASON = "the sum of two values that answer each other, which a module makes in its code"
_NUMBER = re.compile(r"\d+")
_ROUNDINGS = 2  # of the larger summand: each side of the sum may have been rounded on its way


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum that is shown, and what may answer it.

    Attributes:
        shown, hidden: the values.
        place: paths of what reads ``hidden``, without numbers.
        confirmed: the numbers of ``hidden`` are those of the sum.
    """

    shown: Value
    hidden: Value
    place: tuple[str, ...]
    confirmed: bool


class Sums:
    """Links sums of one program to values that come from the code of the other one's modules.

    Args:
        left, right: the programs.
        links: what is linked already; more is added.
    """

    def __init__(self, left: Program, right: Program, links: Links) -> None:
        self._sides = left, right
        self._links = links

    def add(self) -> None:
        """Link what can be linked, in either direction."""
        for number in (0, 1):
            if not self._sides[1 - number].has_modules:
                continue
            found = self._find(number)
            sure = [each.place for each in found.values() if each.confirmed]
            for each in found.values():
                if each.confirmed or (each.place in sure and 2 * len(sure) >= len(found)):
                    pair = (each.shown, each.hidden)
                    certainty = LIKELY if each.confirmed else POSSIBLE
                    self._links.add(*(pair if number == 0 else pair[::-1]), certainty, _REASON)

    def _find(self, number: int) -> dict[int, _Sum]:
        """Sums of a side without a counterpart, by the number of their value."""
        side, other = self._sides[number], self._sides[1 - number]
        open_values: list[tuple[int, Value]] | None = None
        found: dict[int, _Sum] = {}
        taken: set[int] = set()
        for op in _additions(side):
            result, summands = _operands(side, op)
            if result is None or self._partner(number, result) is not None:
                continue
            known = [self._partner(number, each) or _hidden(found, each) for each in summands]
            first, second = known
            if first is None or second is None:
                continue
            if open_values is None:
                open_values = list(self._unexplained(1 - number))
            size = size_of(result.uses[0].tensor)
            ready = max(_ready(other, each) for each in (first, second))
            behind = islice(open_values, bisect(open_values, ready, key=_start), None)
            fits = (v for _, v in behind if size_of(v.uses[0].tensor) == size)
            hidden = next((value for value in fits if value.number not in taken), None)
            if hidden is not None:
                taken.add(hidden.number)
                place = tuple(_readers(other, hidden))
                is_sum = _is_sum(hidden, first, second)
                found[result.number] = _Sum(result, hidden, place, is_sum)
        return found

    def _partner(self, number: int, value: Value) -> Value | None:
        """The whole value that answers one of a side."""
        of_side = (self._links.of_left, self._links.of_right)[number]
        return next(
            (
                _other(link, number)
                for link in of_side.get(value.number, ())
                if link.is_whole and link.confidence > AMBIGUOUS
            ),
            None,
        )

    def _unexplained(self, number: int) -> Iterator[tuple[int, Value]]:
        """Values of a side that code of modules makes and nothing answers, in order."""
        side = self._sides[number]
        places = [
            (value.reads[0].op, value.number)
            for value in side.flow.values
            if value.reads
            and is_float(value.uses[0].tensor)
            and not any(not side.members(use.op) for use in value.writes)
            and self._partner(number, value) is None
        ]
        return ((place, side.flow.values[value]) for place, value in sorted(places))


def _start(found: tuple[int, Value]) -> int:
    return found[0]


def _other(link: Link, number: int) -> Value:
    return link.right if number == 0 else link.left


def _hidden(found: dict[int, _Sum], value: Value) -> Value | None:
    known = found.get(value.number)
    return None if known is None else known.hidden


def _additions(side: Program) -> Iterator[int]:
    return (
        op
        for op, role in enumerate(side.roles)
        if role is Role.OPERATOR and side.kind(op).rpartition(" ")[2] == "add"
    )


def _operands(side: Program, op: int) -> tuple[Value | None, list[Value]]:
    """What a sum of two tensors of one shape gives, and what it reads."""
    operation = side.operations[op]
    if len(operation.outputs) != 1 or len(operation.inputs) != 2:
        return None, []
    tensors = (*operation.inputs, *operation.outputs)
    if len({shape_of(tensor) for tensor in tensors}) != 1 or not all(map(is_float, tensors)):
        return None, []
    values = [side.value(op, tensor) for tensor in tensors]
    summands = [value for value in values[:2] if value is not None]
    return (values[2] if len(summands) == 2 else None), summands


def _ready(side: Program, value: Value) -> int:
    """The first operation that has a value: that computes it, or reads what code has made."""
    computed = [use.op for use in value.writes if not side.members(use.op)]
    return computed[0] if computed else min((use.op for use in value.reads), default=-1)


def _readers(side: Program, value: Value) -> Iterator[str]:
    """Paths of what reads a value, without numbers, but for the modules around."""
    readers = (side.operations[use.op] for use in value.reads if not side.members(use.op))
    return (_NUMBER.sub("", operation.name) for operation in readers)


def _is_sum(value: Value, first: Value, second: Value) -> bool:
    """True if a value has the numbers of a sum; False also if they were not saved."""
    arrays = [_numbers(each.uses[0].tensor) for each in (value, first, second)]
    total, one, two = (None if each is None else each.astype(np.float64) for each in arrays)
    if total is None or one is None or two is None or not total.size == one.size == two.size:
        return False
    rounding = max(float(ml_dtypes.finfo(each.dtype).eps) for each in arrays if each is not None)  # type: ignore[no-untyped-call]
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(total - (one + two))
        return bool((distance <= _ROUNDINGS * rounding * (np.abs(one) + np.abs(two))).all())


def _numbers(tensor: Tensor) -> Array | None:
    try:
        return tensor.nd().reshape(-1) if tensor.has_data else None
    except AitError:
        return None
