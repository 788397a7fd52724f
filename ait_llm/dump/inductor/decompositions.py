"""Which nodes a decomposition made, seen while the graph is traced.

Inductor traces the program with a table of decompositions. Each of them is called through us, so
for every operator that is taken apart we know the nodes that stand for it and those that hold its
results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.fx import Node
from torch.fx.experimental import proxy_tensor
from torch.utils import _pytree as pytree

Table = Mapping[Any, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Decomposition:
    """One operator that was taken apart.

    Attributes:
        target: the operator, ``aten.silu.default``.
        nodes: what it became, in order; never empty.
        results: name of the node that holds each result, None for one that is no tensor.
    """

    target: str
    nodes: tuple[Node, ...]
    results: tuple[str | None, ...]


class DecompositionTrace:
    """Watches the decompositions of one trace.

    Attributes:
        found: in the order of execution; those within another one are a part of that.
    """

    def __init__(self) -> None:
        self.found: list[Decomposition] = []
        self._depth = 0

    def watched(self, table: Table) -> dict[Any, Callable[..., Any]]:
        """The same table, each function of which tells us what it made."""
        return {operator: self._watched(operator, each) for operator, each in table.items()}

    def _watched(self, operator: Any, decompose: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(decompose)
        def call(*args: Any, **kwargs: Any) -> Any:
            mode = proxy_tensor.get_proxy_mode()
            if mode is None or self._depth:
                return decompose(*args, **kwargs)
            nodes = mode.tracer.graph.nodes
            last = next(iter(reversed(nodes)), None)
            self._depth += 1
            try:
                result = decompose(*args, **kwargs)
            finally:
                self._depth -= 1
            if result is not NotImplemented:
                self._note(str(operator), mode.tracer, last, result)
            return result

        return call

    def _note(self, target: str, tracer: Any, last: Node | None, result: Any) -> None:
        made: list[Node] = []
        for node in reversed(tracer.graph.nodes):
            if node is last:
                break
            made.append(node)
        if made:  # else it handed back what it got, and no node stands for it
            results = tuple(_node_name(each, tracer) for each in pytree.tree_leaves(result))
            self.found.append(Decomposition(target, tuple(reversed(made)), results))


def _node_name(value: Any, tracer: Any) -> str | None:
    if not isinstance(value, Tensor):
        return None
    slot: Any = proxy_tensor.get_proxy_slot(value, tracer, None)
    return slot.proxy.node.name if slot is not None else None
