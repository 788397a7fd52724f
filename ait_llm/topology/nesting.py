"""Puts operations that a list holds one after the other into the modules they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ait_llm.topology.graph import Node

Module = tuple[str, str]  # path, type


@dataclass(slots=True)
class _Open:
    """A module whose operations are being collected."""

    module: Module
    start: int  # number of its first operation
    children: list[Node] = field(default_factory=list)


def nest(
    operations: Sequence[tuple[Node, Sequence[Module]]], outputs: Iterable[str]
) -> tuple[Node, ...]:
    """Make a graph of every uninterrupted run of operations of one module.

    A module that is interrupted, or called again, gives several graphs of one name. What a graph
    reads and writes follows from its operations: it returns what is read after it.

    Args:
        operations: in execution order, each with the modules it lies in, outermost first. No tensor
            is written twice.
        outputs: tensors that the whole returns.

    Returns:
        The outermost nodes.
    """
    last_read: dict[str, int] = {}
    for number, (node, _) in enumerate(operations):
        last_read.update(dict.fromkeys(node.inputs, number))
    last_read.update(dict.fromkeys(outputs, len(operations)))
    leaves = [node for node, _ in operations]
    stack = [_Open(("", ""), 0)]

    def close(depth: int, end: int) -> None:
        while len(stack) > depth:
            closed = stack.pop()
            stack[-1].children.append(_graph(closed, leaves[closed.start : end], end, last_read))

    for number, (node, modules) in enumerate(operations):
        shared = 0
        for opened, module in zip(stack[1:], modules, strict=False):
            if opened.module != module:
                break
            shared += 1
        close(shared + 1, number)
        stack.extend(_Open(module, number) for module in modules[shared:])
        stack[-1].children.append(node)
    close(1, len(operations))
    return tuple(stack[0].children)


def _graph(closed: _Open, leaves: list[Node], end: int, last_read: dict[str, int]) -> Node:
    written = dict.fromkeys(name for leaf in leaves for name in leaf.outputs)
    read = dict.fromkeys(name for leaf in leaves for name in leaf.inputs)
    path, kind = closed.module
    return Node(
        name=path,
        op_type=kind,
        op_id=None,
        param="",
        inputs=tuple(name for name in read if name not in written),
        outputs=tuple(name for name in written if last_read.get(name, -1) >= end),
        internals=tuple(name for name in written if last_read.get(name, -1) < end),
        children=tuple(closed.children),
    )
