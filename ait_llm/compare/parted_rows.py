"""What cannot be held to golden in a pass in which some requests read other tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ait_llm.core.comparison import Comparison, Verdict
from ait_llm.match.model import Match, Unmatched
from ait_llm.match.pairing import RunPair
from ait_llm.program.one_pass import LeftOut


def unknown_rows(
    items: Sequence[Match | Unmatched], sources: Sequence[tuple[int, int]], pairs: Sequence[RunPair]
) -> dict[int, LeftOut]:
    """Places of items that may have rows of requests that parted, and nobody knows where.

    Args:
        items: what is compared.
        sources: number of the pair of passes of each, and its place there.
        pairs: of passes.
    """
    return {
        place: left_out
        for place, (item, (number, _)) in enumerate(zip(items, sources, strict=True))
        if (left_out := pairs[number].mine.left_out) is not None
        and not (isinstance(item, Match) and item.without)
    }


def without_parted(
    comparisons: Sequence[Comparison], unknown: Mapping[int, LeftOut], places: Sequence[int]
) -> list[Comparison]:
    """The comparisons, where those of unknown rows decide nothing unless they agree anyway.

    Args:
        comparisons: that were measured.
        unknown: as :func:`unknown_rows` found them.
        places: of the comparisons among the items.
    """
    return [
        _not_comparable(comparison, unknown[place])
        if place in unknown and comparison.verdict is not Verdict.PASS
        else comparison
        for place, comparison in zip(places, comparisons, strict=True)
    ]


def _not_comparable(comparison: Comparison, left_out: LeftOut) -> Comparison:
    requests = ", ".join(map(str, sorted(left_out.requests)))
    which = "request" if len(left_out.requests) == 1 else "requests"
    return replace(
        comparison,
        verdict=Verdict.SKIPPED,
        comparable=False,
        reason=f"{which} {requests} read other tokens, and their rows are not known here",
    )
