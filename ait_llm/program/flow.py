"""Which tensors of a run are one and the same value: what an operation writes, later ones read.

A run that reported its topology says so by tensor names, a capture of torch by the storage that it
saw. Otherwise equal numbers say it: the output of one operation is found again as the input of the
next, whatever its shape by then. Only tensors of the same dump are ever compared here, so a wrong
value upsets nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ait_llm.core import DType
from ait_llm.dumps.model import Operation, Role, Tensor
from ait_llm.errors import AitError
from ait_llm.program.describe import dtype_of
from ait_llm.program.digests import digest, recorded_digest
from ait_llm.program.one_pass import Pass
from ait_llm.program.operators import computes
from ait_llm.program.storages import Place, Storages, place_of
from ait_llm.topology import Node

FEW_BITS = frozenset({DType.INT8, DType.UINT8, DType.INT4})


@dataclass(frozen=True, slots=True)
class Use:
    """One operation reads or writes a value.

    Attributes:
        op: index of the operation in ``run.operations``.
        tensor: the tensor that was dumped there.
    """

    op: int
    tensor: Tensor

    @property
    def role(self) -> Role:
        """Read or written."""
        return self.tensor.role


@dataclass(frozen=True, slots=True)
class Piece:
    """Columns of a value that are a value themselves.

    Attributes:
        value: the columns.
        start, width: where they are.
    """

    value: Value
    start: int
    width: int


@dataclass(slots=True)
class Value:
    """A tensor from the moment it is written until nobody reads it any more.

    Attributes:
        number: position in ``Flow.values``.
        uses: in execution order; a graph reads before its members do and writes after them.
        pieces: values that are some of its columns, where storages show it.
    """

    number: int
    uses: list[Use] = field(default_factory=list)
    pieces: tuple[Piece, ...] = ()

    @property
    def writes(self) -> list[Use]:
        """Who wrote it: first the operation that computed it, then the graphs around that."""
        return [use for use in self.uses if use.tensor.role == "out"]

    @property
    def writer(self) -> Use | None:
        """Who computed it; None for what comes from outside."""
        return next((use for use in self.uses if use.tensor.role == "out"), None)

    @property
    def reads(self) -> list[Use]:
        """Who read it."""
        return [use for use in self.uses if use.tensor.role == "in"]

    def add_piece(self, piece: Piece) -> None:
        """Some of its columns are a value, too."""
        self.pieces = (*self.pieces, piece)


@dataclass(frozen=True, slots=True)
class Flow:
    """Values of a run and the tree of its operations.

    Attributes:
        run: the run.
        values: in the order in which they appear.
        parents: for each operation the index of the graph or module around it, None at the top.
        named: some values are told by their names in a topology.
    """

    run: Pass
    values: tuple[Value, ...]
    parents: tuple[int | None, ...]
    named: bool
    _read: Sequence[_Row] = field(repr=False)
    _written: Sequence[_Row] = field(repr=False)

    def at(self, op: int, role: Role, index: int) -> Value | None:
        """The value of one input or output; None if it was not dumped."""
        return _at(self._read[op] if role == "in" else self._written[op], index)

    def ancestors(self, op: int) -> Iterator[int]:
        """The graphs or modules around an operation, the innermost first."""
        parent = self.parents[op]
        while parent is not None:
            yield parent
            parent = self.parents[parent]


# Values of the inputs or outputs of an operation by position.
_Row = tuple[Value, ...] | dict[int, Value]


def _row(tensors: Sequence[Tensor], values: Sequence[Value]) -> _Row:
    """Values by position; most operations have all positions."""
    if all(place == tensor.index for place, tensor in enumerate(tensors)):
        return tuple(values)
    return {tensor.index: value for tensor, value in zip(tensors, values, strict=True)}


def _at(row: _Row, index: int) -> Value | None:
    if isinstance(row, dict):
        return row.get(index)
    return row[index] if 0 <= index < len(row) else None


def whole_numbers(found: Flow) -> set[int]:
    """Numbers of the values from outside that are whole numbers of eight bits or less."""
    outside = (each for each in found.values if each.writer is None)
    return {each.number for each in outside if dtype_of(each.uses[0].tensor) in FEW_BITS}


def flow(run: Pass) -> Flow:
    """Find the values of a run.

    Reads tensors whose names no topology gives.
    """
    parents = parents_of(run)
    return _Tracer(run, parents).trace()


def parents_of(run: Pass) -> tuple[int | None, ...]:
    """For each operation of a run the index of the graph or module around it, None at the top."""
    parents: list[int | None] = []
    around: list[int] = []
    ends = _ends(run)
    for place, operation in enumerate(run.operations):
        while around and not (
            _is_member(run.operations[around[-1]], operation) or place < ends[around[-1]]
        ):
            around.pop()
        parents.append(around[-1] if around else None)
        if operation.launch is None:  # the dots in a kernel's name count its launches
            around.append(len(parents) - 1)
    return tuple(parents)


def _ends(run: Pass) -> list[int]:
    """Place of the last operation that a module calls by its own path.

    What runs before it runs within the module, even if it has the path of another one: a rotary
    module that all layers share has that of the first.
    """
    ends = list(range(len(run.operations)))
    latest: dict[str, int] = {}
    for place, operation in enumerate(run.operations):
        name = operation.name
        # a path that was called before may belong to another module, too, and proves nothing
        dot = name.rfind(".") if name not in latest else 0
        while dot > 0:
            outer = latest.get(name[:dot])
            if outer is not None:
                ends[outer] = place
            dot = name.rfind(".", 0, dot)
        latest[name] = place
    return ends


def _is_member(outer: Operation, inner: Operation) -> bool:
    if outer.op_id == inner.op_id:
        return False
    if "." in inner.name:  # paths of modules; ids of torch operators are counted, not nested
        return inner.name.startswith(f"{outer.name}.")
    return outer.is_graph and inner.op_id.is_within(outer.op_id)


class _Tracer:
    def __init__(self, run: Pass, parents: tuple[int | None, ...]) -> None:
        self._run = run
        self._parents = parents
        self._last_member = {parent: op for op, parent in enumerate(parents) if parent is not None}
        self._nodes = _nodes(run)
        self._values: list[Value] = []
        self._inputs: list[_Row] = [()] * len(run.operations)
        self._outputs: list[_Row] = [()] * len(run.operations)
        self._named: dict[str, Value] = {}
        self._placed = Storages()
        self._printed: dict[bytes, Value] = {}
        # Where operators are seen and all tensors have a place, that says all; between modules
        # plain code may cast or copy a value, and equal numbers lead on.
        self._sees_all = any(op.type.count(".") >= 2 for op in run.operations) and all(
            tensor.identity is not None
            for operation in run.operations
            for tensor in operation.tensors
        )
        # Of tensors with values, by their statistics, for those of which nothing else is there.
        self._recorded: dict[bytes, Value] = {}

    def trace(self) -> Flow:
        has_members = {parent for parent in self._parents if parent is not None}
        open_graphs: list[int] = []
        for op in range(len(self._run.operations)):
            while open_graphs and open_graphs[-1] != self._parents[op]:
                self._write(open_graphs.pop(), is_graph=True)
            self._read(op)
            if op in has_members:
                open_graphs.append(op)
            else:
                self._write(op, is_graph=False)
        while open_graphs:
            self._write(open_graphs.pop(), is_graph=True)
        return Flow(
            self._run,
            tuple(self._values),
            self._parents,
            bool(self._nodes),
            self._inputs,
            self._outputs,
        )

    def _read(self, op: int) -> None:
        inputs = self._run.operations[op].inputs
        self._inputs[op] = _row(inputs, [self._read_one(op, tensor) for tensor in inputs])

    def _read_one(self, op: int, tensor: Tensor) -> Value:
        name = self._name(op, tensor)
        value = self._named.get(name) if name else None
        mark = None
        place = _place(tensor)
        if value is None and place is not None:
            value = self._placed.find(place)
        if value is None and not (place is not None and self._sees_all):
            mark = digest(tensor)
            value = self._known(tensor, mark)
            if value is not None and place is not None and not self._reaches(value, op):
                value = None
        if value is None:
            value = self._new()
        self._record(value, Use(op, tensor), name, place, mark)
        return value

    def _reaches(self, value: Value, op: int) -> bool:
        """False if the code of a module made a value, kept it, and the operation is not in it.

        Such a value has equal numbers by another computation, or by a fault.
        """
        if value.writer is not None:
            return True
        around = self._parents[value.uses[0].op]
        parent = self._parents[op]
        while parent is not None and parent != around:
            parent = self._parents[parent]
        return parent == around

    def _write(self, op: int, *, is_graph: bool) -> None:
        outputs = self._run.operations[op].outputs
        found = [self._write_one(op, tensor, is_graph=is_graph) for tensor in outputs]
        self._outputs[op] = _row(outputs, found)

    def _write_one(self, op: int, tensor: Tensor, *, is_graph: bool) -> Value:
        name = self._name(op, tensor)
        value = self._named.get(name) if name and is_graph else None
        mark, place = None, _place(tensor)
        if place is not None:
            value = self._placed.find(place)
            if not self._sees_all:
                mark = digest(tensor)
        elif not name or self._is_boundary(op):
            mark = digest(tensor)
        if value is None and mark and place is None and not computes(self._run.operations[op]):
            value = self._known(tensor, mark)
            # A leaf that returns what it received passes a value on, as dropout does; whatever
            # else has the same numbers was computed a second time.
            if value is not None and not is_graph and not self._passes_on(op, value):
                value = None
        if value is None and is_graph and mark is None and place is None:
            value = self._of_last_member(op, tensor)
        if value is None:
            value = self._new()
        self._record(value, Use(op, tensor), name, place, mark)
        return value

    def _of_last_member(self, op: int, tensor: Tensor) -> Value | None:
        """The value that the last member of a graph wrote in this place, if it has this shape.

        Without names and numbers (not saved, or NaN throughout), this is all that is left.
        """
        graph = self._run.operations[op]
        last = self._last_member[op]
        outputs = self._run.operations[last].outputs
        if len(outputs) != len(graph.outputs):
            return None
        twin = next((other for other in outputs if other.index == tensor.index), None)
        if twin is None or _shape(twin) is None or _shape(twin) != _shape(tensor):
            return None
        return _at(self._outputs[last], twin.index)

    def _passes_on(self, op: int, value: Value) -> bool:
        if self._run.operations[op].is_graph:
            return True  # told behind its members, as API captures do
        return any(use.op == op and use.role == "in" for use in value.uses) or any(
            parent == op for use in value.uses for parent in (self._parents[use.op],)
        )

    def _is_boundary(self, op: int) -> bool:
        """True if a tensor leaves the scope of the names: the outputs of top-level operations."""
        return self._parents[op] is None and self._run.model is None

    def _new(self) -> Value:
        value = Value(len(self._values))
        self._values.append(value)
        return value

    def _record(
        self, value: Value, use: Use, name: str, place: Place | None, mark: bytes | None
    ) -> None:
        value.uses.append(use)
        tensor = use.tensor
        if place is not None and tensor.identity is not None:
            self._placed.add(place, tensor, tensor.identity, value)
        if name:
            self._named[name] = value
        if mark:
            self._printed[mark] = value
            if tensor.has_data and (recorded := recorded_digest(tensor)) is not None:
                self._recorded[recorded] = value

    def _known(self, tensor: Tensor, mark: bytes | None) -> Value | None:
        """The value with these numbers; by statistics if one of the two has nothing else."""
        if mark is None:
            return None
        value = self._printed.get(mark)
        if value is None and (recorded := recorded_digest(tensor)) is not None:
            others = self._printed if tensor.has_data else self._recorded
            value = others.get(recorded)
        return value

    def _name(self, op: int, tensor: Tensor) -> str:
        """Name in the topology, empty without one."""
        found = self._nodes.get(self._run.operations[op].name)
        if found is None:
            return ""
        scope, node = found
        names = node.inputs if tensor.role == "in" else node.outputs
        return f"{scope} {names[tensor.index]}" if tensor.index < len(names) else ""


def _place(tensor: Tensor) -> Place | None:
    """Where the capture saw a tensor; None if it could not tell, or the file is damaged."""
    if tensor.identity is None:
        return None
    try:
        return place_of(tensor, tensor.identity)
    except AitError:
        return None


def _shape(tensor: Tensor) -> tuple[int, ...] | None:
    try:
        return tensor.shape
    except AitError:
        return None


def _nodes(run: Pass) -> dict[str, tuple[str, Node]]:
    """Nodes by operation name, with the scope in which their tensor names are unique."""
    found: dict[str, tuple[str, Node]] = {}
    for name in run.graphs:
        try:
            root = run.graphs[name].root
        except AitError:
            continue  # numbers lead on where a topology cannot be read
        found.update({node.name: (name, node) for node, _ in root.walk()})
    if run.model is not None:
        found.update({node.name: ("model", node) for node, _ in run.model.root.walk()})
    return found
