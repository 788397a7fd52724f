"""Failures that follow from a choice that both runs made rightly."""

from __future__ import annotations

from collections.abc import Mapping

from ait_llm.compare.origin_values import RunValues
from ait_llm.judge.choices import Chosen, OtherChoice, other_choice
from ait_llm.match.model import Match


def excused(values: RunValues, matches: Mapping[int, Match]) -> tuple[dict[int, str], list[str]]:
    """Comparisons of a run that cannot be held to golden, because other experts were chosen.

    Each failing choice is looked at, in execution order, with what was computed from it. What is
    excused counts as not compared from then on.

    Args:
        values: of the run.
        matches: of the comparisons that failed, by their index.

    Returns:
        The reasons by index of the comparison, and a sentence for each choice.
    """
    reasons: dict[int, str] = {}
    told: list[str] = []
    failed = values.failed()
    for place, value in enumerate(failed):
        known = values.evidence.get(value)
        match = next((matches[i] for i in known.failed if i in matches), None) if known else None
        if match is None or match.golden.views or match.mine.views:
            continue
        found = other_choice(
            Chosen(match.golden.operation, match.golden.tensor),
            Chosen(match.mine.operation, match.mine.tensor),
            match.rounded_to,
        )
        if found is None:
            continue
        name = match.mine.operation.name
        words = _words(found)
        told.append(
            f"step {values.run.step}: {name}: {words}; what differs after it is not compared, and "
            "--deep computes it again from its own inputs"
        )
        for number in failed[place:]:
            reasons |= dict.fromkeys(values.forget(number), f"{name}: {words}")
    return reasons, told


def _words(found: OtherChoice) -> str:
    what = f"{found.rows} of {found.total} rows chose otherwise"
    if not found.golden:
        return f"{what} in another order, by equal scores within rounding"
    one, other = (", ".join(map(str, side)) for side in (found.golden, found.mine))
    return (
        f"{what}, row {found.row} {other} instead of {one}, whose scores are {found.margin:.2g} "
        "apart; all scores agree, and each side took its highest"
    )
