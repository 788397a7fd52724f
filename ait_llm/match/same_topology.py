"""ATB against ATB where both ran the same graph: another batch, element type or version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ait_llm.match.addresses import Addresses
from ait_llm.match.model import Match, MatchOptions, Run, Unmatched, matchers
from ait_llm.match.operators import Finding, Placed, match_by_index, output_shapes, placed
from ait_llm.match.shapes import batch_ratio

Ids = tuple[int, ...]


@matchers.register("same_topology")
def same_topology(golden: Run, mine: Run, options: MatchOptions) -> Iterator[Match | Unmatched]:
    """Operations of equal place and type; places count from the first operation of the model.

    Nothing is said where any place has two types, or a graph has other members: that is another
    topology.
    """
    pairs = pair_by_place(placed(golden), placed(mine), base_of(mine) - base_of(golden))
    if pairs is None or not same_members(golden, mine, pairs):
        return
    ratio = batch_ratio(output_shapes(pairs))
    special = Addresses(pairs, ratio).align
    finding = Finding("same_topology", 1.0, "same place in the same topology", ratio, special)
    for first, second in pairs:
        yield from match_by_index(first, second, finding)


def base_of(run: Run) -> int:
    """Id of the first operation of the run's model; 0 if the run did not report it."""
    if run.model is None:
        return 0
    ids = [node.op_id.parts[0] for node in run.model.root.children if node.op_id is not None]
    return min(ids, default=0)


def pair_by_place(
    golden: Sequence[Placed], mine: Sequence[Placed], offset: int = 0
) -> list[tuple[Placed, Placed]] | None:
    """Operations of equal place, in my execution order; None if a place has two types.

    Args:
        golden, mine: the operations of two runs.
        offset: by how much my top-level ids are probably ahead.
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


def same_members(golden: Run, mine: Run, pairs: Sequence[tuple[Placed, Placed]]) -> bool:
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
    dense = [_dense_members(placed(run)) for run in (golden, mine)]
    return all(
        dense[1][second] == dense[0][first]
        for first, second in (
            (one.operation.op_id.parts, other.operation.op_id.parts) for one, other in pairs
        )
        if first in dense[0] and second in dense[1]
    )


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


def _offset(golden: dict[Ids, Placed], mine: dict[Ids, Placed], probable: int) -> int | None:
    """How far my top-level ids are ahead: the shift under which most places agree in type."""
    tops = [
        {ids[0]: each.operation.type for ids, each in side.items() if len(ids) == 1}
        for side in (golden, mine)
    ]
    lows = [min(ids[0] for ids in side) for side in (golden, mine)]
    candidates = dict.fromkeys([probable, 0, lows[1] - lows[0]])
    candidates.update(dict.fromkeys(top - lows[0] for top in sorted(tops[1])))
    best: tuple[int, int] | None = None
    for offset in candidates:
        common = [
            (kind, tops[1][top + offset])
            for top, kind in tops[0].items()
            if top + offset in tops[1]
        ]
        if any(one != other for one, other in common):
            continue
        deeper = sum((ids[0] + offset, *ids[1:]) in mine for ids in golden)
        if deeper and (best is None or deeper > best[0]):
            best = deeper, offset
    return None if best is None else best[1]
