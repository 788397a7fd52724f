"""The table of a compiled graph: each launch of a kernel, what it stores and what it fused."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from torch.fx import Node

from ait_llm.dump.inductor.values import EagerValue, ValueMap
from ait_llm.dump.inductor.wrapper import Return, Statement, Wrapper

RETURN = "graph_output"
"""Name of what the program returns, among the launches."""
_MAX_NAME = 120  # of 255 that a file name may have
_MAX_TYPE = 80
_VIEWS = frozenset(
    {
        "_unsafe_view", "alias", "detach", "expand", "permute", "reshape", "select", "slice",
        "split", "split_with_sizes", "squeeze", "t", "transpose", "unsqueeze", "view",
    }
)  # fmt: skip
_UNFIT = re.compile(r"[^0-9A-Za-z_.]")


@dataclass(slots=True)
class Stored:
    """A buffer that a kernel writes, or reads.

    Attributes:
        buffer: its name in the generated program's graph.
        variable: the variable that has it there; another one where a buffer of the program's own
            is written in place.
        value: the tensor of the eager graph that it equals; None for what only kernels know, such
            as the sum behind a mean.
        eager: node of the eager graph whose value it is, empty if unknown.
        node: the same in Inductor's graph.
        dtype: element type, such as ``bfloat16``; empty if unknown.
        outside: it is an argument of the program.
        covers: operators of the eager graph that can be seen only through this buffer.
    """

    buffer: str
    variable: str
    value: EagerValue | None = None
    eager: str = ""
    node: str = ""
    dtype: str = ""
    outside: bool = False
    covers: tuple[str, ...] = ()


@dataclass(slots=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        name: unique in the graph.
        kernel: name of the kernel.
        source: operators of the eager graph that it fused, in order.
        fused: nodes of Inductor's graph, in order.
        targets: targets of ``source``.
        type: the operators in a few words.
        inputs, outputs: buffers, and among the inputs also those of the program itself.
    """

    name: str
    kernel: str
    source: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    type: str = ""
    inputs: list[Stored] = field(default_factory=list)
    outputs: list[Stored] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Writing:
    """Buffers of a launch that are complete after a statement.

    Attributes:
        statement: the statement; None for the end of the program.
        launch: number of the launch.
        outputs: places among its outputs.
        starts: True for the statement that launches the kernel.
    """

    statement: Statement | None
    launch: int
    outputs: tuple[int, ...]
    starts: bool


@dataclass(frozen=True, slots=True)
class KernelTable:
    """All launches of a graph.

    Attributes:
        launches: in the order of the program.
        writings: where their buffers are complete, in the same order.
        unseen: buffers that no statement was found to write.
    """

    launches: tuple[Launch, ...]
    writings: tuple[Writing, ...]
    unseen: tuple[str, ...]


def kernel_table(graph: Any, wrapper: Wrapper, values: ValueMap) -> KernelTable:
    """Say which launch of a generated program stores which values.

    Args:
        graph: Inductor's ``GraphLowering``, after code generation.
        wrapper: the launches in the program.
        values: what its nodes stand for.
    """
    table = _Table(graph, values)
    for statement in wrapper.statements:
        table.add(statement)
    return table.finished(wrapper.ends[0] if len(wrapper.ends) == 1 else None)


