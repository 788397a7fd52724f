"""Compare two runs on different numbers of ranks and write what was found."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ait_llm.compare.api.columns import Mode
from ait_llm.compare.api.first_difference import FirstDifference
from ait_llm.compare.api.run import FORMATS
from ait_llm.compare.api.shards.communication import COMMUNICATION, communication_rows
from ait_llm.compare.api.shards.comparing import Comparer
from ait_llm.compare.api.shards.order import Order
from ait_llm.compare.api.shards.records import Ranks, match_calls
from ait_llm.compare.api.shards.row import ShardRow, cells_of, columns_of
from ait_llm.compare.api.shards.saved import SavedLayouts, read_layouts, write_layouts
from ait_llm.compare.api.sides import ApiSide, common_mode, sides_of
from ait_llm.core.comparison import Verdict
from ait_llm.errors import UsageError
from ait_llm.report.files import make_folder

OnRow = Callable[[ShardRow], None]


@dataclass(slots=True)
class ShardOutcome:
    """What became of one step.

    Attributes:
        step: its number.
        mode: what was compared.
        ranks: of golden and of mine.
        counts: tensors and scalars that both sides have, by verdict.
        layouts: how often each layout was found.
        reasons: why what both sides have was not compared.
        communication: calls between ranks, listed only.
        extra: other calls that only the side with more ranks makes, listed only.
        missing: calls that only the side with fewer ranks makes.
        first: the first row that fails.
        first_differences: with ``-da``, where ranks first differ.
        problems: what could not be read.
        files: tables and the layouts.
    """

    step: int
    mode: Mode
    ranks: tuple[int, int]
    counts: Counter[Verdict] = field(default_factory=Counter)
    layouts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    communication: int = 0
    extra: int = 0
    missing: int = 0
    first: ShardRow | None = None
    first_differences: list[FirstDifference] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    def take(self, row: ShardRow) -> None:
        """Count a row of a call that both sides make, or a failing one of communication."""
        self.counts[row.verdict] += 1
        if row.verdict is Verdict.SKIPPED:
            self.reasons[row.reason] += 1
        elif row.layout:
            self.layouts[row.layout] += 1
        if row.verdict is Verdict.FAIL and self.first is None:
            self.first = row

    def exit_code(self, *, allow_skip: bool = False) -> int:
        """0 all compared and right, 1 something is wrong, 3 something was not compared."""
        if self.counts[Verdict.FAIL]:
            return 1
        incomplete = self.counts[Verdict.SKIPPED] or self.missing or self.problems
        nothing = not self.counts[Verdict.PASS]
        return 3 if nothing or (incomplete and not allow_skip) else 0


def compare_ranks(
    mine: Path,
    golden: Path,
    output: Path,
    stamp: str,
    *,
    layout_file: Path | None = None,
    formats: Sequence[str] = ("csv", "xlsx"),
    on_row: OnRow | None = None,
) -> list[ShardOutcome]:
    """Compare runs on different numbers of ranks, step by step.

    Writes ``compare_result_layout[_step{N}]_{stamp}`` and ``layout[_step{N}]_{stamp}.yaml``.

    Args:
        mine, golden: folders of a rank, a step or a run.
        output: folder of the results.
        stamp: time in their names.
        layout_file: layouts that the user gives.
        formats: of the tables.
        on_row: called with every row.

    Raises:
        FormatError: a file is malformed.
        UsageError: the sides cannot be compared with each other.
    """
    make_folder(output)
    given = SavedLayouts({}) if layout_file is None else read_layouts(layout_file)
    ours, theirs = sides_of(mine), sides_of(golden)
    steps = sorted(ours.keys() & theirs.keys())
    if len(ours) == len(theirs) == 1:
        steps = list(ours)
        theirs = {steps[0]: next(iter(theirs.values()))}
    if not steps:
        raise UsageError(f"{mine} and {golden}: no step is in both; give folders of a step")
    found = []
    for step in steps:
        suffix = f"_step{step}" if len(steps) > 1 else ""
        outcome = _compare_step(
            ours[step], theirs[step], step, given, on_row, formats, (output, f"{suffix}_{stamp}")
        )
        for side, one, other in (("mine", ours, theirs), ("golden", theirs, ours)):
            outcome.problems += [f"only {side} has step {s}" for s in one if s not in other]
        found.append(outcome)
    return found


def _compare_step(
    mine: Sequence[ApiSide],
    golden: Sequence[ApiSide],
    step: int,
    given: SavedLayouts,
    on_row: OnRow | None,
    formats: Sequence[str],
    target: tuple[Path, str],
) -> ShardOutcome:
    mode = common_mode(mine[0], golden[0])
    outcome = ShardOutcome(step, mode, (len(golden), len(mine)))
    few_is_golden = len(golden) <= len(mine)
    few, many = (golden, mine) if few_is_golden else (mine, golden)
    comparer = Comparer(Ranks(few), Ranks(many), mode, few_is_golden, given)
    output, suffix = target
    outcome.files += [output / f"compare_result_layout{suffix}.{name}" for name in formats]
    order = Order(comparer.many)
    with contextlib.ExitStack() as stack:
        tables = [
            stack.enter_context(FORMATS[name](path, columns_of(mode)))
            for name, path in zip(formats, outcome.files, strict=True)
        ]
        for row in _rows(comparer, outcome, order):
            cells = cells_of(row, mode)
            for table in tables:
                table.add(cells, "red" if row.verdict is Verdict.FAIL else "")
            if on_row is not None:
                on_row(row)
    outcome.problems += [*comparer.few.problems, *comparer.many.problems]
    outcome.first_differences = order.first_differences()
    path = output / f"layout{suffix}.yaml"
    write_layouts(path, comparer.found)
    outcome.files.append(path)
    return outcome


def _rows(comparer: Comparer, outcome: ShardOutcome, order: Order) -> Iterator[ShardRow]:
    """All rows in the order of the side with more ranks, then what only the other has."""
    names = comparer.many.names
    calls = match_calls(comparer.few.names, names)
    partner = {many: few for few, many in calls.pairs}
    communication = frozenset(calls.communication)
    before: str | None = None
    for name in names:
        if name in partner:
            rows = list(comparer.rows(partner[name], name))
            for row in rows:
                outcome.take(row)
        elif name in communication:
            rows = list(communication_rows(comparer, name, before))
            outcome.communication += 1
            for row in rows:
                if row.reason != COMMUNICATION:
                    outcome.take(row)
        else:
            rows = list(comparer.alone(name, few=False))
            outcome.extra += 1
        order.add(name, rows)
        before = name
        yield from rows
    for name in calls.few_only:
        outcome.missing += 1
        yield from comparer.alone(name, few=True)
