"""Which nodes of a cluster can compute what, by the paths that they see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ait_llm.errors import FormatError, UsageError


@dataclass(frozen=True, slots=True)
class Node:
    """A node that is alive.

    Attributes:
        id: of the cluster.
        name: for people: its address.
        slots: units at the same time; 0 for a node that only manages others.
        seen: the roots that it can read.
    """

    id: str
    name: str
    slots: int
    seen: frozenset[str] = frozenset()


def able(nodes: Sequence[Node], roots: Sequence[str]) -> list[Node]:
    """The nodes that see all roots and have processors.

    Raises:
        FormatError: a root that no such node sees.
        UsageError: each root is somewhere, but they are nowhere together.
    """
    workers = [node for node in nodes if node.slots]
    if not workers:
        raise UsageError("no node of the Ray cluster has processors; start one with ray start")
    found = [node for node in workers if node.seen.issuperset(roots)]
    if found:
        return found
    for root in roots:
        if not any(root in node.seen for node in workers):
            raise FormatError(
                root,
                f"no such file or directory on {_nodes(workers)}",
                "Give a path that a node with processors sees, or a URL",
            )
    where = "; ".join(
        f"{root} is on {', '.join(node.name for node in workers if root in node.seen)}"
        for root in roots
    )
    raise UsageError(f"no node of the Ray cluster sees all paths: {where}; copy one, or give URLs")


def _nodes(workers: Sequence[Node]) -> str:
    if len(workers) == 1:
        return f"{workers[0].name}, the only node of the Ray cluster with processors"
    return f"any of {len(workers)} nodes of the Ray cluster"


def least_busy(nodes: Sequence[Node], busy: dict[str, int], ahead: int) -> Node | None:
    """The node with the most room for another unit, the first of equal ones; None if all are full.

    Args:
        nodes: to choose from.
        busy: how many units each has by its id.
        ahead: how many units may wait at a node for each that it computes.
    """
    free = [node for node in nodes if busy.get(node.id, 0) < node.slots * (1 + ahead)]
    return min(free, key=lambda node: busy.get(node.id, 0) / node.slots, default=None)