class _Table:
    def __init__(self, graph: Any, values: ValueMap) -> None:
        self._graph = graph
        self._values = values
        self._buffers = _buffers(graph)
        self._launches: list[Launch] = []
        self._writings: list[Writing] = []
        self._pending: dict[str, list[_Buffer]] = defaultdict(list)
        for each in self._buffers.values():
            self._pending[each.variable].append(each)
        self._written: dict[str, int] = {}  # buffer to launch
        self._order = list(self._buffers.values())
        self._names: Counter[str] = Counter()
        self._places = {node.name: place for place, node in enumerate(graph.graph.nodes)}
        self._inputs = {node.name: node for node in graph.graph.nodes if node.op == "placeholder"}
        _name_operands(self._buffers, graph)

    def add(self, statement: Statement) -> None:
        """Take account of one statement."""
        if statement.picks:
            launch = self._written.get(statement.picks)
            if launch is not None:
                found = self._take(statement.writes or ())
                self._write(statement, launch, found, starts=False)
            return
        found = self._take(statement.writes) if statement.writes else self._next(statement.reads)
        if not found:
            return
        name = _short(_UNFIT.sub("_", statement.kernel))
        count = self._names[name]
        self._names[name] += 1
        self._launches.append(Launch(f"{name}.{count}" if count else name, statement.kernel))
        self._write(statement, len(self._launches) - 1, found, starts=True)

    def finished(self, end: Return | None) -> KernelTable:
        """The table, complete with what each launch fused and reads.

        Args:
            end: what the program returns; None if it has several ways to return.
        """
        unseen = tuple(
            each.name
            for each in self._order
            if each.name not in self._written and not each.is_part and each.is_tensor
        )
        for number, launch in enumerate(self._launches):
            self._complete(number, launch)
        if end is not None:
            self._return(end)
        self._cover()
        return KernelTable(tuple(self._launches), tuple(self._writings), unseen)

    def _return(self, end: Return) -> None:
        """What the program returns as a view of a buffer, which no kernel stores as such."""
        output = next(node for node in self._graph.graph.nodes if node.op == "output")
        nodes = output.args[0]
        if not isinstance(nodes, (list, tuple)) or len(nodes) != len(end.values):
            return
        stored = {each.eager for launch in self._launches for each in launch.outputs}
        launch = Launch(RETURN, "return")
        for node, (expression, variables) in zip(nodes, end.values, strict=True):
            if not isinstance(node, Node) or node.op == "placeholder":
                continue
            found = self._of_node(f"returned {node.name}", expression, node)
            if found.eager and found.eager not in stored:
                launch.outputs.append(found)
                launch.inputs += [self._input(name) for name in variables if name in self._buffers]
                stored.add(found.eager)
        if launch.outputs:
            launch.fused = tuple(each.node for each in launch.outputs)
            self._name_sources(launch)
            places = tuple(range(len(launch.outputs)))
            self._writings.append(Writing(None, len(self._launches), places, True))
            self._launches.append(launch)

    def _take(self, variables: Sequence[str]) -> list[_Buffer]:
        """The next buffer that waits to be written in each variable."""
        return [self._pending[name].pop(0) for name in variables if self._pending.get(name)]

    def _next(self, variables: Sequence[str]) -> list[_Buffer]:
        """The next buffer of the schedule, if the statement may write it."""
        for each in self._order:
            if each.name not in self._written and each.is_tensor and not each.is_part:
                if each.variable in variables and each in self._pending[each.variable]:
                    self._pending[each.variable].remove(each)
                    return [each]
                return []
        return []

    def _write(
        self, statement: Statement, launch: int, found: Sequence[_Buffer], *, starts: bool
    ) -> None:
        outputs = self._launches[launch].outputs
        places = []
        for each in found:
            self._written[each.name] = launch
        complete = list(found)
        for each in self._order:  # a concatenation is there when all its parts are
            parts = each.parts
            if parts and each.name not in self._written and parts <= self._written.keys():
                self._written[each.name] = launch
                complete.append(each)
        for each in complete:
            if each.is_tensor and not (each.is_alias and each.node is None):
                places.append(len(outputs))
                outputs.append(self._stored(each))
        self._writings.append(Writing(statement, launch, tuple(places), starts))

    def _stored(self, each: _Buffer) -> Stored:
        if each.node is None or _is_only_asserted(each.node):
            return Stored(each.name, each.variable, dtype=each.dtype)
        return replace(self._of_node(each.name, each.variable, each.node), dtype=each.dtype)

    def _of_node(self, buffer: str, variable: str, node: Node) -> Stored:
        """A buffer that holds the value of a node of Inductor's graph."""
        eager = self._values.named_value(node.name)
        value = self._values.eager.value(eager) if eager is not None else None
        dtype = _dtype(node.meta.get("val"))
        return Stored(buffer, variable, value, eager or "", node.name, dtype)

    def _complete(self, number: int, launch: Launch) -> None:
        """Say what a launch reads and what it fused."""
        mine = [each for each in self._order if self._written.get(each.name) == number]
        groups = {each.group for each in mine}
        members = [each for each in self._order if each.group in groups and each.group >= 0]
        own = {each.name for each in (*members, *mine)}
        reads = dict.fromkeys(name for each in members for name in each.reads)
        launch.inputs = [self._input(name) for name in reads if name not in own]
        fused = _fused(members, {each.node for each in launch.inputs})
        launch.fused = tuple(sorted(fused, key=lambda name: self._places.get(name, 0)))
        self._name_sources(launch)

    def _name_sources(self, launch: Launch) -> None:
        launch.source = tuple(self._values.operators_of(launch.fused))
        launch.targets = tuple(self._values.eager.target(name) for name in launch.source)
        launch.type = _type_of(launch.targets)

    def _cover(self) -> None:
        """Say which operators can be seen only through which buffers."""
        outputs = [each for launch in self._launches for each in launch.outputs if each.value]
        eager = self._values.eager
        owners: dict[str, Stored] = {}
        for each in outputs:
            owners[each.eager] = owners[each.value.node if each.value else ""] = each
        known = frozenset(each.eager for each in outputs)
        covered: dict[str, list[str]] = defaultdict(list)
        for each in outputs:
            for name in eager.behind(each.eager, known):
                if name not in owners:
                    owners[name] = each
                    covered[each.eager].append(name)
        for name, source in eager.passed_on():  # and nobody computes with it
            owner = owners.get(source)
            if owner is not None and name not in owners:
                owners[name] = owner
                covered[owner.eager].append(name)
        for each in outputs:
            each.covers = tuple(covered.pop(each.eager, ()))

    def _input(self, name: str) -> Stored:
        found = self._buffers.get(name)
        if found is not None:
            # An argument after a write in place is another value than before it.
            return replace(self._stored(found), outside=found.variable in self._inputs)
        node = self._inputs.get(name)
        if node is None:
            # Written in place by what was removed: whose value it has is not known.
            return Stored(name, self._graph.scheduler.mutation_real_name.get(name, name))
        return replace(self._of_node(name, name, node), outside=True)


