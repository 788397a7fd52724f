"""A program as rows for people and for tools: values, roles, definitions, coordinates.

This is what the matcher sees of a pass; ``ait llm show --program`` prints it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.program.describe import params_of, shape_of
from ait_llm.program.flow import Value
from ait_llm.program.layers import blocks
from ait_llm.program.program import Program
from ait_llm.program.rows import Rows, masked_rows, rows_of

_LAYER_NUMBER = re.compile(r"(.*[._])?layer_?(idx|id|index|number|num)")


@dataclass(frozen=True, slots=True)
class PassRow:
    """What is known of a pass as a whole.

    Attributes:
        process: ``{device}_{PID}``.
        step: number of the pass within the process.
        kind: of the dump.
        model: name of the model, empty if the run did not report it.
        operations, values: how many.
        batch, seq: of a program that pads; 0 and the number of rows of one that packs requests.
        requests: flat rows of each request, first and last; empty where nothing shows them.
        padding: flat rows that hold no token.
        layers: operations that are layers, stack by stack.
    """

    process: str
    step: int
    kind: str
    model: str
    operations: int
    values: int
    batch: int
    seq: int
    requests: tuple[tuple[int, int], ...]
    padding: tuple[int, ...]
    layers: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ValueRow:
    """One input or output of an operation.

    Attributes:
        tensor: its name.
        value: number of the value in the pass; equal numbers are one value. -1 if unknown.
        dtype, shape: as dumped; empty and None if the file is damaged.
        rows: what the rows are: ``tokens``, ``last tokens`` of the requests; empty if unknown.
        writer: the operation that computed it; None if none of the dump did.
        readers: the operations that read it, without the graphs around them.
    """

    tensor: str
    value: int
    dtype: str
    shape: tuple[int, ...] | None
    rows: str
    writer: int | None
    readers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OperationRow:
    """One operation.

    Attributes:
        number: its place in the pass.
        parent: the graph or module around it, None at the top.
        depth: how many are around it.
        name, type: as dumped.
        call: which call of that name within the pass.
        role: what it does.
        definition: the numbers, flags and names that decide what it computes.
        inputs, outputs: in order.
    """

    number: int
    parent: int | None
    depth: int
    name: str
    type: str
    call: int
    role: str
    definition: Mapping[str, Any]
    inputs: tuple[ValueRow, ...]
    outputs: tuple[ValueRow, ...]


class Listing:
    """The rows of a pass."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._rows = rows_of(program)
        self._stacks: dict[int, list[int]] = {}
        for block in blocks(program):
            if block.layer is not None:
                self._stacks.setdefault(block.stack, []).append(block.layer)

    def head(self) -> PassRow:
        """What is known of the pass as a whole."""
        run, rows = self._program.run, self._rows
        padding = masked_rows(self._program, rows) if rows is not None and rows.batch else ()
        return PassRow(
            f"{run.device}_{run.pid}",
            run.step,
            run.kind,
            "" if run.model is None else run.model.name,
            len(run.operations),
            len(self._program.flow.values),
            0 if rows is None else rows.batch,
            0 if rows is None else rows.seq,
            () if rows is None else tuple(_requests(rows)),
            tuple(sorted(padding)),
            tuple(tuple(stack) for stack in self._stacks.values()),
        )

    def operations(self) -> Iterator[OperationRow]:
        """All operations, in execution order, a graph before its members."""
        program = self._program
        depths: list[int] = []
        calls: Counter[str] = Counter()
        for number, operation in enumerate(program.operations):
            parent = program.flow.parents[number]
            depths.append(0 if parent is None else depths[parent] + 1)
            unit = program.unit_of.get(number)
            role = unit.role if unit is not None else program.roles[number]
            yield OperationRow(
                number,
                parent,
                depths[-1],
                operation.name,
                operation.type,
                calls[operation.name],
                role.value,
                operation.definition or params_of(operation),
                tuple(self._value(number, tensor) for tensor in operation.inputs),
                tuple(self._value(number, tensor) for tensor in operation.outputs),
            )
            calls[operation.name] += 1

    def alike(self, rows: Sequence[OperationRow]) -> dict[int, list[int]]:
        """Layers by the first one that has the same operations, roles, definitions and shapes.

        Args:
            rows: of :meth:`operations`.
        """
        found: dict[int, list[int]] = {}
        first: dict[object, int] = {}
        for stack in self._stacks.values():
            for layer in stack:
                signature = self._signature(layer, rows)
                found.setdefault(first.setdefault(signature, layer), []).append(layer)
        return found

    def within(self, layer: int) -> set[int]:
        """A layer with everything in it."""
        return {layer, *self._program.within(layer)}

    def _signature(self, layer: int, rows: Sequence[OperationRow]) -> object:
        name = rows[layer].name
        return tuple(
            (
                _numberless(row.name, name),
                row.type,
                row.role,
                row.call,
                _plain(row.definition),
                tuple((each.tensor, each.dtype, each.shape) for each in row.inputs + row.outputs),
            )
            for row in (rows[number] for number in sorted(self.within(layer)))
        )

    def _value(self, op: int, tensor: Tensor) -> ValueRow:
        value = self._program.value(op, tensor)
        shape = shape_of(tensor)
        try:
            dtype = tensor.dtype.label
        except AitError:
            dtype = ""
        return ValueRow(
            _label(tensor),
            -1 if value is None else value.number,
            dtype,
            shape,
            self._coordinates(shape),
            None if value is None else self._writer(value),
            () if value is None else self._readers(value, op),
        )

    def _coordinates(self, shape: tuple[int, ...] | None) -> str:
        rows = self._rows
        if rows is None or not shape or len(shape) > 3:  # heads and caches have axes of their own
            return ""
        if shape[0] == rows.count or (rows.batch and shape[:2] == (rows.batch, rows.seq)):
            return "tokens"
        is_row = len(shape) == 2 or (len(shape) == 3 and shape[1] == 1)
        return "last tokens" if is_row and shape[0] == len(rows.last) else ""

    @staticmethod
    def _writer(value: Value) -> int | None:
        writes = value.writes
        return writes[0].op if writes else None

    def _readers(self, value: Value, op: int) -> tuple[int, ...]:
        reads = dict.fromkeys(use.op for use in value.reads if use.op != op)
        around = {parent for each in reads for parent in self._program.flow.ancestors(each)}
        return tuple(each for each in reads if each not in around)


def _label(tensor: Tensor) -> str:
    """The operator's own name for it, if it is more than its place."""
    own = tensor.ir_name or ""
    return tensor.name if not own or own.isdecimal() else own


def _requests(rows: Rows) -> Iterator[tuple[int, int]]:
    """First and last flat row of each request."""
    if rows.batch:
        yield from ((n * rows.seq, (n + 1) * rows.seq - 1) for n in range(rows.batch))
        return
    start = 0
    for last in rows.last:
        yield start, last
        start = last + 1


def _numberless(name: str, layer: str) -> str:
    """A name as one within its layer: what is left of it without the numbers of its place."""
    if name.startswith(f"{layer}."):
        return name[len(layer) :]
    return re.sub(r"(?<=_)\d+", "", name, count=1) if "." not in name else ""


def _plain(definition: Mapping[str, Any]) -> str:
    """A definition as text, without the number of the layer."""
    kept = ((k, v) for k, v in definition.items() if not _LAYER_NUMBER.fullmatch(k))
    return repr(sorted((key, repr(value)) for key, value in kept))
