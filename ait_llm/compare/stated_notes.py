"""What defines operations otherwise although no origin says so: a note, never an accusation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ait_llm.core.comparison import Comparison, Origin, Problem, Verdict
from ait_llm.core.definition import DefinitionDifference
from ait_llm.judge.definition_pairs import DefinitionsOfPass

_TOLD = 3


def stated_notes(
    comparisons: Sequence[Comparison],
    definitions: Sequence[DefinitionsOfPass],
    origins: Sequence[Origin],
) -> list[Problem]:
    """A note about definitions that differ and are not the evidence of an origin.

    Args:
        comparisons: of the whole report.
        definitions: of all pairs of passes.
        origins: that were found.
    """
    said = "\n".join(origin.evidence for origin in origins)
    failed = any(item.verdict is Verdict.FAIL for item in comparisons)
    texts = [text for text in dict.fromkeys(_definitions(definitions)) if text not in said]
    if not texts:
        return []
    effect = "differ elsewhere, too" if failed else "differ, and all that was compared agrees"
    return [Problem("both", f"definitions {effect}: {_told(texts)}", decides=False)]


def _told(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - _TOLD} more" if len(texts) > _TOLD else ""
    return "; ".join(texts[:_TOLD]) + more


def _definitions(definitions: Sequence[DefinitionsOfPass]) -> Iterator[str]:
    """Differences between modules, without entries of a configuration that a module repeats."""
    for each in definitions:
        known = list(each.of_modules())
        values = {_values(one) for one in known if not one.name.startswith("config.")}
        for one in known:
            if not one.name.startswith("config.") or _values(one) not in values:
                yield one.text


def _values(difference: DefinitionDifference) -> tuple[str, str]:
    return str(difference.golden), str(difference.mine)
