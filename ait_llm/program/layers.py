"""Finds the repeated layers of a side, one or many, of one kind or of several."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, replace

from ait_llm.program.describe import is_float, shape_of
from ait_llm.program.program import Program, Unit
from ait_llm.program.roles import Role

_NUMBERED = re.compile(r"(.+)\.([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class Block:
    """A layer, or what lies before, between or behind layers.

    Attributes:
        layer: index of the graph or module, None for what lies between.
        stack: number of the row of layers that it belongs to; what lies between has the number
            of the row that follows.
        number: position within the row as the side itself counts, -1 between.
        units: in execution order.
    """

    layer: int | None
    stack: int
    number: int
    units: tuple[Unit, ...]

    def only(self, ops: Set[int]) -> Block:
        """The block with those units alone that are among some operations."""
        return replace(self, units=tuple(unit for unit in self.units if unit.op in ops))


def blocks(side: Program) -> list[Block]:
    """Cut the units of a side into layers and what lies between them."""
    rows = _numbered_stacks(side) or _stacks_around_attention(side) or _stacks_of_blocks(side)
    owner: dict[int, int] = {}
    for row in rows:
        for layer, _ in row:
            owner.update(dict.fromkeys((layer, *side.within(layer)), layer))
    of_layer: dict[int, list[Unit]] = {layer: [] for row in rows for layer, _ in row}
    between: list[list[Unit]] = [[] for _ in range(len(rows) + 1)]
    starts = [row[0][0] for row in rows]
    for unit in side.units:
        if unit.op in owner:
            of_layer[owner[unit.op]].append(unit)
        else:
            between[sum(start < unit.op for start in starts)].append(unit)
    found = []
    for stack, row in enumerate(rows):
        found.append(Block(None, stack, -1, tuple(between[stack])))
        found += [Block(layer, stack, n, tuple(of_layer[layer])) for layer, n in row]
    found.append(Block(None, len(rows), -1, tuple(between[len(rows)])))
    return found


def _numbered_stacks(side: Program) -> list[list[tuple[int, int]]]:
    """Rows of modules with numbers for names, such as ``model.layers.0``; the outermost ones.

    A model within a container of one, ``0.model.layers.0``, is no layer.
    """
    found = {
        op: (match[1], int(match[2]))
        for op, operation in enumerate(side.operations)
        if (match := _NUMBERED.fullmatch(operation.name)) and side.roles[op] is Role.CONTAINER
    }
    numbers = Counter(row for row, _ in set(found.values()))
    rows: dict[str, list[tuple[int, int]]] = {}
    inner: set[int] = set()
    for op, (row, number) in found.items():
        if op in inner:
            continue
        within = side.within(op)
        if numbers[row] == 1 and not _is_block(side, op) and not found.keys().isdisjoint(within):
            continue
        inner.update(within)
        rows.setdefault(row, []).append((op, number))
    return list(rows.values())


def _stacks_of_blocks(side: Program) -> list[list[tuple[int, int]]]:
    """Modules that keep the shape of what they read, where nothing else tells layers."""
    return _stacks_by_shape(side, [op for op, role in enumerate(side.roles) if _is_block(side, op)])


def _stacks_around_attention(side: Program) -> list[list[tuple[int, int]]]:
    """The graphs around attention: as far out as one keeps the shape of the hidden states."""
    around: Counter[int] = Counter()
    for op, role in enumerate(side.roles):
        if role is Role.CORE:
            around.update(a for a in side.flow.ancestors(op) if _is_block(side, a))
    return _stacks_by_shape(side, sorted(around))


def _stacks_by_shape(side: Program, candidates: list[int]) -> list[list[tuple[int, int]]]:
    """Rows among graphs that keep the shape of the hidden states: the outermost that repeat.

    A graph around several graphs of one type is a row, not a layer.
    """
    chosen = set(candidates)
    layers = []
    inner: set[int] = set()
    for op in candidates:
        if op in inner:
            continue
        kinds = Counter(
            side.operations[member].type for member in side.members(op) if member in chosen
        )
        if kinds and max(kinds.values()) > 1:
            continue
        layers.append(op)
        inner.update(side.within(op))
    rows: list[list[tuple[int, int]]] = []
    last: int | None = None
    for op in layers:
        parent = side.flow.parents[op]
        if not rows or parent != last:
            rows.append([])
        rows[-1].append((op, len(rows[-1])))
        last = parent
    return rows


def _is_block(side: Program, op: int) -> bool:
    """True for a graph or module whose output has the shape of one of its activations."""
    if side.roles[op] is not Role.CONTAINER:
        return False
    operation = side.operations[op]
    results = [shape_of(tensor) for tensor in operation.outputs if is_float(tensor)]
    if not results or results[0] is None or len(results[0]) < 2:
        return False
    return any(is_float(t) and shape_of(t) == results[0] for t in operation.inputs)
