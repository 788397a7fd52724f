"""Whether two runs were asked the same thing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ait_llm.core.comparison import Comparison, Origin, Problem, Verdict
from ait_llm.program.one_pass import Pass
from ait_llm.program.prompt_difference import prompt_difference

GRAPH_INPUT = "graph input"
_OTHER_INPUT = "other input"
_BEGIN = len("not the same prompt")


def different_prompts(
    comparisons: Sequence[Comparison], pairs: Sequence[tuple[Pass, Pass]]
) -> list[Problem]:
    """The problem that the first passes of a process read prompts of other lengths.

    Where all agrees, what one of them reads more before the others is padding, whatever hides it.

    Args:
        comparisons: of the whole report.
        pairs: golden's and my passes that are compared, in their order.
    """
    failed = any(item.verdict is Verdict.FAIL for item in comparisons)
    known: set[tuple[int, int]] = set()
    for golden, mine in pairs:
        process = mine.device, mine.pid
        if process in known:
            continue
        known.add(process)
        found = prompt_difference(golden, mine)
        if found is not None and (failed or found.is_beginning):
            text = f"not the same prompt, {found.text}"
            if found.is_beginning:
                text += "; if it is read in parts, capture all steps"
            return [Problem("both", text)]
    return []


def behind_prompts(origins: Sequence[Origin], prompts: Sequence[Problem]) -> tuple[Origin, ...]:
    """Origins; one that is another token than golden's says that the prompt before was another.

    Args:
        origins: of the report.
        prompts: of :func:`different_prompts`.
    """
    return tuple(
        replace(each, evidence=f"{each.evidence}; {prompts[0].text}")
        if prompts and each.kind == _OTHER_INPUT and prompts[0].text[:_BEGIN] not in each.evidence
        else each
        for each in origins
    )


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
