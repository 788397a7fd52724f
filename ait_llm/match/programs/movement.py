"""Operators that only move elements, as views: how one value follows from another.

A program looks at one value in many shapes before it computes the next. What is known of one of
these holds for all of them, under the views that lead from one to the other.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ait_llm.dumps.model import Operation
from ait_llm.match.views import Part, Reorder, Repeat, Reshape, View
from ait_llm.program.describe import params_of, shape_of
from ait_llm.program.flow import Value
from ait_llm.program.operators import is_moving, kind_of
from ait_llm.program.program import Program
from ait_llm.program.roles import Role

Shape = tuple[int, ...]
_FARTHEST = 10  # steps of movement between two operators that compute


@dataclass(frozen=True, slots=True)
class _Step:
    """One movement: from a value to the next, and back where nothing is lost."""

    value: int
    views: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class Way:
    """What leads from one value to another.

    Attributes:
        number: the value where it begins.
        shape: of that value there.
        views: done to it in order.
    """

    number: int
    shape: Shape
    views: tuple[View, ...]


class Movements:
    """Which values of a program are the same elements in another order or shape."""

    def __init__(self, program: Program) -> None:
        self._shapes: dict[int, Shape] = {}
        self._steps: dict[int, list[_Step]] = defaultdict(list)
        for op, role in enumerate(program.roles):
            operation = program.operations[op]
            if role is Role.OPERATOR and is_moving(operation) and operation.inputs:
                self._add(program, op, operation)

    def nearest(
        self, value: Value | None, shape: Shape | None, is_wanted: Callable[[int], bool]
    ) -> Way | None:
        """The way from the nearest other value that is wanted; None if there is none.

        Args:
            value: where the way ends.
            shape: in which its value is seen there.
            is_wanted: tells numbers of values where it may begin.
        """
        here = None if value is None else self._shapes.get(value.number)
        if value is None or here is None or shape is None or prod(here) != prod(shape):
            return None
        end = _reshaped(here, shape)
        waiting: deque[tuple[int, tuple[View, ...], int]] = deque([(value.number, end, 0)])
        seen = {value.number}
        while waiting:
            number, views, steps = waiting.popleft()
            if number != value.number and is_wanted(number):
                return Way(number, self._shapes[number], views)
            if steps == _FARTHEST:
                continue
            for step in self._steps.get(number, ()):
                if step.value not in seen:
                    seen.add(step.value)
                    waiting.append((step.value, (*step.views, *views), steps + 1))
        return None

    def _add(self, program: Program, op: int, operation: Operation) -> None:
        source = operation.inputs[0]
        before, number = shape_of(source), program.value(op, source)
        if before is None or number is None:
            return
        start = self._shapes.setdefault(number.number, before)
        for tensor in operation.outputs:
            after, result = shape_of(tensor), program.value(op, tensor)
            views = None if after is None else movement(operation, before, after)
            if views is None or after is None or result is None or result is number:
                continue
            end = self._shapes.setdefault(result.number, after)
            # one value may be seen in several shapes: its ways begin and end in the first one
            views = (*_reshaped(start, before), *views, *_reshaped(after, end))
            # the way back leads from the result to its source, and is walked the other way round
            self._steps[result.number].append(_Step(number.number, views))
            back = inverse(views, start)
            if back is not None:
                self._steps[number.number].append(_Step(result.number, back))


def _reshaped(before: Shape, after: Shape) -> tuple[View, ...]:
    return () if before == after else (Reshape(after),)


def movement(operation: Operation, before: Shape, after: Shape) -> tuple[View, ...] | None:
    """What an operator does to its input as views; None if they cannot say it.

    Args:
        operation: a moving operator.
        before, after: shapes of what it reads and of the result.
    """
    kind, numbers = kind_of(operation), _numbers(params_of(operation))
    if kind in _SAME_ORDER and prod(before) == prod(after):
        return _reshaped(before, after)
    if kind == "slice" and before == after:
        return ()
    if kind in ("transpose", "t"):
        axes = list(range(len(before)))
        if len(before) < 2 or (kind == "transpose" and len(numbers) != 2):
            return None
        one, other = numbers if kind == "transpose" else (0, 1)
        axes[one], axes[other] = axes[other], axes[one]
        return (Reorder(tuple(axes)),)
    if kind == "permute" and len(numbers) == len(before):
        return (Reorder(tuple(axis % len(before) for axis in numbers)),)
    if kind == "expand":
        return _expanded(before, after)
    return None


# They keep the elements in their row-major order.
_SAME_ORDER = frozenset(
    {"alias", "clone", "contiguous", "detach", "lift_fresh", "squeeze", "unsqueeze", "view"}
)


def _numbers(params: Any) -> list[int]:
    """Whole numbers among the arguments, in their order; lists are spread out."""
    found: list[int] = []
    for value in dict(params).values():
        values: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
        found += [each for each in values if type(each) is int]
    return found


def _expanded(before: Shape, after: Shape) -> tuple[View, ...] | None:
    """Dims of 1 repeated."""
    if len(before) > len(after):
        return None
    views: list[View] = []
    full = (1,) * (len(after) - len(before)) + before
    if full != before:
        views.append(Reshape(full))
    for axis, (have, want) in enumerate(zip(full, after, strict=True)):
        if have != want:
            if have != 1:
                return None
            views.append(Repeat(axis, want))
    return tuple(views)


def inverse(views: Sequence[View], before: Shape) -> tuple[View, ...] | None:
    """What undoes views that lose nothing; None if they do."""
    found: list[View] = []
    shape = before
    for view in views:
        if isinstance(view, Reshape):
            found.insert(0, Reshape(shape))
            shape = view.shape
        elif isinstance(view, Reorder):
            back = tuple(view.axes.index(axis) for axis in range(len(view.axes)))
            found.insert(0, Reorder(back))
            shape = tuple(shape[axis] for axis in view.axes)
        elif isinstance(view, Repeat):
            # every copy is the same: the first one says it all
            found.insert(0, Part(view.axis, 0, shape[view.axis]))
            shape = (
                *shape[: view.axis],
                shape[view.axis] * view.times,
                *shape[view.axis + 1 :],
            )
        else:
            return None
    return tuple(found)
