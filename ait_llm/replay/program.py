"""What a forward pass computes: its operations in order, and which of their tensors are one value.

The topology of the run names tensors; a name becomes a new value each time it is written, so that a
cache that is updated in place is told apart before and after. Where no topology was captured, the
data flow that is found in the numbers takes its place.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from ait_llm.core import OpId
from ait_llm.dumps.model import Operation, Role, Tensor
from ait_llm.errors import FormatError
from ait_llm.program.flow import Flow, flow
from ait_llm.program.one_pass import Pass
from ait_llm.topology import Graph, Node

Key = tuple[str, int]
"""A value: the name of a tensor, and how often it had been written before."""
Kind = Literal["input", "weight", "cache", "internal", "unknown"]
"""What a value is that no operation before computed; ``unknown`` without a model's topology."""

# Inputs that cache operators write into, where no topology says so.
_STATE: Mapping[str, frozenset[int]] = {
    "KvCacheOperation": frozenset({2}),
    "ReshapeAndCacheOperation": frozenset({2, 3}),
    "ReshapeAndCacheOmniOperation": frozenset({2, 3}),
    "ReshapeAndCacheWithStrideOperation": frozenset({2, 3}),
}
_TOP_ID = re.compile(r"_(\d+)$")
Keys = tuple["Key | None", ...]


@dataclass(slots=True)
class Unit:
    """One execution of one operation.

    Attributes:
        type, op_id: which operation.
        step: its execution count.
        path: its folder below that of the execution count.
        operation: what was captured of it; None if nothing was.
        params: parameters that the topology has; those of the dump come first.
        is_graph: it consists of other units, which follow.
        inputs: values that it reads; None where the topology has no name.
        outputs: values that it writes.
        after: what its inputs are when it is done.
    """

    type: str
    op_id: OpId
    step: int
    path: str
    operation: Operation | None
    params: Mapping[str, Any]
    is_graph: bool
    inputs: Keys = ()
    outputs: Keys = ()
    after: Keys = ()

    @property
    def name(self) -> str:
        """``LinearOperation_0_1``."""
        return f"{self.type}_{self.op_id}"

    def captured(self, role: Role, index: int) -> Tensor | None:
        """What was captured of one tensor: an input before, else after; an output after."""
        if self.operation is None:
            return None
        tensors = self.operation.inputs if role == "in" else self.operation.outputs
        return next((tensor for tensor in tensors if tensor.index == index), None)

    @property
    def overwritten(self) -> frozenset[int]:
        """Inputs that it writes into, as far as names or its type tell."""
        renamed = (i for i, key in enumerate(self.inputs) if self.after[i] != key)
        return _STATE.get(self.type, frozenset()) | frozenset(renamed)

    @property
    def inputs_are_old(self) -> bool:
        """True unless its inputs were captured only after it ran."""
        return self.operation is None or "before" in self.operation.phases


