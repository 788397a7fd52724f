"""Comparisons held against an earlier report of the same program (``--baseline last.jsonl``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ait_llm.core.comparison import Comparison, Report
from ait_llm.errors import UsageError
from ait_llm.faults import EXIT_CODE
from ait_llm.report.baseline.changes import Against, hold_against
from ait_llm.report.baseline.rows import Row, unique_rows
from ait_llm.report.jsonl import read_jsonl
from ait_llm.report.jsonl_records import plain
from ait_llm.report.stable_names import process_names
from ait_llm.report.wording import why_not

_DECIDING = ("tolerance", "weights")
"""Options without which verdicts cannot be held against each other."""

Names = Mapping[tuple[int, int], str]


class Baseline:
    """An earlier report.

    Args:
        path: the report, written with ``--format jsonl``.

    Raises:
        FormatError: it is no such report.
        UsageError: it is of a comparison that was interrupted.
    """

    def __init__(self, path: Path) -> None:
        report = read_jsonl(path)
        self.path = str(path)
        if report.partial:
            raise UsageError(
                f"{path} is of a comparison that was interrupted; --baseline takes a whole report"
            )
        self._scenario = report.scenario
        self._options = {name: report.options.get(name) for name in _DECIDING}
        self._rows = unique_rows(rows_of(report))
        self._problems = [each.text for each in report.problems if each.decides]

    def check(self, started: Report) -> None:
        """Refuse a comparison of another kind before it is made.

        Raises:
            UsageError: it has another scenario or other limits.
        """
        if started.scenario != self._scenario:
            raise UsageError(
                f"{self.path} is no baseline of this comparison: it compares {self._scenario}, "
                f"this one {started.scenario}"
            )
        now = plain(started.options)
        for name, value in self._options.items():
            if now.get(name) != value:
                raise UsageError(
                    f"{self.path} was made with another {name}; give the same, or make a new "
                    "baseline"
                )

    def hold(self, report: Report, *, strict: bool = False) -> Against:
        """What a report has that is worse than this, known, or mended.

        Raises:
            UsageError: it is of another program.
        """
        problems = [each.text for each in report.problems if each.decides]
        rows = unique_rows(rows_of(report))
        return hold_against(self.path, self._rows, rows, self._problems, problems, strict=strict)


def exit_code(report: Report, against: Against, *, allow_skip: bool) -> int:
    """What a comparison with a baseline ends with: only what became worse fails.

    A fault of ait counts whatever the baseline says, and so does a comparison of nothing or one
    that was interrupted.
    """
    if report.faults:
        return EXIT_CODE
    code = against.exit_code(allow_skip=allow_skip)
    return code or (3 if report.partial or not report.compared else 0)


def rows_of(report: Report) -> Iterator[Row]:
    """The comparisons of a report by identities that another run shares."""
    golden, mine = (_names(report, mine=side) for side in (False, True))
    for item in report.comparisons:
        yield _row(item, golden if item.mine is None else mine)


def _names(report: Report, *, mine: bool) -> Names:
    sides = (item.mine if mine else item.golden for item in report.comparisons)
    return process_names((one.rank, one.device, one.pid) for one in sides if one is not None)


def _row(item: Comparison, names: Names) -> Row:
    record = item.record
    process = names[record.device, record.pid]
    side = "golden" if item.mine is None else "mine"
    step = "" if record.role not in ("in", "out") else f"step {record.step}"
    call = f"call {record.call}" if record.call else ""
    place = " ".join(filter(None, (record.title, step, call, process)))
    shape = record.shape or ()
    return Row(
        (record.op, record.name, record.role, side, step, call, process, record.graph),
        (record.op_type, "" if record.dtype is None else record.dtype.label, str(shape[-1:])),
        item.verdict,
        item.comparable,
        _excess(item),
        place,
        why_not(item),
    )


def _excess(item: Comparison) -> float | None:
    """The error in units of its limit, by the limit that it is beyond by most."""
    shares = [
        item.needed[name] / limit if limit else float("inf") if item.needed[name] else 0.0
        for name, limit in item.tolerance.items()
        if name in item.needed
    ]
    return max(shares, default=None)
