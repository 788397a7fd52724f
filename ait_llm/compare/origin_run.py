"""What one of my runs is made of: operations, the values between them, and who writes which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from ait_llm.core.comparison import TensorRecord
from ait_llm.dumps.model import Operation
from ait_llm.errors import FormatError
from ait_llm.program.flow import Flow, Value, flow
from ait_llm.program.one_pass import Pass
from ait_llm.program.roles import is_operator

# Inputs that cache operators write into; a topology says so of any operator.
_CACHES: Mapping[str, frozenset[int]] = {
    "KvCacheOperation": frozenset({2}),
    "ReshapeAndCacheOperation": frozenset({2, 3}),
    "ReshapeAndCacheOmniOperation": frozenset({2, 3}),
    "ReshapeAndCacheWithStrideOperation": frozenset({2, 3}),
}
Key = tuple[str, str, int, int]


def record_key(record: TensorRecord) -> Key:
    """The operation of a tensor within its process; graphs have nodes of equal names."""
    return (record.op, record.op_id, record.step, record.call)


def operation_key(operation: Operation) -> Key:
    """An operation within its process."""
    return (operation.name, str(operation.op_id), operation.step, operation.call)


def path_of(operation: Operation) -> str:
    """The path of a module, or of that whose code calls an operator, as its name says."""
    if not is_operator(operation):
        return operation.name
    return operation.name.removesuffix(operation.type).removesuffix(".")


class RunStructure:
    """One of my runs.

    Args:
        run: the run.
    """

    def __init__(self, run: Pass) -> None:
        self.run = run

    @cached_property
    def flow(self) -> Flow:
        """Values and the tree of operations."""
        return flow(self.run)

    @cached_property
    def places(self) -> Mapping[Key, int]:
        """Index of each operation."""
        return {operation_key(operation): op for op, operation in enumerate(self.run.operations)}

    def value_at(self, record: TensorRecord | None) -> Value | None:
        """The value that a record of this run is about; None for weights and what is not here."""
        place = None if record is None else self.places.get(record_key(record))
        if record is None or place is None or record.role not in ("in", "out"):
            return None
        return self.flow.at(place, "in" if record.role == "in" else "out", record.index)

    def operation_at(self, record: TensorRecord | None) -> Operation | None:
        """The operation that a record of this run is of; None for weights and what is not here."""
        place = None if record is None else self.places.get(record_key(record))
        return None if place is None else self.run.operations[place]

    @cached_property
    def overwritten(self) -> Mapping[int, frozenset[int]]:
        """Inputs that were saved only after their operation, or one within it, wrote into them."""
        return {
            op: written
            for op, operation in enumerate(self.run.operations)
            if "before" not in operation.phases and (written := self._written_inputs(operation))
        }

    def _written_inputs(self, operation: Operation) -> frozenset[int]:
        node = self._nodes.get(operation.name)
        if node is None:
            return _CACHES.get(operation.type, frozenset())
        inputs, written = node
        return frozenset(index for index, name in enumerate(inputs) if name in written)

    @cached_property
    def _nodes(self) -> Mapping[str, tuple[tuple[str, ...], frozenset[str]]]:
        """Per operation name its inputs and what it and its members write, by tensor name."""
        graphs = list(self.run.graphs.values())
        if self.run.model is not None:
            graphs.append(self.run.model)
        return {
            node.name: (
                node.inputs,
                frozenset(name for leaf in node.leaves() for name in leaf.outputs),
            )
            for graph in graphs
            for node, _ in graph.root.walk()
        }

    def works_in_place(self, op: int) -> bool:
        """True if an output of the operation has the memory of one of its inputs."""
        return bool(self._written_inputs(self.run.operations[op]))

    @cached_property
    def _members(self) -> Mapping[int, tuple[int, ...]]:
        """All operations within each graph or module."""
        found: dict[int, list[int]] = {}
        for op in range(len(self.run.operations)):
            for around in self.flow.ancestors(op):
                found.setdefault(around, []).append(op)
        return {op: tuple(members) for op, members in found.items()}

    def members(self, op: int) -> tuple[int, ...]:
        """All operations within a graph or module, in execution order."""
        return self._members.get(op, ())

    def is_leaf(self, op: int) -> bool:
        """True for an operation whose members, if any, were not captured."""
        return op not in self._members

    def owner(self, op: int) -> int:
        """The module that an operator is part of; the operation itself where it is none."""
        operations = self.run.operations
        if not is_operator(operations[op]):
            return op
        around = self.flow.ancestors(op)
        return next((each for each in around if not is_operator(operations[each])), op)

    def code_of(self, op: int) -> str:
        """The class of the module whose code calls an operator; empty where there is none."""
        owner = self.owner(op)
        return "" if owner == op else self.run.operations[owner].type

    def leaves(self) -> Iterator[int]:
        """All operations without captured members, in execution order."""
        return (op for op in range(len(self.run.operations)) if self.is_leaf(op))

    def producer(self, value: int) -> int | None:
        """The operation that computed a value; None for what comes from outside of the run.

        What was read before it was written was there before: who hands it on, as a view perhaps,
        did not compute it. Only operations of ATB write into what they read.
        """
        uses = self.flow.values[value].uses
        if uses[0].role == "in" and not self.run.traits.library:
            return None
        return next((use.op for use in uses if use.role == "out"), None)

    def writers_of_state(self) -> list[int]:
        """Operations that write into their inputs, caches above all, in execution order."""
        return [op for op in self.leaves() if self.works_in_place(op)]

    def _operation(self, op: int) -> Operation:
        return self.run.operations[op]

    def inputs(self, op: int) -> list[Value]:
        """Values that an operation computes with; those that its members make for a module."""
        found = [self.flow.at(op, "in", tensor.index) for tensor in self.run.operations[op].inputs]
        found += [
            self.flow.at(member, "out", tensor.index)
            for member in self.members(op)
            for tensor in self.run.operations[member].outputs
        ]
        return list({value.number: value for value in found if value is not None}.values())

    def outputs(self, op: int) -> list[Value]:
        """Values that an operation computed."""
        found = [
            self.flow.at(op, "out", tensor.index) for tensor in self.run.operations[op].outputs
        ]
        return [value for value in found if value and self.producer(value.number) == op]

    def is_weight(self, value: int) -> bool:
        """True for a constant of the model, as far as the topology or its type and use tell."""
        use = self.flow.values[value].uses[0]
        if self.run.model is not None:
            nodes = self._nodes.get(self._operation(use.op).name)
            if nodes is not None and use.tensor.index < len(nodes[0]):
                name = nodes[0][use.tensor.index]
                if name in self.run.model.weights:
                    return True
        return "weight" in (use.tensor.ir_name or "")

    def is_index(self, value: int) -> bool:
        """True for whole numbers: token ids, positions, lengths."""
        try:
            return not self.flow.values[value].uses[0].tensor.dtype.is_floating
        except FormatError:
            return False
