"""Which nodes may compute what."""

from __future__ import annotations

import pytest

from ait_llm.engine.placement import Node, able, least_busy
from ait_llm.errors import FormatError, UsageError


def node(name: str, *seen: str, slots: int = 1) -> Node:
    return Node(name, name, slots, frozenset(seen))


def names(nodes: list[Node]) -> list[str]:
    return [each.name for each in nodes]


def test_a_unit_goes_where_all_its_paths_are() -> None:
    nodes = [node("a", "/x"), node("b", "/x", "/y"), node("c", "/y"), node("d", "/y", "/x")]
    assert names(able(nodes, ["/x", "/y"])) == ["b", "d"]


def test_without_paths_every_node_will_do_that_has_processors() -> None:
    assert names(able([node("head", slots=0), node("a"), node("b")], [])) == ["a", "b"]


def test_a_path_that_no_worker_sees_is_named() -> None:
    nodes = [node("head", "/x", slots=0), node("a"), node("b")]
    with pytest.raises(FormatError, match=r"/x: no such file or directory on any of 2 nodes"):
        able(nodes, ["/x"])


def test_paths_on_different_nodes_are_told_with_their_nodes() -> None:
    with pytest.raises(UsageError, match=r"no node .* sees all paths: /x is on a; /y is on b, c"):
        able([node("a", "/x"), node("b", "/y"), node("c", "/y")], ["/x", "/y"])


def test_a_cluster_without_processors_is_told() -> None:
    with pytest.raises(UsageError, match="no node of the Ray cluster has processors"):
        able([node("head", slots=0)], [])


def test_the_next_unit_goes_to_the_node_with_most_room() -> None:
    nodes = [node("a", slots=2), node("b", slots=4)]
    busy: dict[str, int] = {}
    order = []
    while (chosen := least_busy(nodes, busy, ahead=0)) is not None:
        busy[chosen.id] = busy.get(chosen.id, 0) + 1
        order.append(chosen.name)
    assert order == ["a", "b", "b", "a", "b", "b"]
    assert least_busy(nodes, busy, ahead=1) == nodes[0]
