"""What the comparisons say about each value of one of my runs, and what it was computed from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ait_llm.core.comparison import Comparison, TensorRecord, Verdict
from ait_llm.dumps.model import Operation, Role
from ait_llm.errors import FormatError
from ait_llm.program.flow import Flow, Value, flow
from ait_llm.program.one_pass import Pass

DISTANCE = "relative_euclidean_distance"
# Inputs that cache operators write into; a topology says so of any operator.
_CACHES: Mapping[str, frozenset[int]] = {
    "KvCacheOperation": frozenset({2}),
    "ReshapeAndCacheOperation": frozenset({2, 3}),
    "ReshapeAndCacheOmniOperation": frozenset({2, 3}),
    "ReshapeAndCacheWithStrideOperation": frozenset({2, 3}),
}
_Key = tuple[str, str, int, int]


@dataclass(slots=True)
class Evidence:
    """What is known of one value.

    Attributes:
        passed, failed: indices of comparisons of it.
    """

    passed: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        """True if it was compared and all comparisons passed."""
        return bool(self.passed) and not self.failed


@dataclass(frozen=True, slots=True)
class Upstream:
    """What a value was computed from, back to values that agree with golden.

    Attributes:
        operations: indices of the operations on the way, in execution order.
        agreeing: values at which the way back ended because they agree.
        differing: values from outside of the run that do not agree.
        unknown: values from outside of the run that were not compared.
    """

    operations: tuple[int, ...]
    agreeing: tuple[int, ...]
    differing: tuple[int, ...]
    unknown: tuple[int, ...]


def record_key(record: TensorRecord) -> _Key:
    """The operation of a tensor within its process; graphs have nodes of equal names."""
    return (record.op, record.op_id, record.step, record.call)


def operation_key(operation: Operation) -> _Key:
    """An operation within its process."""
    return (operation.name, str(operation.op_id), operation.step, operation.call)


class RunValues:
    """One of my runs with what was found out about its values.

    Args:
        run: my run.
        comparisons: all of the report; those of other runs are left out.
        indices: which of them have a tensor of this run on my side.
    """

    def __init__(
        self, run: Pass, comparisons: Sequence[Comparison], indices: Sequence[int]
    ) -> None:
        self.run = run
        self._comparisons = comparisons
        self._indices = indices

    @cached_property
    def flow(self) -> Flow:
        """Values and the tree of operations."""
        return flow(self.run)

    @cached_property
    def evidence(self) -> Mapping[int, Evidence]:
        """What is known, by number of the value."""
        found: dict[int, Evidence] = {}
        for index in self._indices:
            verdict = self._comparisons[index].verdict
            if (
                verdict in (Verdict.PASS, Verdict.FAIL)
                and (value := self.value_of(index)) is not None
            ):
                known = found.setdefault(value, Evidence())
                (known.passed if verdict is Verdict.PASS else known.failed).append(index)
        return found

    def value_of(self, index: int) -> int | None:
        """Number of the value that a comparison is about, on my side."""
        record = self._comparisons[index].mine
        if record is None or record.role not in ("in", "out"):
            return None
        op = self._places.get(record_key(record))
        if op is None:
            return None
        role: Role = "in" if record.role == "in" else "out"
        if role == "in" and record.index in self._overwritten.get(op, ()):
            return None  # its file holds what the operation left there
        value = self.flow.at(op, role, record.index)
        return value.number if value is not None else None

    @cached_property
    def _places(self) -> Mapping[_Key, int]:
        return {operation_key(operation): op for op, operation in enumerate(self.run.operations)}

    @cached_property
    def _overwritten(self) -> Mapping[int, frozenset[int]]:
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

    def is_leaf(self, op: int) -> bool:
        """True for an operation whose members, if any, were not captured."""
        return op not in self._members

    def leaves(self) -> Iterator[int]:
        """All operations without captured members, in execution order."""
        return (op for op in range(len(self.run.operations)) if self.is_leaf(op))

    def producer(self, value: int) -> int | None:
        """The operation that computed a value; None for what comes from outside of the run."""
        for use in self.flow.values[value].uses:
            if use.role == "out":
                return use.op
        return None

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
            for member in self._members.get(op, ())
            for tensor in self.run.operations[member].outputs
        ]
        return list({value.number: value for value in found if value is not None}.values())

    def outputs(self, op: int) -> list[Value]:
        """Values that an operation computed."""
        found = [
            self.flow.at(op, "out", tensor.index) for tensor in self.run.operations[op].outputs
        ]
        return [value for value in found if value and self.producer(value.number) == op]

    def first_failure(self) -> int | None:
        """The first computed value that does not agree with golden, in execution order."""
        failed = [
            value
            for value, known in self.evidence.items()
            if known.failed and self.producer(value) is not None
        ]
        return min(failed, default=None)

    def upstream(self, value: int, *, through: bool = False) -> Upstream:
        """What a value was computed from.

        Args:
            value: number of the value.
            through: do not stop at values that agree.
        """
        seen = {value}
        pending = [value]
        operations: dict[int, int] = {}
        agreeing, differing, unknown = [], [], []
        while pending:
            number = pending.pop()
            known = self.evidence.get(number)
            op = self.producer(number)
            if known and known.is_right and number != value:
                agreeing.append(number)
                if not through:
                    continue
            if op is None:
                if known and known.failed:
                    differing.append(number)
                elif not (known and known.is_right):
                    unknown.append(number)
                continue
            operations[op] = max(number, operations.get(op, 0))
            for before in self.inputs(op):
                if before.number not in seen:
                    seen.add(before.number)
                    pending.append(before.number)
        ordered = sorted(operations, key=lambda op: operations[op])
        return Upstream(
            tuple(ordered), tuple(sorted(agreeing)), tuple(sorted(differing)), tuple(unknown)
        )

    def error(self, value: int) -> float | None:
        """Largest relative error in the comparisons of a value; None if it was not compared."""
        known = self.evidence.get(value)
        if known is None:
            return None
        found = [
            self._comparisons[index].values[DISTANCE]
            for index in (*known.failed, *known.passed)
            if DISTANCE in self._comparisons[index].values
        ]
        return max(found, default=None)

    def trouble(self, value: int) -> str:
        """How a value that fails is off, in a few words; empty if it is not known."""
        known = self.evidence.get(value)
        for index in known.failed if known is not None else ():
            item = self._comparisons[index]
            if item.first_bad is not None and item.my_summary is not None:
                return f"{item.my_summary.nan} NaN, {item.my_summary.inf} Inf"
        error = self.error(value)
        return f"{error:.2g} relative error" if error is not None else ""

    def comparison_of(self, op: int) -> int | None:
        """The comparison that shows an operation's outputs best, None if they were not compared.

        One that failed before one that passed; then one of the tensor as this operation wrote it
        before one of the same value as another operation reads it.
        """
        known = [self.evidence[v.number] for v in self.outputs(op) if v.number in self.evidence]
        ranked = [
            (verdict, not self.is_own_output(op, index), index)
            for each in known
            for verdict, indices in enumerate((each.failed, each.passed))
            for index in indices
        ]
        return min(ranked)[2] if ranked else None

    def is_own_output(self, op: int, index: int) -> bool:
        """True for a comparison of a tensor that was dumped as an output of the operation."""
        mine = self._comparisons[index].mine
        return mine is not None and mine.role == "out" and self._places.get(record_key(mine)) == op

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