@dataclass(slots=True)
class _Buffer:
    """A buffer of Inductor's schedule.

    Attributes:
        name: its name.
        variable: the variable that holds it.
        node: node of the final graph whose value it has; None if unknown.
        origins: nodes that contributed to it.
        reads: buffers and inputs that it is computed from.
        group: number of the fused scheduler node that computes it; -1 for one without a kernel.
        parts: buffers that lie within it, for a concatenation.
        is_part: it lies within another one, or is computed where it is used.
        is_alias: its memory is that of another one.
        is_tensor: False for the tuple that a fallback returns.
        dtype: element type, such as ``bfloat16``.
        operation: what computes it, in Inductor's intermediate representation.
    """

    name: str
    variable: str
    node: Node | None
    origins: tuple[Node, ...]
    reads: tuple[str, ...]
    group: int
    parts: frozenset[str]
    is_part: bool
    is_alias: bool
    is_tensor: bool
    dtype: str
    operation: Any


def _buffers(graph: Any) -> dict[str, _Buffer]:
    scheduler = graph.scheduler
    found: dict[str, _Buffer] = {}
    for group, fused in enumerate(scheduler.nodes):
        for member in fused.get_nodes():
            operation = member.node
            if operation is None:
                continue
            no_kernel = type(member).__name__ == "NopKernelSchedulerNode"
            reads = tuple(
                dict.fromkeys(
                    each.name
                    for each in sorted(member.read_writes.reads, key=lambda each: each.name)
                )
            )
            for buffer in member.get_outputs():
                name = buffer.get_name()
                layout = buffer.node.maybe_get_layout() if buffer.node is not None else None
                parts = frozenset(_parts(operation)) if no_kernel else frozenset()
                found[name] = _Buffer(
                    name=name,
                    variable=scheduler.mutation_real_name.get(name, name),
                    node=_origin(operation, buffer),
                    origins=tuple(operation.get_origins()),
                    reads=reads,
                    group=-1 if no_kernel else group,
                    parts=parts,
                    is_part=name in graph.removed_buffers or no_kernel,
                    is_alias=type(layout).__name__ == "NonOwningLayout",
                    is_tensor=layout is not None and hasattr(layout, "size"),
                    dtype=_dtype(layout),
                    operation=operation,
                )
    return {name: each for name, each in found.items() if name not in graph.removed_buffers}


