"""The nodes of a compiled graph as its capture wrote them down in ``graph.json``.

It holds all of them, also those that a filter left out of the dump and those that no kernel stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_GETITEM = "<built-in function getitem>"


@dataclass(frozen=True, slots=True)
class GraphValue:
    """What a graph says of a value without having it.

    Attributes:
        dtype: ``float16``, or ``SymInt`` for a number.
        dims: sizes, or the text of symbolic ones.
        text: of a number, which may be symbolic: ``s23``, ``2*s23``; else empty.
    """

    dtype: str
    dims: tuple[int | str, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node that computes.

    Attributes:
        target: what it calls: ``aten.mul.Tensor``.
        reads: for each argument that is a tensor, in order, the node that made it, or the input of
            the graph that it is, and which of its results.
        places: the positional argument that each of these is, or is an element of; -1 for others.
        definition: the other arguments, by position or name.
        shapes: dims of each result; None where they are symbols, or it is no tensor.
        labels: where each of ``reads`` stands: ``0``, ``1_2`` for an item of a list, ``attn_mask``.
        items: what stands beside nodes in a list, in the same way.
        values: of each result its dims, symbols as text, or the text of a symbolic number.
        source: file, line and function of the program's innermost line that made it; None where
            the capture does not know.
    """

    target: str
    reads: tuple[tuple[str, int], ...]
    places: tuple[int, ...]
    definition: Mapping[str, Any]
    shapes: tuple[tuple[int, ...] | None, ...] = ()
    labels: tuple[str, ...] = ()
    items: Mapping[str, Any] = field(default_factory=dict)
    values: tuple[GraphValue | None, ...] = ()
    source: tuple[str, int, str] | None = None


def graph_nodes(nodes: Sequence[Mapping[str, Any]]) -> dict[str, GraphNode]:
    """The nodes that compute, by name, in their order; what selects a result is looked through.

    Args:
        nodes: of a ``graph.json``.
    """
    selected: dict[str, tuple[str, int]] = {}
    found: dict[str, GraphNode] = {}
    for node in nodes:
        if node.get("op") != "call_function":
            continue
        name, target = node["name"], str(node.get("target"))
        args, kwargs = node.get("args") or [], node.get("kwargs") or {}
        if target == _GETITEM and len(args) == 2 and type(args[1]) is int:
            selected[name] = next(_names(args[0]), ""), args[1]
            continue
        leaves = [
            (place, label, leaf)
            for place, arg in enumerate(args)
            for label, leaf in _leaves(str(place), arg)
        ]
        leaves += [
            (-1, label, leaf) for key, arg in kwargs.items() for label, leaf in _leaves(key, arg)
        ]
        read = [(place, label, leaf["node"]) for place, label, leaf in leaves if _is_node(leaf)]
        found[name] = GraphNode(
            target,
            tuple(selected.get(each, (each, 0)) for *_, each in read),
            tuple(place for place, *_ in read),
            _constants(args, kwargs),
            tuple(map(_shape, node.get("outputs") or [])),
            tuple(label for _, label, _ in read),
            _beside(args, kwargs),
            tuple(map(_value, node.get("outputs") or [])),
            _source(node.get("source")),
        )
    return found


def graph_sources(nodes: Sequence[Mapping[str, Any]]) -> dict[str, GraphValue]:
    """What comes from outside of the graph, and constants, by name.

    Args:
        nodes: of a ``graph.json``.
    """
    found = {}
    for node in nodes:
        if node.get("op") in ("placeholder", "get_attr"):
            value = next(map(_value, node.get("outputs") or []), None)
            if value is not None:
                found[str(node["name"])] = value
    return found


def graph_results(nodes: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, int]]:
    """What a graph gives back by name, where it has names for it: node, and which of its results.

    Args:
        nodes: of a ``graph.json``.
    """
    selected = {
        str(node["name"]): (next(_names(node["args"][0]), ""), node["args"][1])
        for node in nodes
        if node.get("target") == _GETITEM and len(node.get("args") or []) == 2
    }
    return {
        str(name): selected.get(leaf["node"], (leaf["node"], 0))
        for node in nodes
        if node.get("op") == "output"
        for name, leaf in (node.get("kwargs") or {}).items()
        if _is_node(leaf)
    }


def _source(value: Any) -> tuple[str, int, str] | None:
    """A line of the program as the file has it."""
    if not isinstance(value, dict) or not isinstance(value.get("file"), str):
        return None
    line = value.get("line")
    return value["file"], line if type(line) is int else 1, str(value.get("function") or "")


def _leaves(label: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What an argument holds, with its place."""
    if isinstance(value, list):
        for place, each in enumerate(value):
            yield from _leaves(f"{label}_{place}", each)
    else:
        yield label, value


def _is_node(leaf: Any) -> bool:
    return isinstance(leaf, dict) and isinstance(leaf.get("node"), str)


def _names(value: Any) -> Iterator[str]:
    """Names of the nodes in an argument."""
    return (leaf["node"] for _, leaf in _leaves("", value) if _is_node(leaf))


def _named(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {**{str(place): arg for place, arg in enumerate(args)}, **kwargs}


def _constants(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments without nodes."""
    named = _named(args, kwargs)
    return {name: arg for name, arg in named.items() if next(_names(arg), None) is None}


def _beside(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What lists with nodes hold beside them."""
    lists = {name: arg for name, arg in _named(args, kwargs).items() if isinstance(arg, list)}
    return {
        label: leaf
        for name, arg in lists.items()
        if next(_names(arg), None) is not None
        for label, leaf in _leaves(name, arg)
        if not _is_node(leaf)
    }


def _value(output: Any) -> GraphValue | None:
    if not isinstance(output, dict) or not isinstance(output.get("shape"), list):
        return None
    dims, text = output["shape"], output.get("value", "")
    if not all(type(dim) in (int, str) for dim in dims) or not isinstance(text, str):
        return None
    return GraphValue(str(output.get("dtype")), tuple(dims), text)


def _shape(output: Any) -> tuple[int, ...] | None:
    shape = output.get("shape") if isinstance(output, dict) else None
    if not isinstance(shape, list) or not all(type(dim) is int for dim in shape):
        return None
    return tuple(shape)
