"""The topology of a run: a tree of operations whose edges are tensor names.

Readers of every source (ATB JSON, module trees, compiled graphs) produce these types;
conversions consume them. No values, no files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ait_llm.core import OpId

Param = Any  # one JSON value: a mapping, None for "has no JSON form", or "" for graphs

_TRAILING_IDS = re.compile(r"_(\d+(?:_\d+)*)$")


@dataclass(frozen=True, slots=True)
class Node:
    """One operation; a graph operation has children.

    A tensor keeps one name through all levels: that of the outermost graph that owns it.

    Attributes:
        name: operation name with its ids, such as ``LinearOperation_0_1_0``.
        op_type: operation type, such as ``LinearOperation``.
        op_id: position in the process (``0_1_0``), or None when the name carries none.
        param: parameters as JSON; None where the type prints none, ``""`` for graphs.
        inputs: names of the tensors read, in the operation's order, repetitions kept.
        outputs: names of the tensors written; an in-place write repeats an input.
        internals: names of the intermediate tensors that a graph owns.
        children: the operations of a graph, in execution order.
    """

    name: str
    op_type: str
    op_id: OpId | None
    param: Param
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    internals: tuple[str, ...] = ()
    children: tuple[Node, ...] = ()

    @property
    def is_graph(self) -> bool:
        """True for an operation made of other operations."""
        return bool(self.children)

    def walk(self) -> Iterator[tuple[Node, int]]:
        """This node and everything below it in execution order, each with its depth (0 = this)."""
        stack = [(self, 0)]
        while stack:
            node, depth = stack.pop()
            yield node, depth
            stack.extend((child, depth + 1) for child in reversed(node.children))

    def leaves(self) -> Iterator[Node]:
        """The operations without children, in execution order."""
        return (node for node, _ in self.walk() if not node.children)

    def at_level(self, level: int | None) -> Iterator[Node]:
        """The operations seen when graphs below ``level`` stay closed, in execution order.

        Args:
            level: 0 is this node alone, 1 its children, and so on; None opens every graph.
        """
        for node, depth in self.walk():
            if level is None:
                if not node.children:
                    yield node
            elif depth == level or (depth < level and not node.children):
                yield node


@dataclass(frozen=True, slots=True)
class Graph:
    """The topology of one layer or one model.

    Attributes:
        kind: ``layer`` for one top-level operation, ``model`` for what a framework assembled.
        root: the whole as one node; its name is the layer's operation name or the model's name.
        weights: tensors that the model owns and no operation computes.
        caches: key and value caches, which operations update in place.
        source: the file that the graph was read from.
        producer: what made it: ATB, the graph engine, or torch.compile.
    """

    kind: Literal["layer", "model"]
    root: Node
    weights: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    source: Path | None = None
    producer: Literal["atb", "ge", "fx"] = "atb"

    @property
    def name(self) -> str:
        """Name of the layer or model."""
        return self.root.name


def op_id_of(name: str, op_type: str) -> OpId | None:
    """The ids at the end of an operation name, or None.

    The type is cut off first because it may end in digits itself (``Block_7`` in ``Block_7_0``).
    """
    tail = name[len(op_type) :] if op_type and name.startswith(op_type + "_") else name
    found = _TRAILING_IDS.search(tail)
    return OpId.parse(found.group(1)) if found else None
