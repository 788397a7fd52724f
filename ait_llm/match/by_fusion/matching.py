"""Operators of the graph engine against FX nodes, or against another run of the graph engine."""

from __future__ import annotations

from collections.abc import Iterator

from ait_llm.match.by_fusion.ge_fx import GeFxMatching
from ait_llm.match.by_fusion.ge_ge import GeGeMatching
from ait_llm.match.model import Match, MatchOptions, Unmatched, matchers
from ait_llm.program.one_pass import Pass


@matchers.register("by_fusion")
def by_fusion(golden: Pass, mine: Pass, options: MatchOptions) -> Iterator[Match | Unmatched]:
    """Tensors that are one tensor of the graph before fusion, whoever computed them."""
    if golden.traits.fused and mine.traits.fused:
        yield from GeGeMatching(golden, mine).matches()
    elif golden.traits.fused:
        yield from GeFxMatching(golden, mine, "golden").matches()
    else:
        yield from GeFxMatching(mine, golden, "mine").matches()
