"""The experts of one layer: which rows they are sent, by what choice, and which module is which."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.formats.elements import Array
from ait_llm.program.describe import integers, is_float, shape_of
from ait_llm.program.experts import find_experts
from ait_llm.program.program import Program, Unit
from ait_llm.program.roles import Role

_MOST_CHOSEN = 64  # experts of one token


def blocks(side: Program) -> list[Block]:
    """All blocks of experts of a program."""
    return [Block(side, unit) for unit in side.units if unit.role is Role.EXPERTS]


@dataclass(frozen=True)
class Block:
    """The experts of one layer of one side."""

    side: Program
    unit: Unit

    @cached_property
    def hidden(self) -> Tensor | None:
        """The rows that are sent to experts."""
        source = self.unit.source
        inputs = self.side.operations[self.unit.op].inputs
        return next(
            (
                t
                for t in inputs
                if source is not None and self.side.value(self.unit.op, t) is source
            ),
            None,
        )

    @property
    def rows(self) -> int:
        """Number of rows of hidden states."""
        shape = None if self.hidden is None else shape_of(self.hidden)
        return prod(shape[:-1]) if shape else 0

    @cached_property
    def inside(self) -> list[int]:
        """Operations of the block, without itself."""
        return self.side.within(self.unit.op)

    @cached_property
    def choice(self) -> Array | None:
        """Experts of each row, ``[rows, chosen]``; None if no tensor shows them."""
        for op in (self.unit.op, *self.inside):
            operation = self.side.operations[op]
            for tensor in (*operation.inputs, *operation.outputs):
                shape = shape_of(tensor)
                if is_float(tensor) or not shape or len(shape) != 2 or shape[0] != self.rows:
                    continue
                array = integers(tensor) if shape[1] <= _MOST_CHOSEN else None
                if array is not None and _is_choice(array):
                    return array
        return None

    @cached_property
    def experts(self) -> dict[int, int]:
        """Numbers of experts that are modules of their own, by the module."""
        side = self.side
        members = find_experts(side.operations, side.roles, side.flow.parents)
        return {
            op: int(side.operations[op].name.rpartition(".")[2])
            for op in members.get(self.unit.op, ())
        }

    @cached_property
    def number_of(self) -> dict[int, int]:
        """Number of the expert that an operation belongs to."""
        return {
            op: number
            for module, number in self.experts.items()
            for op in (module, *self.side.within(module))
        }


def _is_choice(array: Array) -> bool:
    """True if every row names different experts."""
    if not array.size or array.min() < 0:
        return False
    ordered = np.sort(array, axis=1)
    return bool((np.diff(ordered, axis=1) > 0).all())
