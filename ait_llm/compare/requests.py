"""Whether two runs of a compiled model were asked the same thing."""

from __future__ import annotations

from collections.abc import Sequence

from ait_llm.core.comparison import Comparison, Problem, Verdict

GRAPH_INPUT = "graph input"


def different_requests(comparisons: Sequence[Comparison]) -> list[Problem]:
    """The problem that token ids or positions differ; empty if they agree.

    Ids of a later token that differ after a wrong result are what the model answered, not what it
    was asked. So only those count before which nothing failed.

    Args:
        comparisons: of the whole report.
    """
    failed = [item for item in comparisons if item.verdict is Verdict.FAIL and item.mine]
    first = min((item.record.step for item in failed), default=0)
    for item in failed:
        dtype = item.record.dtype
        is_integer = dtype is not None and not dtype.is_floating
        if item.record.step == first and item.relation == GRAPH_INPUT and is_integer:
            text = (
                f"inputs differ: not the same request; {item.record.title} of token {first} is "
                "not that of golden"
            )
            return [Problem("both", text)]
    return []
