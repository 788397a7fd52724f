"""What became of a comparison of API-level dumps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ait_llm.compare.api.advisor import Advice, advise, nothing_to_advise
from ait_llm.compare.api.columns import Mode
from ait_llm.compare.api.item import Item
from ait_llm.compare.api.row import Row
from ait_llm.compare.api.verdicts import Judged
from ait_llm.core.comparison import Report, Verdict

MOST_DOUBTS = 100_000  # rows of one rank that are kept because they did not pass


class Doubt(NamedTuple):
    """A row that did not pass.

    Attributes:
        line: its 0-based number in the table.
        mine, golden: the items; one of them may be missing.
        judged: what it counts as.
    """

    line: int
    mine: Item | None
    golden: Item | None
    judged: Judged

    @property
    def item(self) -> Item:
        """My item, or golden's where mine is missing."""
        item = self.mine if self.mine is not None else self.golden
        assert item is not None
        return item

    @property
    def fails(self) -> bool:
        """True if the two differ by more than rounding permits."""
        return self.judged.verdict is Verdict.FAIL


@dataclass(slots=True)
class PairOutcome:
    """What became of one rank.

    Attributes:
        suffix: ``_rank0``, or empty.
        mode: what was compared.
        counts: rows by verdict.
        incomparable: rows that mean nothing on either side.
        doubts: rows that did not pass, in their order; the first :data:`MOST_DOUBTS`.
        problems: what could not be read.
        blamed: the row to look at first; None if none fails.
        evidence: why, in one sentence, where an operation was computed again; else its reason.
        files: reports.
    """

    suffix: str
    mode: Mode
    counts: Counter[Verdict] = field(default_factory=Counter)
    incomparable: int = 0
    doubts: list[Doubt] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    blamed: Doubt | None = None
    evidence: str = ""
    files: list[Path] = field(default_factory=list)

    def take(self, line: int, row: Row) -> None:
        """Count a row.

        Args:
            line: its 0-based number in the table.
            row: the row.
        """
        judged = row.judged
        if judged.verdict is Verdict.PASS:
            self.counts[Verdict.PASS] += 1
            return
        doubt = Doubt(line, row.mine, row.golden, judged)
        if self.blamed is None and doubt.fails:
            self.blame(doubt, judged.reason)
        if judged.comparable:
            self.counts[judged.verdict] += 1
        else:
            self.incomparable += 1
        if len(self.doubts) < MOST_DOUBTS:
            self.doubts.append(doubt)

    def blame(self, doubt: Doubt | None, evidence: str) -> None:
        """Say which row is to be looked at first, and why."""
        self.blamed, self.evidence = doubt, evidence

    def settle(self, doubts: Iterable[Doubt]) -> None:
        """Count rows anew whose verdict has changed: all doubts, in their order."""
        settled = list(doubts)
        for before, after in zip(self.doubts, settled, strict=True):
            for judged, number in ((before.judged, -1), (after.judged, 1)):
                if judged.comparable:
                    self.counts[judged.verdict] += number
                else:
                    self.incomparable += number
        self.doubts = settled

    @property
    def reasons(self) -> Counter[str]:
        """Why rows were not compared that should have been."""
        return Counter(
            doubt.judged.reason
            for doubt in self.doubts
            if doubt.judged.verdict is Verdict.SKIPPED and doubt.judged.comparable
        )

    @property
    def advice(self) -> Advice:
        """Where to look first, in the words of the manual."""
        if self.blamed is None:
            return nothing_to_advise()
        item = self.blamed.item
        return advise(self.blamed.line, item.name, is_output=item.state == "output")


@dataclass(slots=True)
class Outcome:
    """What became of all ranks.

    Attributes:
        pairs: by rank.
        problems: ranks that only one side has, and what else is missing.
        notes: what is to be known of the verdicts; decides nothing.
        files: reports on all ranks together.
        report: both dumps compared as programs, with the verdicts of the rows; None where nobody
            asked for it.
    """

    pairs: list[PairOutcome] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    report: Report | None = None

    @property
    def counts(self) -> Counter[Verdict]:
        """Rows of all ranks by verdict."""
        return sum((pair.counts for pair in self.pairs), Counter())

    @property
    def is_clean(self) -> bool:
        """True if every row passed and nothing is missing."""
        return not self.problems and not any(pair.doubts or pair.problems for pair in self.pairs)

    def exit_code(self, *, allow_skip: bool = False, strict: bool = False) -> int:
        """0 all compared and right, 1 something is wrong, 3 something was not compared.

        Args:
            allow_skip: what was not compared does not count; a comparison of nothing still does.
            strict: what means nothing on either side counts as not compared.
        """
        counts = self.counts
        if counts[Verdict.FAIL]:
            return 1
        missing = bool(
            counts[Verdict.SKIPPED] or self.problems or any(pair.problems for pair in self.pairs)
        )
        if not counts[Verdict.PASS] or (missing and not allow_skip):
            return 3
        return 3 if strict and any(pair.incomparable for pair in self.pairs) else 0
