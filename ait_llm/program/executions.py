"""Executions of top-level operations: what was read and written at their boundary."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.program.digests import digest

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Boundary:
    """A tensor that enters or leaves a top-level operation.

    Attributes:
        tensor: it.
        shape: its dims.
        is_floating: True if it may be an activation; indices and masks of flags are not.
    """

    tensor: Tensor
    shape: Shape
    is_floating: bool

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)

    @cached_property
    def mark(self) -> bytes | None:
        """Digest of its values, None where equal ones prove nothing."""
        return digest(self.tensor)


@dataclass(frozen=True)
class Execution:
    """One execution of a top-level operation.

    Attributes:
        top: id of the operation.
        count: how often it had run before in its process.
        operations: what was captured of it; empty if only the ledger knows it.
    """

    top: int
    count: int
    operations: Sequence[Operation] = field(default=(), compare=False)

    @property
    def type(self) -> str:
        """Type of the operation, empty if it was not captured itself."""
        return "" if self._operation is None else self._operation.type

    @property
    def _operation(self) -> Operation | None:
        """The operation itself; None if only members of it were captured, or nothing."""
        first = next(iter(self.operations), None)
        return first if first is not None and len(first.op_id.parts) == 1 else None

    @cached_property
    def reads(self) -> tuple[Boundary, ...]:
        """Inputs whose headers can be read."""
        return () if self._operation is None else _boundaries(self._operation.inputs)

    @property
    def _reads_after(self) -> tuple[Boundary, ...]:
        """Inputs as they were after the execution, where that was captured."""
        if self._operation is None:
            return ()
        after = [each for each in self._operation.tensors if each.phase == "after"]
        return _boundaries([each for each in after if each.role == "in"])

    @cached_property
    def writes(self) -> tuple[Boundary, ...]:
        """Outputs; those that were captured before the execution have a shape only."""
        return () if self._operation is None else _boundaries(self._operation.outputs)

    @cached_property
    def computed(self) -> tuple[bytes, ...]:
        """Marks of the floating point tensors that it computed.

        What it changed in place is none: a cache. An activation has two dims, or three with a
        batch, and may be changed in place if it has two.
        """
        found = [
            each
            for each in self.writes
            if each.is_floating and each.tensor.phase == "after" and each.mark is not None
        ]
        shapes = {each.shape for each in found if len(each.shape) > 2}
        before = {each.mark for each in self._reads_after if each.shape in shapes}
        return tuple(
            each.mark
            for each in found
            if each.mark is not None and not (each.shape in shapes and each.mark in before)
        )

    def handed(self, sizes: Collection[int]) -> tuple[bytes, ...]:
        """Marks of the floating point tensors that it reads and that may have been computed.

        Args:
            sizes: numbers of elements of whatever was computed; nothing else is read.
        """
        found = [each for each in self.reads if each.is_floating and each.elements in sizes]
        return tuple(each.mark for each in found if each.mark is not None)

    @cached_property
    def rows(self) -> int | None:
        """Tokens that it worked on: rows of its first output, None if unknown.

        Where outputs were not captured, a look-up tells by its indices.
        """
        if not self.writes:
            return self._indices
        first = next((each for each in self.writes if each.is_floating), None)
        return prod(first.shape[:-1]) if first is not None and len(first.shape) > 1 else None

    @property
    def _indices(self) -> int | None:
        """How many indices it reads, if that is no dim of any other input; else None."""
        counts = {each.elements for each in self.reads if not each.is_floating}
        dims = {dim for each in self.reads if each.is_floating for dim in each.shape}
        return counts.pop() if len(counts) == 1 and counts.isdisjoint(dims) else None

    @cached_property
    def table(self) -> Boundary | None:
        """What it looks up, None unless it has the form: a row of the output for each index.

        A layer that is handed positions has the form of its hidden state among its inputs.
        """
        floating = [each for each in self.reads if each.is_floating]
        shapes = {each.shape for each in floating}
        if self.rows is None or not shapes or any(each.shape in shapes for each in self.writes):
            return None
        if all(each.is_floating or each.elements != self.rows for each in self.reads):
            return None
        return max(floating, key=lambda each: each.elements)

    @cached_property
    def constants(self) -> frozenset[Shape]:
        """Shapes of inputs that do not depend on the number of tokens, such as weights."""
        return frozenset(
            each.shape
            for each in self.reads
            if each.is_floating and self.rows is not None and self.rows not in each.shape
        )


def executions_of(
    operations: Sequence[Operation], order: Mapping[tuple[int, int], int]
) -> list[Execution]:
    """Executions in the order in which they ran.

    Args:
        operations: of one process, in execution order, a graph before its members.
        order: rank of ``(execution count, id)`` in the ledger, empty without one; what is there
            and not among the operations is listed too, for its place tells of the others.
    """
    known = sorted(order, key=lambda each: order[each])
    members: dict[tuple[int, int], list[Operation]] = {each: [] for each in known}
    for operation in operations:
        members.setdefault((operation.step, operation.op_id.parts[0]), []).append(operation)
    return [Execution(top, count, each) for (count, top), each in members.items()]


def computed_sizes(executions: Iterable[Execution]) -> frozenset[int]:
    """Numbers of elements of all floating point outputs."""
    return frozenset(
        each.elements for execution in executions for each in execution.writes if each.is_floating
    )


def _boundaries(tensors: Sequence[Tensor]) -> tuple[Boundary, ...]:
    found = []
    for tensor in tensors:
        try:
            found.append(Boundary(tensor, tensor.shape, tensor.dtype.is_floating))
        except AitError:
            continue  # who compares the tensor tells what is wrong with it
    return tuple(found)
