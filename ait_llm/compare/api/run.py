"""Compare two API-level dumps and write what the manual says."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from ait_llm.compare.api.cells import cells_of
from ait_llm.compare.api.columns import STACK, columns_of
from ait_llm.compare.api.item import NOT_AVAILABLE
from ait_llm.compare.api.measuring import rows_of
from ait_llm.compare.api.outcome import Outcome, PairOutcome
from ait_llm.compare.api.remote import compare_elsewhere
from ait_llm.compare.api.reported import as_judged
from ait_llm.compare.api.row import Row
from ait_llm.compare.api.settings import ApiOptions
from ait_llm.compare.api.settling import settle
from ait_llm.compare.api.sides import ApiPair, pair_sides, problems_of
from ait_llm.compare.api.tables import TableWriter, csv_table, xlsx_table
from ait_llm.compare.resources import without_full_collections
from ait_llm.core.comparison import Report
from ait_llm.dumps.api_order import read_stacks
from ait_llm.engine import Engine
from ait_llm.errors import FormatError
from ait_llm.report.files import make_folder, replacing
from ait_llm.storage import address

FORMATS = {"csv": csv_table, "xlsx": xlsx_table}
OnRow = Callable[[Row], None]


def compare_api_dumps(
    mine: Path,
    golden: Path,
    output: Path,
    stamp: str,
    options: ApiOptions,
    *,
    formats: Sequence[str] = ("csv", "xlsx"),
    on_row: OnRow | None = None,
    engine: Engine | None = None,
    report: Report | None = None,
) -> Outcome:
    """Compare every rank and step that both sides have.

    Args:
        mine, golden: files or folders.
        output: folder of the reports.
        stamp: time in the names of the reports.
        options: settings of the user.
        formats: of the tables.
        on_row: called with every row in the order of the table.
        engine: compares ranks and steps in other processes; see ``ait_llm.engine.open_engine``.
        report: the same two dumps compared as programs, if that was done already.

    Raises:
        FormatError: a file is malformed.
        UsageError: the two sides cannot be compared with each other.
        MissingDependencyError: a package is not installed.
    """
    make_folder(output)
    if engine is not None:
        engine.look_for((address(golden), address(mine)))
    found = pair_sides(mine, golden)
    outcome = Outcome(problems=list(found.problems))
    if engine is not None and engine.remote:
        outcome.pairs += compare_elsewhere(
            found.pairs,
            compare_pair,
            engine,
            mine,
            golden,
            output,
            stamp,
            options,
            formats,
            on_row,
        )
    else:
        with without_full_collections():
            for pair in found.pairs:
                outcome.pairs.append(compare_pair(pair, output, stamp, options, formats, on_row))
    settle(outcome, found.pairs, mine, golden, options, report)
    if report is not None:
        outcome.report = as_judged(report, found.pairs, outcome)
    if options.advise and formats:
        for pair, result in zip(found.pairs, outcome.pairs, strict=True):
            if not result.files:  # a rank that was lost
                continue
            path = output / f"advisor{pair.suffix}_{stamp}.txt"
            with replacing(path) as file:
                file.write(str(result.advice))
            result.files.append(path)
    return outcome


def compare_pair(
    pair: ApiPair,
    output: Path,
    stamp: str,
    options: ApiOptions,
    formats: Sequence[str] = ("csv", "xlsx"),
    on_row: OnRow | None = None,
) -> PairOutcome:
    """Compare one file with one file; see :func:`compare_api_dumps`."""
    result = PairOutcome(pair.suffix, pair.mode, problems=problems_of(pair))
    stacks = _Stacks(pair, options)
    columns = columns_of(
        pair.mode,
        options.style,
        stack=stacks.shown,
        custom=tuple(metric.name for metric in options.custom),
    )
    kind = "debug_compare_result" if pair.mine.is_debug else "compare_result"
    result.files += [output / f"{kind}{pair.suffix}_{stamp}.{name}" for name in formats]
    with contextlib.ExitStack() as stack:
        groups = stack.enter_context(rows_of(pair, options, result.problems.append))
        tables: list[TableWriter] = [
            stack.enter_context(FORMATS[name](path, columns))
            for name, path in zip(formats, result.files, strict=True)
        ]
        for line, (row, frames) in enumerate(_with_stacks(groups, stacks)):
            cells = cells_of(row, pair.mode, options.style, frames)
            for table in tables:
                table.add(cells, row.colour)
            result.take(line, row)
            if on_row is not None:
                on_row(row)
    return result


def _with_stacks(groups: Iterable[list[Row]], stacks: _Stacks) -> Iterator[tuple[Row, str | None]]:
    """Rows, the first of each record with its call stack."""
    for rows in groups:
        previous = ""
        for row in rows:
            record = row.mine.record if row.mine is not None else ""
            yield row, stacks.cell(record if record != previous else "")
            previous = record


class _Stacks:
    """Cells of the column of call stacks; the file is read when the first is asked for."""

    def __init__(self, pair: ApiPair, options: ApiOptions) -> None:
        self._path = options.stack_path or pair.mine.place.folder / "stack.json"
        if options.stack_path is not None and not self._path.exists():
            raise FormatError(self._path, "no such file")
        wanted = self._path.exists() if options.stack is None else options.stack
        self.shown = wanted and not pair.mine.is_debug
        self._texts: dict[tuple[str, ...], str] = {}

    @cached_property
    def _frames(self) -> Mapping[str, tuple[str, ...]]:
        return read_stacks(self._path)

    def cell(self, record: str) -> str | None:
        """Frames of a record; ``N/A`` without a record; None without the column."""
        if not self.shown:
            return None
        frames = self._frames.get(record) if record else None
        if not frames:
            return NOT_AVAILABLE
        text = self._texts.get(frames)
        if text is None:
            text = self._texts[frames] = str(list(frames))
        return text


__all__ = ["FORMATS", "STACK", "compare_api_dumps", "compare_pair"]
