"""ATB against ATB of another topology: a float model against its quantised form, other versions.

Members of two graphs are aligned in order by what they compute. Operations that only one side has,
such as quantisation, stay alone; those that could belong to several are reported as ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ait_llm.match.addresses import Addresses
from ait_llm.match.model import Match, MatchOptions, Run, Unmatched, matchers
from ait_llm.match.op_tree import NodePair, TreeAligner, build_tree
from ait_llm.match.operators import Finding, output_shapes, placed
from ait_llm.match.quantised import Quantised
from ait_llm.match.shapes import batch_ratio
from ait_llm.match.wiring import Links, Wiring

_CERTAIN, _AMBIGUOUS = 0.9, 0.4


@matchers.register("by_structure")
def by_structure(golden: Run, mine: Run, options: MatchOptions) -> Iterator[Match | Unmatched]:
    """Operations of the same work in the same order, graph by graph."""
    operations = placed(golden), placed(mine)
    pairs = list(TreeAligner(*map(build_tree, operations)).pairs())
    ratio = batch_ratio(output_shapes((pair.golden, pair.mine) for pair in pairs))
    addresses = Addresses([(pair.golden, pair.mine) for pair in pairs], ratio)
    quantised = Quantised(*operations)
    links = Links(Wiring(golden), Wiring(mine))
    # members first: they say which inputs of the graphs around them belong together
    for pair in sorted(pairs, key=lambda each: each.mine.operation.is_graph):
        finding = replace(_finding(pair), ratio=ratio, special=addresses.align)
        one, other = pair.golden.operation, pair.mine.operation
        if one.is_graph and other.is_graph and len(one.inputs) != len(other.inputs):
            yield from links.inputs(pair.golden, pair.mine, finding)
        for found in quantised.match(pair.golden, pair.mine, finding, pair.rivals):
            if isinstance(found, Match) and not other.is_graph:
                links.note(found)
            yield found
    paired = [{id(pair.golden) for pair in pairs}, {id(pair.mine) for pair in pairs}]
    for each in operations[0]:
        if id(each) not in paired[0]:
            for tensor in each.tensors:
                reason = f"my run has no operation that answers {each.operation.name}"
                yield each.unmatched("golden", tensor, reason)
    for each in operations[1]:
        if id(each) not in paired[1]:
            for tensor in each.tensors:
                reason = f"the golden run has no operation that answers {each.operation.name}"
                yield each.unmatched("mine", tensor, reason)


def _finding(pair: NodePair) -> Finding:
    same = pair.golden.operation.type == pair.mine.operation.type
    work = "same type" if same else f"{pair.mine.operation.type} does the same work"
    if pair.certain:
        return Finding("by_structure", _CERTAIN, f"{work} at the same place in order")
    return Finding("by_structure", _AMBIGUOUS, f"{work}, but others fit as well")
