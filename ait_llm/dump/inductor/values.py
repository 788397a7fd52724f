"""Which operator of the program each node of Inductor's graph comes from.

Three graphs are involved. The *eager* graph is the AOT graph with no operator taken apart; it is
what ``fx_backend`` runs and dumps. Inductor traces the *decomposed* graph, and its passes turn that
into the *final* graph, which is fused and lowered. Decompositions are watched while they run, and
replacements while the passes make them, so a node of the final graph is known to hold the value of
a node of the eager graph, or to be a part of it.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ait_llm.dump.fx.graph_file import is_dumped, target_of
from ait_llm.dump.inductor.decompositions import Decomposition


@dataclass(frozen=True, slots=True)
class EagerValue:
    """A tensor of the eager graph, by the names of an FX dump.

    Attributes:
        node: of the eager graph.
        role: result, or argument where the value comes from outside of the graph.
        index: among the results or the positional arguments.
    """

    node: str
    role: str
    index: int


class EagerGraph:
    """The AOT graph before decomposition.

    Args:
        module: as AOT autograd traced it without a table of decompositions.
    """

    def __init__(self, module: GraphModule) -> None:
        self.module = module
        self._nodes: Mapping[str, Node] = {node.name: node for node in module.graph.nodes}

    @property
    def graph(self) -> Graph:
        """Its nodes."""
        return self.module.graph

    def target(self, name: str) -> str:
        """Target of a node."""
        return target_of(self._nodes[name])

    def value(self, name: str) -> EagerValue | None:
        """Where an FX dump has the value of a node; None where it has none."""
        node = self._nodes[name]
        if node.op == "call_function" and node.target is operator.getitem:
            parent, index = node.args
            if isinstance(parent, Node) and isinstance(index, int) and is_dumped(parent):
                return EagerValue(parent.name, "out", index)
            return None
        if is_dumped(node):
            return EagerValue(node.name, "out", 0)
        if node.op == "placeholder":
            for user in node.users:
                if is_dumped(user):
                    places = [place for place, each in enumerate(user.args) if each is node]
                    if places:
                        return EagerValue(user.name, "in", places[0])
        return None

    def behind(self, name: str, known: frozenset[str]) -> list[str]:
        """Nodes that a value is computed from, back to values that are known; itself included.

        In the order of the graph, as far as an FX dump has them.
        """
        seen = {name}
        pending = [name]
        while pending:
            for before in self._nodes[pending.pop()].all_input_nodes:
                if before.name not in seen and before.name not in known:
                    seen.add(before.name)
                    pending.append(before.name)
        return [each for each, node in self._nodes.items() if each in seen and is_dumped(node)]

    def passed_on(self) -> Iterator[tuple[str, str]]:
        """Nodes that compute nothing, in order, each with the node whose value it hands on.

        Views and aliases, and copies into arguments of the program.
        """
        for name, node in self._nodes.items():
            if not isinstance(node.target, torch._ops.OpOverload):
                continue
            schema = node.target._schema
            if node.target is torch.ops.aten.copy_.default:
                source = node.args[1]
            elif schema.is_mutable or not any(each.alias_info for each in schema.returns):
                continue
            else:
                source = node.args[0] if node.args else None
            if isinstance(source, Node):
                yield name, source.name


@dataclass(slots=True)
class ValueMap:
    """What the nodes of Inductor's graph stand for, by their names.

    Attributes:
        eager: the graph they come from.
        values: nodes of the eager graph whose value a node holds.
        parts: operators of the eager graph that a node was made for.
    """

    eager: EagerGraph
    values: dict[str, tuple[str, ...]] = field(default_factory=dict)
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def follow(self, module: GraphModule) -> None:
        """Keep the map right while passes replace nodes of a module.

        A node that replaces another one for all its users holds the same value.
        """
        # A hook of torch's own provenance tracking; passes of Inductor all work through it.
        module._register_replace_node_hook(self._replaced)

    def _replaced(self, old: Node, new: str, user: Node) -> None:
        replacement = next((n for n in old.graph.nodes if n.name == new), None)
        same = replacement is not None and _alike(old.meta.get("val"), replacement.meta.get("val"))
        for table, wanted in ((self.values, same), (self.parts, True)):
            if wanted and old.name in table:
                table[new] = tuple(dict.fromkeys((*table.get(new, ()), *table[old.name])))

    def named_value(self, node: str) -> str | None:
        """The node of the eager graph whose value a node holds, one that an FX dump has."""
        # The last of several equal values is the one that later operators take.
        for name in reversed(self.values.get(node, ())):
            if self.eager.value(name) is not None:
                return name
        return None

    def operators_of(self, nodes: Iterable[str]) -> list[str]:
        """The operators of the eager graph that nodes were made for, in its order."""
        wanted = {part for node in nodes for part in self.parts.get(node, ())}
        return [node.name for node in self.eager.graph.nodes if node.name in wanted]


def map_values(
    eager: EagerGraph, decomposed: Graph, decompositions: Sequence[Decomposition]
) -> ValueMap:
    """Find the operators of the eager graph again in the decomposed one.

    Both were traced from one program, so the same source node made the same operators in the same
    order on both sides.
    """
    found = ValueMap(eager)
    names = {node.name: node for node in decomposed.nodes}
    for one, other in zip(_placeholders(eager.graph), _placeholders(decomposed), strict=False):
        found.values[other.name] = (one.name,)
    inside: set[str] = set()
    made: dict[tuple[str, str], list[_Made]] = defaultdict(list)
    for each in decompositions:
        nodes = [node.name for node in each.nodes if node.name in names]
        if nodes:
            inside.update(nodes)
            key = _source(names[nodes[0]]), each.target
            made[key].append(_Made(tuple(nodes), dict(enumerate(each.results))))
    for node in decomposed.nodes:
        if is_dumped(node) and node.name not in inside:
            made[_source(node), target_of(node)].append(_as_it_is(node))
    wanted: dict[tuple[str, str], list[Node]] = defaultdict(list)
    for node in eager.graph.nodes:
        if is_dumped(node):
            wanted[_source(node), target_of(node)].append(node)
    for key, originals in wanted.items():
        if len(originals) == len(made[key]):
            for node, stand_in in zip(originals, made[key], strict=True):
                _link(found, node, stand_in)
    return found


@dataclass(frozen=True, slots=True)
class _Made:
    """Nodes of the decomposed graph that stand for one operator; results by their index."""

    nodes: tuple[str, ...]
    results: Mapping[int, str | None]


def _as_it_is(node: Node) -> _Made:
    items = _items(node)
    nodes = (node.name, *items.values())
    return _Made(nodes, items if items else {0: node.name})


def _items(node: Node) -> dict[int, str]:
    """Users that pick one of several results, by its index."""
    return {
        user.args[1]: user.name
        for user in node.users
        if user.op == "call_function"
        and user.target is operator.getitem
        and isinstance(user.args[1], int)
    }


def _link(found: ValueMap, node: Node, stand_in: _Made) -> None:
    for name in stand_in.nodes:
        found.parts[name] = (*found.parts.get(name, ()), node.name)
    items = _items(node) or {0: node.name}
    for index, name in items.items():
        result = stand_in.results.get(index)
        if result is not None:
            found.values[result] = (*found.values.get(result, ()), name)


def _placeholders(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _source(node: Node) -> str:
    """Name of the node of the program's graph that a traced node was made for."""
    sources = node.meta.get("from_node") or ()
    name = ""
    while sources:
        last = sources[-1]
        name = str(getattr(last, "name", last))
        sources = getattr(last, "from_node", None) or ()
    return name


def _alike(one: Any, other: Any) -> bool:
    """True for tensors of one element type and number of elements, and for what is unknown."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return True
    # As text: comparing symbolic sizes would add guards to the program.
    return one.dtype == other.dtype and str(one.numel()) == str(other.numel())
