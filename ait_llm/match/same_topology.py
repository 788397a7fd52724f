"""ATB against ATB where both ran the same graph: another batch, element type or version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ait_llm.match.model import Match, MatchOptions, Unmatched, matchers
from ait_llm.match.op_pairs import OpPair, match_tensors
from ait_llm.match.operators import Finding, Placed, placed
from ait_llm.program.one_pass import Pass

Ids = tuple[int, ...]


@matchers.register("same_topology")
def same_topology(golden: Pass, mine: Pass, options: MatchOptions) -> Iterator[Match | Unmatched]:
    """Operations of equal place and type; places count from the first operation of the model.

    Nothing is said where any place has two types, or a graph has other members: that is another
    topology.
    """
    known = None
    if golden.model is not None and mine.model is not None:
        known = base_of(mine) - base_of(golden)
    pairs = pair_by_place(placed(golden), placed(mine), known)
    if pairs is None or not same_members(golden, mine, pairs):
        return
    finding = Finding("same_topology", 1.0, "same place in the same topology")
    yield from match_tensors(golden, mine, [OpPair(*pair, finding) for pair in pairs])


def base_of(run: Pass) -> int:
    """Id of the first operation of the run's model; 0 if the run did not report it."""
    if run.model is None:
        return 0
    ids = [node.op_id.parts[0] for node in run.model.root.children if node.op_id is not None]
    return min(ids, default=0)


def pair_by_place(
    golden: Sequence[Placed], mine: Sequence[Placed], offset: int | None = None
) -> list[tuple[Placed, Placed]] | None:
    """Operations of equal place, in my execution order; None if a place has two types.

    Args:
        golden, mine: the operations of two runs.
        offset: by how much my top-level ids are ahead; None to find out.
    """
    first, second = _by_ids(golden), _by_ids(mine)
    if first is None or second is None:
        return None
    found = _offset(first, second, offset)
    if found is None:
        return None
    pairs = []
    for ids, operation in second.items():
        partner = first.get((ids[0] - found, *ids[1:]))
        if partner is None:
            continue
        if partner.operation.type != operation.operation.type:
            return None
        pairs.append((partner, operation))
    return pairs or None


def same_members(golden: Pass, mine: Pass, pairs: Sequence[tuple[Placed, Placed]]) -> bool:
    """True if no operation shows that one side has other operations than the other.

    Capture filters leave operations out; they do so at the end of a branch or for whole branches,
    and the reported graphs tell them from a graph with other members.
    """
    if golden.model is not None and mine.model is not None:
        trees = [
            [(node.op_type, depth) for node, depth in run.model.root.walk()][1:]
            for run in (golden, mine)
            if run.model is not None
        ]
        return trees[0] == trees[1]
    for first, second in pairs:
        graphs = golden.graphs, mine.graphs
        names = first.operation.name, second.operation.name
        if names[0] in graphs[0] and names[1] in graphs[1]:
            members = [
                [(node.op_type, depth) for node, depth in side[name].root.walk()]
                for side, name in zip(graphs, names, strict=True)
            ]
            if members[0] != members[1]:
                return False
    if _begin_alike(pairs, placed(golden), placed(mine)):
        return False
    dense = [_dense_members(placed(run)) for run in (golden, mine)]
    return all(
        dense[1][second] == dense[0][first]
        for first, second in (
            (one.operation.op_id.parts, other.operation.op_id.parts) for one, other in pairs
        )
        if first in dense[0] and second in dense[1]
    )


def _begin_alike(
    pairs: Sequence[tuple[Placed, Placed]], golden: Sequence[Placed], mine: Sequence[Placed]
) -> bool:
    """True if both sides list all top-level operations from the same first one, but not as many.

    A side that begins later was captured in part.
    """
    offset = pairs[0][1].operation.op_id.parts[0] - pairs[0][0].operation.op_id.parts[0]
    tops = [
        {each.operation.op_id.parts[0] for each in golden},
        {each.operation.op_id.parts[0] - offset for each in mine},
    ]
    dense = all(len(ids) == max(ids) - min(ids) + 1 for ids in tops)
    return dense and min(tops[0]) == min(tops[1]) and len(tops[0]) != len(tops[1])


def _dense_members(operations: Sequence[Placed]) -> dict[Ids, int]:
    """Number of members of each graph whose captured members have no gap between them."""
    members: dict[Ids, list[int]] = defaultdict(list)
    for each in operations:
        ids = each.operation.op_id.parts
        members[ids[:-1]].append(ids[-1])
    return {
        ids: len(places)
        for ids, places in members.items()
        if ids and sorted(places) == list(range(len(places)))
    }


def _by_ids(operations: Sequence[Placed]) -> dict[Ids, Placed] | None:
    """Operations by place; None if a place ran twice, which no pass does."""
    found: dict[Ids, Placed] = {}
    for each in operations:
        ids = each.operation.op_id.parts
        if ids in found:
            return None
        found[ids] = each
    return found


def _offset(golden: dict[Ids, Placed], mine: dict[Ids, Placed], known: int | None) -> int | None:
    """By how much my top-level ids are ahead.

    Without the models of both sides equal ids are the same places if their types agree; else the
    two rows must be equal from end to end.
    """
    rows = [sorted({ids[0] for ids in side}) for side in (golden, mine)]

    def agrees(offset: int) -> bool:
        common = [
            (each.operation.type, mine[moved].operation.type)
            for ids, each in golden.items()
            if (moved := (ids[0] + offset, *ids[1:])) in mine
        ]
        return bool(common) and all(one == other for one, other in common)

    if known is not None:
        return known if agrees(known) else None
    if agrees(0):
        return 0
    shift = rows[1][0] - rows[0][0]
    shifted = [top + shift for top in rows[0]]
    return shift if shifted == rows[1] and agrees(shift) else None