@dataclass(slots=True)
class Program:
    """One forward pass as units in execution order, graphs before their members.

    Attributes:
        run: the pass.
        units: its operations, those included that were not captured.
        captured: tensors of the dump that hold a value, the earliest first.
        kinds: values that come from outside.
        problems: what of the topology could not be used.
    """

    run: Pass
    units: list[Unit] = field(default_factory=list)
    captured: dict[Key, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    kinds: dict[Key, Kind] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def operators(self) -> list[Unit]:
        """Units that compute."""
        return [unit for unit in self.units if not unit.is_graph]

    @property
    def memories(self) -> list[Key]:
        """Values from outside that operators write into, and caches that they only read."""
        written = {
            unit.inputs[index]
            for unit in self.operators
            for index in unit.overwritten
            if index < len(unit.inputs)
        }
        return [key for key, kind in self.kinds.items() if key in written or kind == "cache"]


def program_of(run: Pass) -> Program:
    """The program of a forward pass.

    Raises:
        FormatError: a tensor file that has to be looked at is damaged.
    """
    return _Builder(run).build()


class _Builder:
    def __init__(self, run: Pass) -> None:
        self._run = run
        self._program = Program(run)
        self._operations = {operation.op_id: operation for operation in run.operations}
        self._places = {operation.op_id: op for op, operation in enumerate(run.operations)}
        self._current: dict[str, Key] = {}
        self._written: dict[str, int] = {}
        self._step = run.operations[0].step
        model = run.model
        self._weights = frozenset(model.weights if model is not None else ())
        self._caches = frozenset(model.caches if model is not None else ())
        self._given = frozenset(model.root.inputs if model is not None else ())
        self._in_model = False

    def build(self) -> Program:
        run = self._run
        tops = list(dict.fromkeys(operation.op_id.parts[0] for operation in run.operations))
        owned: set[int] = set()
        if run.model is not None:
            nodes = run.model.root.children
            owned = {node.op_id.parts[0] for node in nodes if node.op_id is not None}
        for top in tops:
            if top not in owned:
                self._without_model(top)
        if run.model is not None:
            self._in_model = True
            for node in run.model.root.children:
                if node.op_id is not None:
                    self._node(node, lambda name: name, "")
        return self._program

    @cached_property
    def _flow(self) -> Flow:
        return flow(self._run)

    @cached_property
    def _layers(self) -> Mapping[int, str]:
        """Names of layer graphs by the id of their operation."""
        found = {}
        for name in self._run.graphs:
            match = _TOP_ID.search(name)
            if match is not None:
                found[int(match[1])] = name
        return found

    def _without_model(self, top: int) -> None:
        """One top-level operation that no model graph holds."""
        name = self._layers.get(top)
        if name is not None:
            try:
                self._layer(self._run.graphs[name])
            except FormatError as error:
                self._program.problems.append(f"its data flow is taken from the numbers: {error}")
            else:
                return
        members = [o for o in self._run.operations if o.op_id.parts[0] == top]
        self._by_numbers(members)

    def _layer(self, graph: Graph) -> None:
        """A layer graph, joined to others by what its outer tensors hold."""
        root = graph.root
        op = self._places.get(root.op_id) if root.op_id is not None else None
        outer: dict[str, str] = {}
        outputs: list[tuple[str, str]] = []
        if op is not None:
            for index, name in enumerate(root.inputs):
                value = self._flow.at(op, "in", index)
                if value is not None:
                    outer.setdefault(name, f"value {value.number}")
            for index, name in enumerate(root.outputs):
                value = self._flow.at(op, "out", index)
                if value is not None:
                    outputs.append((outer.setdefault(name, f"value {value.number}"),
                                    f"value {value.number}"))  # fmt: skip
        self._node(root, lambda name: outer.get(name, f"{root.name} {name}"), "")
        for inner, written in outputs:
            if inner != written and inner in self._current:
                self._current[written] = self._current[inner]

    def _node(self, node: Node, names: Callable[[str], str], folder: str) -> None:
        """A node of a topology, and its members."""
        op_id = node.op_id
        if op_id is None:
            self._program.problems.append(f"{node.name} has no id and was left out")
            return
        path = f"{folder}/{op_id.parts[-1]}_{node.op_type}" if folder else f"{op_id}_{node.op_type}"
        unit = Unit(
            node.op_type,
            op_id,
            self._step,
            path,
            self._operations.get(op_id),
            node.param if isinstance(node.param, dict) else {},
            node.is_graph,
            tuple(self._read(names(name)) if name else None for name in node.inputs),
        )
        self._program.units.append(unit)
        for child in node.children:
            self._node(child, names, path)
        if node.is_graph:
            unit.outputs = tuple(self._read(names(name)) for name in node.outputs)
        else:
            unit.outputs = tuple(self._write(names(name)) for name in node.outputs)
        unit.after = tuple(self._read(names(name)) if name else None for name in node.inputs)
        self._remember(unit)

    def _by_numbers(self, members: Sequence[Operation]) -> None:
        """Captured operations whose topology is not known."""
        graphs: list[Unit] = []
        paths: dict[tuple[int, ...], str] = {}
        for operation in members:
            parts = operation.op_id.parts
            while graphs and not operation.op_id.is_within(graphs[-1].op_id):
                self._leave(graphs.pop())
            around = paths.get(parts[:-1])
            own = f"{parts[-1]}_{operation.type}"
            if around is None:  # the folders around it hold no tensors
                around = "/".join(operation.path.parts[-len(parts) : -1])
            paths[parts] = f"{around}/{own}" if around else own
            unit = Unit(
                operation.type,
                operation.op_id,
                operation.step,
                paths[parts],
                operation,
                {},
                operation.is_graph,
            )
            unit.inputs = self._flow_keys(operation, "in", self._read)
            self._program.units.append(unit)
            if operation.is_graph:
                graphs.append(unit)
            else:
                unit.outputs = self._flow_keys(operation, "out", self._write)
                unit.after = unit.inputs
                self._remember(unit)
        while graphs:
            self._leave(graphs.pop())

    def _leave(self, unit: Unit) -> None:
        assert unit.operation is not None
        unit.outputs = self._flow_keys(unit.operation, "out", self._read)
        unit.after = unit.inputs
        self._remember(unit)

    def _flow_keys(self, operation: Operation, role: Role, key: Callable[[str], Key]) -> Keys:
        place = self._places[operation.op_id]
        tensors = operation.inputs if role == "in" else operation.outputs
        found: dict[int, Key] = {}
        for tensor in tensors:
            value = self._flow.at(place, role, tensor.index)
            if value is not None:
                found[tensor.index] = key(f"value {value.number}")
        return tuple(found.get(index) for index in range(max(found, default=-1) + 1))

    def _read(self, name: str) -> Key:
        key = self._current.get(name)
        if key is None:
            key = self._current[name] = (name, 0)
            self._program.kinds[key] = self._kind(name)
        return key

    def _write(self, name: str) -> Key:
        self._written[name] = self._written.get(name, 0) + 1
        key = self._current[name] = (name, self._written[name])
        return key

    def _kind(self, name: str) -> Kind:
        if not self._in_model:
            return "unknown"
        if name in self._weights:
            return "weight"
        if name in self._caches:
            return "cache"
        return "input" if name in self._given else "internal"

    def _remember(self, unit: Unit) -> None:
        for tensor in unit.operation.tensors if unit.operation is not None else ():
            if tensor.role == "out" and tensor.phase == "before":
                continue  # memory that nothing was written to yet
            keys = unit.outputs
            if tensor.role == "in":
                keys = unit.inputs if tensor.phase == "before" else unit.after
            key = keys[tensor.index] if tensor.index < len(keys) else None
            if key is not None:
                self._program.captured[key].append(tensor)
