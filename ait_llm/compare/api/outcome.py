"""What became of a comparison of API-level dumps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ait_llm.compare.api.advisor import Advice, advise, nothing_to_advise
from ait_llm.compare.api.columns import Mode, Style
from ait_llm.compare.api.item import NO_FILE
from ait_llm.compare.api.manual_results import (
    DIFFERENT,
    NOT_REACHED,
    UNMATCHED_SHAPE,
    WARNING,
)
from ait_llm.compare.api.row import Row
from ait_llm.core.comparison import Verdict

_FAILED = frozenset({WARNING, NOT_REACHED, UNMATCHED_SHAPE, DIFFERENT, "error"})


@dataclass(slots=True)
class PairOutcome:
    """What became of one rank.

    Attributes:
        suffix: ``_rank0``, or empty.
        mode: what was compared.
        counts: rows by verdict.
        reasons: rows that were not compared, by reason.
        problems: what could not be read.
        advice: where to look first.
        first: the first row that fails.
        files: reports.
    """

    suffix: str
    mode: Mode
    counts: Counter[Verdict] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    advice: Advice = field(default_factory=nothing_to_advise)
    first: Row | None = None
    files: list[Path] = field(default_factory=list)

    def take(self, line: int, row: Row, style: Style) -> None:
        """Count a row.

        Args:
            line: its 0-based number in the table.
            row: the row.
            style: whose results it has.
        """
        verdict, reason = verdict_of(row, self.mode, style)
        self.counts[verdict] += 1
        if verdict is Verdict.SKIPPED:
            self.reasons[reason] += 1
        elif verdict is Verdict.FAIL and self.first is None:
            self.first = row
            self.advice = advise(line, row)


@dataclass(slots=True)
class Outcome:
    """What became of all ranks.

    Attributes:
        pairs: by rank.
        problems: ranks that only one side has, and what else is missing.
        files: reports on all ranks together.
    """

    pairs: list[PairOutcome] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    def exit_code(self, *, allow_skip: bool = False) -> int:
        """0 all compared and right, 1 something is wrong, 3 something was not compared."""
        counts: Counter[Verdict] = Counter()
        for pair in self.pairs:
            counts += pair.counts
        if counts[Verdict.FAIL]:
            return 1
        missing = counts[Verdict.SKIPPED] or any(pair.problems for pair in self.pairs)
        nothing = not counts[Verdict.PASS]
        return 3 if nothing or ((missing or self.problems) and not allow_skip) else 0


def verdict_of(row: Row, mode: Mode, style: Style) -> tuple[Verdict, str]:
    """Whether a row counts as right, wrong or not compared, and why not."""
    if row.mine is None or row.golden is None:
        side, name = ("golden", row.item) if row.mine is None else ("mine", row.item)
        return (
            Verdict.SKIPPED,
            f"only {side} has it" if name.is_tensor else f"scalar of {side} only",
        )
    if row.result in _FAILED:
        return Verdict.FAIL, ""
    if mode == "tensor" and row.mine.is_tensor and row.result in ("None", "warning"):
        if NO_FILE in (row.mine.data_name, row.golden.data_name):
            empty = row.mine.shape == row.golden.shape and "0" in row.mine.shape.strip("[]").split(
                ", "
            )
            return (Verdict.PASS, "") if empty else (Verdict.SKIPPED, "its values were not saved")
        if row.notes:
            return Verdict.SKIPPED, row.notes[0]
    if mode == "tensor" and not row.mine.is_tensor:
        same = str(row.mine.statistics) == str(row.golden.statistics)
        return (Verdict.PASS, "") if same else (Verdict.FAIL, "")
    return Verdict.PASS, ""
