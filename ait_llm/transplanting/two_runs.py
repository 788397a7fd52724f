"""Two captured runs: which of their values answer each other, and how far apart they end."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ait_llm.compare.pipeline import FoundMatches, compare
from ait_llm.core.comparison import Verdict
from ait_llm.program.token_ids import vocabulary
from ait_llm.transplanting.answer import Answer, Damage, find_answer
from ait_llm.transplanting.places import Place, find_places


@dataclass(slots=True)
class TwoRuns:
    """A trusted run and one under suspicion.

    Attributes:
        golden, mine: their captures, with values.
        notes: what else must be known, a sentence each.
        found: values of mine that golden has, too; this and what follows after :meth:`before`.
        differs: something differs by more than rounding.
        answer: what the programs answer; None if there is nothing.
    """

    golden: Path
    mine: Path
    notes: list[str] = field(default_factory=list, init=False)
    found: list[Place] = field(default_factory=list, init=False)
    differs: bool = field(default=False, init=False)
    answer: Answer | None = field(default=None, init=False)

    @property
    def places(self) -> int:
        """How many values of mine golden has, too."""
        return len(self.found)

    def before(self) -> Damage | str:
        """How far mine is from golden as it is; or a sentence why that cannot be told.

        Raises:
            FormatError, UsageError: the captures cannot be compared.
        """
        matches, self.differs = matched(self.golden, self.mine)
        self.found = find_places(matches)
        processes = {place.process for place in self.found}
        if len(processes) > 1:
            return (
                f"mine runs its model in {len(processes)} processes, and values of one can be "
                "changed; run it on one rank"
            )
        self.answer = find_answer(self.found, widths_of(matches))
        if self.answer is None:
            return (
                "no answer of mine has a counterpart in golden; capture the outermost module of "
                "both with its outputs"
            )
        return self.answer.damage(self.mine)


def matched(golden: Path, mine: Path) -> tuple[FoundMatches, bool]:
    """What answers each other in two captures, and whether something fails.

    Raises:
        FormatError, UsageError: they cannot be compared.
    """
    matches: list[FoundMatches] = []
    report = compare(golden, mine, on_matches=matches.append, dataflow=False)
    fails = any(each.verdict is Verdict.FAIL for each in report.comparisons)
    return [each for some in matches for each in some], fails


def widths_of(matches: FoundMatches) -> set[int | None]:
    """How many tokens the programs know, where that shows."""
    return {vocabulary(run) for golden, mine, _ in matches for run in (golden, mine)}
