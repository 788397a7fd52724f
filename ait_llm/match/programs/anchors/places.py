"""Places in a reported topology: two runs of one graph in another batch, type or version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from ait_llm.program.one_pass import Pass
from ait_llm.topology import Graph

Ids = tuple[int, ...]
OpPairs = list[tuple[int, int]]


def pair_by_place(left: Pass, right: Pass) -> OpPairs:
    """Operations of equal place and type; places count from the first operation of the model.

    Empty where any place has two types, or a graph has other members: that is another topology.
    """
    ours, theirs = _by_ids(left), _by_ids(right)
    if len(ours) < len(left.operations) or len(theirs) < len(right.operations):
        return []  # a place ran twice, which no pass does
    for offset in _offsets(left, right, ours, theirs):
        moved = {(ids[0] + offset, *ids[1:]): op for ids, op in ours.items()}
        pairs = [(moved[ids], other) for ids, other in theirs.items() if ids in moved]
        if pairs and all(
            left.operations[op].type == right.operations[other].type for op, other in pairs
        ):
            return pairs if _has_same_members(left, right, pairs) else []
    return []


def _by_ids(run: Pass) -> dict[Ids, int]:
    return {operation.op_id.parts: op for op, operation in enumerate(run.operations)}


def _offsets(
    left: Pass, right: Pass, ours: Mapping[Ids, int], theirs: Mapping[Ids, int]
) -> Iterator[int]:
    """By how much the top-level ids of the right side may be ahead, the likeliest first.

    Without the models of both sides equal ids are the same places if their types agree; else the
    two rows must be equal from end to end.
    """
    if left.model is not None and right.model is not None:
        yield right.first_id - left.first_id
        return
    yield 0
    rows = [sorted({ids[0] for ids in side}) for side in (ours, theirs)]
    if rows[0] and rows[1]:
        offset = rows[1][0] - rows[0][0]
        if [top + offset for top in rows[0]] == rows[1]:
            yield offset


def _has_same_members(left: Pass, right: Pass, pairs: OpPairs) -> bool:
    """True if no operation shows that one side has other operations than the other.

    Capture filters leave operations out; they do so at the end of a branch or for whole branches,
    and the reported graphs tell them from a graph with other members.
    """
    if left.model is not None and right.model is not None:
        return _kinds(left.model) == _kinds(right.model)
    for op, other in pairs:
        first = left.graphs.get(left.operations[op].name)
        second = right.graphs.get(right.operations[other].name)
        if first is not None and second is not None and _kinds(first) != _kinds(second):
            return False
    if _begin_alike(left, right, pairs):
        return False
    ours, theirs = _dense_members(left), _dense_members(right)
    ids = (
        (left.operations[op].op_id.parts, right.operations[other].op_id.parts)
        for op, other in pairs
    )
    return all(
        ours[first] == theirs[second] for first, second in ids if first in ours and second in theirs
    )


def _kinds(graph: Graph) -> list[tuple[str, int]]:
    """Types and depths of all members of a reported graph."""
    return [(node.op_type, depth) for node, depth in graph.root.walk()][1:]


def _begin_alike(left: Pass, right: Pass, pairs: OpPairs) -> bool:
    """True if both sides list all top-level operations from the same first one, but not as many.

    A side that begins later was captured in part.
    """
    op, other = pairs[0]
    first = left.operations[op].op_id.parts[0], right.operations[other].op_id.parts[0]
    tops = [
        {operation.op_id.parts[0] - start for operation in run.operations}
        for run, start in zip((left, right), first, strict=True)
    ]
    dense = all(len(ids) == max(ids) - min(ids) + 1 for ids in tops)
    return dense and min(tops[0]) == min(tops[1]) and len(tops[0]) != len(tops[1])


def _dense_members(run: Pass) -> dict[Ids, int]:
    """Number of members of each graph whose captured members have no gap between them."""
    members: dict[Ids, list[int]] = defaultdict(list)
    for operation in run.operations:
        ids = operation.op_id.parts
        members[ids[:-1]].append(ids[-1])
    return {
        ids: len(places)
        for ids, places in members.items()
        if ids and sorted(places) == list(range(len(places)))
    }