def _dtype(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    return "" if dtype is None else str(dtype).removeprefix("torch.")


def _origin(operation: Any, buffer: Any) -> Node | None:
    """The node whose value a buffer has, as far as Inductor says so."""
    node = operation.get_origin_node()
    if node is None and buffer.node is not None:
        node = buffer.node.get_origin_node()
    if node is None and buffer.get_mutations():
        # A tensor of the program that is written in place, by the one operator that may do so.
        writers = [each for each in operation.get_origins() if _writes_in_place(each)]
        node = writers[0] if len(writers) == 1 else None
    return node if isinstance(node, Node) else None


def _writes_in_place(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _is_only_asserted(node: Node) -> bool:
    """True for a condition that a kernel checks on its way: it need not store what it checks."""
    return bool(node.users) and all("_assert" in str(user.target) for user in node.users)


def _parts(operation: Any) -> Iterator[str]:
    for each in getattr(operation, "inputs", ()):
        yield each.get_name()


def _name_operands(buffers: Mapping[str, _Buffer], graph: Any) -> None:
    """Name buffers without an origin by the operand of the fallback that reads them.

    A copy that Inductor makes to give an operand the strides that a library wants has no origin,
    but it has the place of the operand among the arguments.
    """
    targets = {node.name: node for node in graph.graph.nodes}
    for each in buffers.values():
        overload = getattr(each.operation, "op_overload", None)
        if overload is None:
            continue
        calls = [node for node in each.origins if node.target is overload]
        if len(calls) != 1 or calls[0].name not in targets:
            continue
        each.node = each.node or calls[0]
        operands = list(_tensors(calls[0]))
        inputs = list(each.operation.inputs)
        if len(operands) != len(inputs):
            continue
        for operand, given in zip(operands, inputs, strict=True):
            buffer = buffers.get(given.get_name()) if hasattr(given, "get_name") else None
            if buffer is None or buffer.node is not None or _is_view(given):
                continue
            if operand in buffer.origins:
                buffer.node = operand


def _tensors(call: Node) -> Iterator[Node]:
    """Nodes among the arguments of a call, lists included, in order."""
    pending: list[Any] = [*call.args, *call.kwargs.values()]
    while pending:
        each = pending.pop(0)
        if isinstance(each, Node):
            yield each
        elif isinstance(each, (list, tuple)):
            pending[:0] = each


def _is_view(given: Any) -> bool:
    data = given
    while hasattr(data, "data") and type(data).__name__ in ("TensorBox", "StorageBox"):
        data = data.data
    return type(data).__name__.endswith("View")


def _fused(members: Sequence[_Buffer], read: set[str]) -> set[str]:
    """Nodes whose computation is in a kernel.

    Inductor's own list of origins also has what was computed in earlier kernels, so the way back
    from the results ends where the kernel reads.
    """
    found: set[str] = set()
    for each in members:
        if each.node is None:
            found |= {node.name for node in each.origins if node.op == "call_function"}
            continue
        inside = {node.name for node in each.origins}
        pending = [each.node]
        while pending:
            node = pending.pop()
            if node.name in found or node.op != "call_function":
                continue
            if node is not each.node and (node.name in read or node.name not in inside):
                continue
            found.add(node.name)
            pending += node.all_input_nodes
    return found


def _short(name: str) -> str:
    """A name that leaves room in a file name; the number at its end is kept."""
    if len(name) <= _MAX_NAME:
        return name
    head, _, tail = name.rpartition("_")
    return f"{head[: _MAX_NAME - len(tail) - 2]}__{tail}" if len(tail) < 8 else name[:_MAX_NAME]


def _type_of(targets: Sequence[str]) -> str:
    """``silu+mul`` for ``aten._unsafe_view.default``, ``aten.silu.default``, ``aten.mul.Tensor``.

    Views are told only where there is nothing else.
    """
    words = [_word(target) for target in targets]
    names = [word for word in words if word not in _VIEWS] or words
    text = "+".join(each for each, _ in groupby(names)) or "kernel"
    return text if len(text) <= _MAX_TYPE else f"{text[: _MAX_TYPE - 5]}+more"


def _word(target: str) -> str:
    parts = target.split(".")
    return _UNFIT.sub("_", parts[1] if len(parts) > 1 else target)
