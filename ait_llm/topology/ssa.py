"""A topology as calls in single static assignment form, flat or as one function per graph.

The acceleration library writes caches in place and lets two operations write one tensor, in
execution order. Interchange formats want every value written once, so a second write of ``cache``
makes a value ``cache__v1``, and later readers read that one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ait_llm.topology.graph import Graph, Node


@dataclass(frozen=True, slots=True)
class Call:
    """One operation in a body.

    Attributes:
        node: the operation.
        name: its name, made unique in the file.
        path: names from the root down, joined by ``/``.
        inputs, outputs: values read and written.
        function: name of the body that this call runs, or None for a closed operation.
        side_effects: tensors that the graph writes undeclared and later operations read.
        unassigned: declared outputs that nothing inside the graph writes.
    """

    node: Node
    name: str
    path: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    function: str | None = None
    side_effects: tuple[str, ...] = ()
    unassigned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Body:
    """A list of calls with its inputs and outputs; every value has one writer.

    Attributes:
        name: name of the graph operation (unique), or of the topology.
        node: the graph operation.
        inputs, outputs: values, without repetitions.
        calls: in execution order.
        tensors: value name to the tensor name that it is a version of.
        unassigned: declared outputs that nothing writes.
    """

    name: str
    node: Node
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    calls: tuple[Call, ...]
    tensors: dict[str, str]
    unassigned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """The main body, the functions it calls (outer before inner), and the weights it reads."""

    main: Body
    functions: tuple[Body, ...]
    weights: tuple[str, ...]


@dataclass(slots=True)
class _Entry:
    node: Node
    depth: int
    name: str
    path: str
    opened: bool
    children: list[int] = field(default_factory=list)
    end: int = 0  # number of closed operations up to and including this subtree


@dataclass(slots=True)
class _Function:
    inputs: tuple[str, ...]  # tensor names
    outputs: tuple[str, ...]  # tensor names
    side_effects: tuple[str, ...]
    unassigned: tuple[str, ...]


class _Scope:
    """The latest value of each tensor while a body is written."""

    def __init__(self, given: Iterable[str], reserved: set[str]) -> None:
        self.tensors: dict[str, str] = {}
        self.latest: dict[str, str] = {}
        self.free: list[str] = []
        self.written: dict[str, None] = {}
        self.read_names: set[str] = set()
        self._versions: dict[str, int] = {}
        self._reserved = reserved
        for name in given:
            self._bind(name, name)

    def _bind(self, tensor: str, value: str) -> str:
        self.latest[tensor] = value
        self.tensors[value] = tensor
        return value

    def read(self, tensor: str) -> str:
        if not tensor:  # an absent optional input
            return ""
        self.read_names.add(tensor)
        if tensor not in self.latest:
            self.free.append(tensor)
            self._bind(tensor, tensor)
        return self.latest[tensor]

    def write(self, tensor: str) -> str:
        if not tensor:
            return ""
        self.written[tensor] = None
        if tensor not in self.latest:
            return self._bind(tensor, tensor)
        version = self._versions.get(tensor, 0) + 1
        while (value := f"{tensor}__v{version}") in self._reserved:  # somebody's own name
            version += 1
        self._versions[tensor] = version
        return self._bind(tensor, value)

    def mark(self, operation: str) -> str:
        """A value for an operation without tensors, which would otherwise hang in the air."""
        value = f"{operation}__done"
        while value in self.tensors or value in self._reserved:
            value += "_"
        return self._bind(value, value)


def to_program(graph: Graph, level: int | None = None, *, nested: bool = True) -> Program:
    """Put a topology into single static assignment form.

    Args:
        graph: the topology.
        level: depth at which graphs stay closed; 0 is the whole as one operation, None opens all.
        nested: one function per opened graph; otherwise all operations in one body.

    Returns:
        A program in which names read before they are written are inputs or weights, and declared
        outputs that nobody writes are left out and listed.
    """
    root = graph.root
    if level == 0 and graph.kind == "model":
        root = replace(root, inputs=(*root.inputs, *graph.caches))
    entries = _entries(root, level)
    reserved = {name for node, _ in root.walk() for name in (*node.inputs, *node.outputs)}
    last_read = _last_reads(entries)
    done: dict[int, _Function] = {}
    functions: list[Body] = []
    if nested:
        for index in range(len(entries) - 1, 0, -1):  # a graph comes before its children
            if entries[index].opened:
                body, done[index] = _function(entries, index, done, reserved, last_read)
                functions.append(body)
    if not entries[0].opened:
        shown = [0]
    elif nested:
        shown = entries[0].children
    else:
        shown = [index for index, entry in enumerate(entries) if not entry.opened]
    known = set(graph.weights)
    declared_inputs = [n for n in _unique((*root.inputs, *graph.caches)) if n not in known]
    scope = _Scope((*declared_inputs, *_unique(graph.weights)), reserved)
    calls = tuple(_call(entries[index], done.get(index), scope) for index in shown)
    # Old model files declare no outputs: what nobody reads is what the model is for.
    declared = _unique(root.outputs) or tuple(n for n in scope.written if n not in scope.read_names)
    main = Body(
        name=root.name,
        node=root,
        inputs=(*declared_inputs, *scope.free),
        outputs=tuple(scope.latest[name] for name in declared if name in scope.latest),
        calls=calls,
        tensors=scope.tensors,
        unassigned=tuple(name for name in declared if name not in scope.latest),
    )
    used = scope.read_names.union(main.outputs)
    weights = tuple(name for name in _unique(graph.weights) if name in used)
    return Program(main, tuple(reversed(functions)), weights)


def _entries(root: Node, level: int | None) -> list[_Entry]:
    """The nodes that are seen at ``level``, in execution order, with unique names."""
    entries: list[_Entry] = []
    taken: set[str] = set()
    stack: list[tuple[Node, int, int]] = [(root, 0, -1)]
    closed = 0
    while stack:
        node, depth, parent = stack.pop()
        opened = node.is_graph and (level is None or depth < level)
        name, number = node.name, 1
        while name in taken:
            number += 1
            name = f"{node.name}__{number}"
        taken.add(name)
        path = f"{entries[parent].path}/{node.name}" if parent >= 0 else node.name
        if parent >= 0:
            entries[parent].children.append(len(entries))
        closed += not opened
        entries.append(_Entry(node, depth, name, path, opened, end=closed))
        if opened:
            index = len(entries) - 1
            stack.extend((child, depth + 1, index) for child in reversed(node.children))
    for entry in reversed(entries):
        if entry.children:
            entry.end = entries[entry.children[-1]].end
    return entries


def _last_reads(entries: list[_Entry]) -> dict[str, int]:
    """For each tensor the number of the last closed operation that reads it (1 is the first)."""
    last: dict[str, int] = {}
    for entry in entries:
        if not entry.opened:
            last.update(dict.fromkeys(entry.node.inputs, entry.end))
    last.update(dict.fromkeys(entries[0].node.outputs, len(entries) + 1))  # read by the outside
    return last


def _function(
    entries: list[_Entry],
    index: int,
    done: dict[int, _Function],
    reserved: set[str],
    last_read: dict[str, int],
) -> tuple[Body, _Function]:
    entry = entries[index]
    node = entry.node
    declared_inputs = _unique(node.inputs)
    scope = _Scope(declared_inputs, reserved)
    calls = tuple(_call(entries[child], done.get(child), scope) for child in entry.children)
    declared = [name for name in _unique(node.outputs) if name in scope.written]
    side_effects = tuple(
        name
        for name in scope.written
        if name not in declared and last_read.get(name, 0) > entry.end
    )
    unassigned = tuple(name for name in _unique(node.outputs) if name not in scope.latest)
    inputs = (*declared_inputs, *scope.free)
    if not inputs and not declared and not side_effects:
        side_effects = (list(scope.tensors.values())[-1],)  # something must tie the call down
    outputs = (*declared, *side_effects)
    body = Body(
        name=entry.name,
        node=node,
        inputs=inputs,
        outputs=tuple(scope.latest[name] for name in outputs),
        calls=calls,
        tensors=scope.tensors,
        unassigned=unassigned,
    )
    return body, _Function(inputs, outputs, side_effects, unassigned)


def _call(entry: _Entry, function: _Function | None, scope: _Scope) -> Call:
    tensors = function if function else entry.node
    inputs = tuple(scope.read(name) for name in tensors.inputs)  # all reads precede the writes
    outputs = tuple(scope.write(name) for name in tensors.outputs)
    if not any(inputs) and not any(outputs):
        outputs = (scope.mark(entry.name),)
    return Call(
        node=entry.node,
        name=entry.name,
        path=entry.path,
        inputs=inputs,
        outputs=outputs,
        function=entry.name if function else None,
        side_effects=function.side_effects if function else (),
        unassigned=function.unassigned if function else (),
    )


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(names) if name)
