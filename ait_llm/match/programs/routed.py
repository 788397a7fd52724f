"""Rows of tokens that a router sent to experts.

Experts see only the tokens that chose them: each in a module of its own, in the order of the
tokens, or all in one operation, sorted by expert. The choice that either side shows says which row
is which token of which expert; what a side lays out has to have as many rows as the choice says,
and the order within an expert is confirmed by its weights, see :mod:`sorted_rows`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.formats.elements import Array
from ait_llm.match.programs.anchors.ports import Port, PortKey, key_of
from ait_llm.match.programs.fuse import purpose_by_name
from ait_llm.match.programs.likeness import Likeness
from ait_llm.match.programs.links import POSSIBLE
from ait_llm.match.programs.routed_blocks import Block, blocks
from ait_llm.match.programs.routed_operators import signed_ports
from ait_llm.match.programs.shapes import Views
from ait_llm.match.programs.sorted_rows import sorted_rows
from ait_llm.match.programs.tokens import Tokens
from ait_llm.match.views import Reshape, Rows, View
from ait_llm.program.describe import is_float, shape_of
from ait_llm.program.flow import Use
from ait_llm.program.program import Program
from ait_llm.program.roles import Role

ROUTED = "tokens that were sent to the same expert"
"""Why rows belong together that the values themselves have put there; part of a reason."""
_MOST = 1 << 20  # rows
_Coordinate = tuple[int, int]  # expert, flat row of the token


def routed_ports(
    left: Program,
    right: Program,
    tokens: Tokens | None,
    units: Mapping[int, tuple[int, ...]],
    likeness: Likeness,
) -> dict[PortKey, list[Port]]:
    """What answers the tensors of left experts, where rows are those of routed tokens.

    Args:
        left, right: the programs.
        tokens: alignment of their rows.
        units: right operations that answer a left one.
        likeness: tensors that hold the same elements.
    """
    found: dict[PortKey, list[Port]] = {}
    for ours in blocks(left):
        for theirs in blocks(right):
            if theirs.unit.op in units.get(ours.unit.op, ()):
                pair = _Pair(ours, theirs, tokens, units)
                for key, port in pair.ports():
                    found.setdefault(key, []).append(port)
                for key, port in pair.operator_ports(likeness, found):
                    found.setdefault(key, []).append(port)
    return found


class _Pair:
    """Blocks of both sides that answer each other."""

    def __init__(
        self,
        left: Block,
        right: Block,
        tokens: Tokens | None,
        units: Mapping[int, tuple[int, ...]],
    ) -> None:
        self._left = left
        self._right = right
        self._units = units
        if tokens is None or left.rows != tokens.left.count:
            same = left.rows == right.rows and tokens is None
            self._row_of = {row: row for row in range(left.rows)} if same else {}
        else:
            self._row_of = dict(tokens.pairs) if right.rows == tokens.right.count else {}
        self._choices = self._chosen()

    def _chosen(self) -> tuple[Array, Array] | None:
        """The choice of both sides; one that a side does not show is that of the other."""
        ours, theirs = self._left.choice, self._right.choice
        if ours is None and theirs is not None and len(self._row_of) == self._left.rows:
            ours = theirs[[self._row_of[row] for row in range(self._left.rows)]]
        if theirs is None and ours is not None and len(self._row_of) == self._right.rows:
            back = {other: row for row, other in self._row_of.items()}
            theirs = ours[[back[row] for row in range(self._right.rows)]]
        if ours is None or theirs is None or max(ours.size, theirs.size) > _MOST:
            return None
        return ours, theirs

    def ports(self) -> Iterator[tuple[PortKey, Port]]:
        """Ports by the tensor of the left side."""
        if self._choices is None or not self._row_of:
            return
        blocks = self._left, self._right
        fits = [
            self._fits(block, choice) for block, choice in zip(blocks, self._choices, strict=True)
        ]
        if not all(fits):
            return
        yield from self._same_operations()
        if self._left.experts and not self._right.experts:
            yield from self._apart_and_joined(is_left_apart=True)
        elif self._right.experts and not self._left.experts:
            yield from self._apart_and_joined(is_left_apart=False)

    def operator_ports(
        self, likeness: Likeness, known: Mapping[PortKey, Sequence[Port]]
    ) -> Iterator[tuple[PortKey, Port]]:
        """What operators make of the rows that are sent, where both sides show operators."""
        if self._choices is not None and self._row_of:
            blocks = self._left, self._right
            yield from signed_ports(blocks, self._choices, self._row_of, likeness, known)

    @staticmethod
    def _fits(block: Block, choice: Array) -> bool:
        """True if every expert that is a module got as many rows as the choice says."""
        for op, number in block.experts.items():
            first = next((t for t in block.side.operations[op].inputs if is_float(t)), None)
            shape = None if first is None else shape_of(first)
            if not shape or shape[0] != int((choice == number).sum()):
                return False
        return True

    def _same_operations(self) -> Iterator[tuple[PortKey, Port]]:
        """Tensors in one place of operations that answer each other."""
        inside = set(self._right.inside)
        for op in self._left.inside:
            for partner in filter(inside.__contains__, self._units.get(op, ())):
                ours, theirs = self._left.side.operations[op], self._right.side.operations[partner]
                for first, second in ((ours.inputs, theirs.inputs), (ours.outputs, theirs.outputs)):
                    if len(first) == len(second):
                        for tensor, other in zip(first, second, strict=True):
                            yield from self._port(Use(op, tensor), Use(partner, other))

    def _apart_and_joined(self, *, is_left_apart: bool) -> Iterator[tuple[PortKey, Port]]:
        """What single experts read and activate, as rows of what all of them do."""
        apart, joined = (self._left, self._right) if is_left_apart else (self._right, self._left)
        activated = [
            Use(op, tensor)
            for op in joined.inside
            if joined.side.roles[op] is Role.ACTIVATION
            for tensor in joined.side.operations[op].inputs
            if is_float(tensor)
        ]
        found: list[tuple[Use, Use]] = []
        for module in apart.experts:
            for op in (module, *apart.side.within(module)):
                operation = apart.side.operations[op]
                if apart.side.roles[op] is Role.OPERATOR:
                    continue
                if joined.hidden is not None:
                    found += [
                        (Use(op, t), Use(joined.unit.op, joined.hidden))
                        for t in operation.inputs
                        if self._reads_first(apart, module, op, t)
                    ]
                if len(activated) == 1 and purpose_by_name(operation.name) == "gate":
                    found += [(Use(op, t), activated[0]) for t in operation.outputs]
        for one, other in found:
            yield from self._port(one, other) if is_left_apart else self._port(other, one)

    @staticmethod
    def _reads_first(block: Block, module: int, op: int, tensor: Tensor) -> bool:
        """True if an operation of an expert reads what the expert reads."""
        first = next((t for t in block.side.operations[module].inputs if is_float(t)), None)
        value = None if first is None else block.side.value(module, first)
        return value is not None and block.side.value(op, tensor) is value

    def _port(self, ours: Use, theirs: Use) -> Iterator[tuple[PortKey, Port]]:
        if self._choices is None or not (is_float(ours.tensor) and is_float(theirs.tensor)):
            return
        experts = self._left.number_of.get(ours.op), self._right.number_of.get(theirs.op)
        if experts[0] is not None and experts[1] is not None and experts[0] != experts[1]:
            return
        expert = experts[0] if experts[0] is not None else experts[1]
        first = _coordinates(self._left, self._choices[0], ours, expert)
        second = _coordinates(self._right, self._choices[1], theirs, expert)
        shapes = shape_of(ours.tensor), shape_of(theirs.tensor)
        if first is None or second is None or not shapes[0] or not shapes[1]:
            return
        if shapes[0][-1] != shapes[1][-1]:
            return
        place = {coordinate: row for row, coordinate in enumerate(second)}
        chosen = [
            (row, place[expert, self._row_of[token]])
            for row, (expert, token) in enumerate(first)
            if (expert, self._row_of.get(token)) in place
        ]
        if not chosen:
            return
        views = Views(
            _rows(shapes[0], tuple(row for row, _ in chosen), len(first)),
            _rows(shapes[1], tuple(row for _, row in chosen), len(second)),
        )
        port = Port(theirs.op, theirs.tensor, views, POSSIBLE, ROUTED)
        yield key_of(ours.op, ours.tensor), port


def _coordinates(
    block: Block, choice: Array, use: Use, expert: int | None
) -> list[_Coordinate] | None:
    """Expert and token of each row of a tensor within a block; None if its rows are others."""
    shape = shape_of(use.tensor)
    if not shape or len(shape) < 2:
        return None
    if use.op == block.unit.op:  # hidden states, of which the expert gets some
        every = prod(shape[:-1])
        return None if expert is None else [(expert, row) for row in range(every)]
    number = block.number_of.get(use.op)
    if number is not None:
        tokens = np.flatnonzero((choice == number).any(axis=1)).tolist()
        return [(number, int(row)) for row in tokens] if shape[0] == len(tokens) else None
    if len(shape) != 2 or shape[0] != choice.size:
        return None
    return sorted_rows(block.side, block.unit.op, block.hidden, choice)


def _rows(shape: tuple[int, ...], chosen: tuple[int, ...], rows: int) -> tuple[View, ...]:
    """Some of the rows of a tensor that has so many."""
    views: list[View] = [] if len(shape) == 2 else [Reshape((rows, prod(shape) // rows))]
    if chosen != tuple(range(rows)):
        views.append(Rows(0, chosen))
    return tuple(views)
