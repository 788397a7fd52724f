"""ATB against ATB of another topology: a float model against its quantised form, other versions.

Members of two graphs are aligned in order by what they compute. Operations that only one side has,
such as quantisation, stay alone; those that could belong to several are reported as ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ait_llm.match.model import Match, MatchOptions, SideName, Unmatched, matchers
from ait_llm.match.op_pairs import OpPair, match_tensors
from ait_llm.match.op_tree import NodePair, TreeAligner, build_tree
from ait_llm.match.operators import Finding, Placed, placed
from ait_llm.program.one_pass import Pass

_CERTAIN, _AMBIGUOUS = 0.9, 0.4


@matchers.register("by_structure")
def by_structure(golden: Pass, mine: Pass, options: MatchOptions) -> Iterator[Match | Unmatched]:
    """Operations of the same work in the same order, graph by graph."""
    first, second = placed(golden), placed(mine)
    nodes = list(TreeAligner(build_tree(first), build_tree(second)).pairs())
    pairs = [OpPair(node.golden, node.mine, _finding(node), node.rivals) for node in nodes]
    yield from match_tensors(golden, mine, pairs)
    yield from _alone("golden", first, {pair.golden.order for pair in pairs}, "my run")
    yield from _alone("mine", second, {pair.mine.order for pair in pairs}, "the golden run")


def _alone(
    side: SideName, operations: Sequence[Placed], paired: set[int], other: str
) -> Iterator[Unmatched]:
    for each in operations:
        if each.order not in paired:
            reason = f"{other} has no operation that answers {each.operation.name}"
            for tensor in each.tensors:
                yield each.unmatched(side, tensor, reason)


def _finding(pair: NodePair) -> Finding:
    same = pair.golden.operation.type == pair.mine.operation.type
    work = "same type" if same else f"{pair.mine.operation.type} does the same work"
    if pair.certain:
        return Finding("by_structure", _CERTAIN, f"{work} at the same place in order")
    return Finding("by_structure", _AMBIGUOUS, f"{work}, but others fit as well")
