"""Which operation answers which, so that a value is compared where both sides show it alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ait_llm.dumps.model import Tensor
from ait_llm.program.flow import Use, Value
from ait_llm.program.program import Program
from ait_llm.program.roles import Role

Units = Mapping[int, tuple[int, ...]]
"""Paired units and layers: right operations by left operation."""

# A graph answers a module if this share of the units of both together are in both.
_ENOUGH = 0.5


class Counterparts:
    """Operations of either side by those of the other.

    Args:
        left, right: the sides.
        units: paired units and layers.
    """

    def __init__(self, left: Program, right: Program, units: Units) -> None:
        self._right_of = dict(units)
        self._add_graphs(left, right)
        self._left_of: dict[int, tuple[int, ...]] = {}
        for op, others in self._right_of.items():
            for other in others:
                self._left_of[other] = (*self._left_of.get(other, ()), op)

    def _add_graphs(self, left: Program, right: Program) -> None:
        inside = {
            op: {member for member in right.within(op) if member in right.unit_of}
            for op, role in enumerate(right.roles)
            if role is Role.CONTAINER
        }
        around: dict[int, list[int]] = {}
        for op, members in inside.items():
            for member in members:
                around.setdefault(member, []).append(op)
        for op, role in enumerate(left.roles):
            if role is not Role.CONTAINER or op in self._right_of:
                continue
            members = {
                other
                for member in left.within(op)
                if member in left.unit_of
                for other in self._right_of.get(member, ())
            }
            candidates = {outer for member in members for outer in around.get(member, ())}
            scored = []
            for outer in candidates:
                both = len(members & inside[outer])
                either = len(members) + len(inside[outer]) - both
                scored.append((both / either, -len(inside[outer]), outer))
            if scored and max(scored)[0] >= _ENOUGH:
                self._right_of[op] = (max(scored)[2],)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Operations that answer exactly one of the other side, left first."""
        for op, others in self._right_of.items():
            if len(others) == 1:
                yield op, others[0]

    def right_use(self, op: int, tensor: Tensor, value: Value) -> Use:
        """Where the right side shows what a left tensor holds."""
        return _choose(self._right_of.get(op, ()), tensor, value)

    def left_use(self, op: int, tensor: Tensor, value: Value) -> Use:
        """Where the left side shows what a right tensor holds."""
        return _choose(self._left_of.get(op, ()), tensor, value)


def _choose(counterparts: tuple[int, ...], tensor: Tensor, value: Value) -> Use:
    """The use of a counterpart in the same role; else of the same role; else who wrote it."""

    def rank(use: Use) -> tuple[bool, bool, bool]:
        same_role = use.role == tensor.role
        return (
            not (use.op in counterparts and same_role),
            not (tensor.role == "out" and same_role),
            use.role != "out",
        )

    return min(value.uses, key=rank)
