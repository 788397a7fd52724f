"""A check held against an earlier report of the same program (``--baseline last.json``)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from ait_llm.core.comparison import Verdict
from ait_llm.errors import FormatError, UsageError
from ait_llm.faults import EXIT_CODE
from ait_llm.formats.opening import read_small
from ait_llm.opcheck.journal import from_record
from ait_llm.opcheck.outcome import FAILING, Checked, FailOn, OpcheckReport
from ait_llm.report.baseline import Against, Row, hold_against, unique_rows
from ait_llm.report.stable_names import process_names

_MAX_BYTES = 1 << 30
_DAMAGED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


class OpcheckBaseline:
    """An earlier report.

    Args:
        path: the report, written with ``--format json``.
        fail_on: the mildest verdict that counts as failed.

    Raises:
        FormatError: it is no such report.
        UsageError: it is of a check that was interrupted.
    """

    def __init__(self, path: Path, fail_on: FailOn = "fail") -> None:
        self.path = str(path)
        self._fail_on = fail_on
        try:
            data = json.loads(read_small(path, _MAX_BYTES))
            items = [from_record(record) for record in data["outputs"]]
            self._standard, self._rerun = str(data["standard"]), str(data["rerun"])
            self._problems = [str(text) for text in data["problems"]]
            partial = bool(data["partial"])
        except _DAMAGED:
            raise FormatError(
                path,
                "is no report of ait llm opcheck",
                "Give one that --format json has written",
            ) from None
        if partial:
            raise UsageError(
                f"{path} is of a check that was interrupted; --baseline takes a whole report"
            )
        self._rows = unique_rows(rows_of(items, fail_on))

    def hold(self, report: OpcheckReport) -> Against:
        """What a report has that is worse than this, known, or mended.

        Raises:
            UsageError: it is of another program, or was made with other options.
        """
        for name, before, now in (
            ("standard", self._standard, report.standard),
            ("rerun", self._rerun, report.rerun),
        ):
            if before != now:
                raise UsageError(
                    f"{self.path} was made with another {name}; give the same, or make a new "
                    "baseline"
                )
        problems = [each.text for each in report.problems]
        rows = unique_rows(rows_of(report.items, self._fail_on))
        return hold_against(self.path, self._rows, rows, self._problems, problems)


def exit_code(report: OpcheckReport, against: Against, *, allow_skip: bool) -> int:
    """What a check with a baseline ends with: only what became worse fails.

    A fault of ait counts whatever the baseline says, and so does a check of nothing or one that was
    interrupted.
    """
    if report.faults:
        return EXIT_CODE
    code = against.exit_code(allow_skip=allow_skip)
    return code or (3 if report.partial or not report.checked else 0)


def rows_of(items: Sequence[Checked], fail_on: FailOn) -> Iterator[Row]:
    """Results by identities that another run shares; with ``fail_on`` they count as failed."""
    processes = process_names((-1, item.device, item.pid) for item in items)
    for item in items:
        process = processes[item.device, item.pid]
        verdict = item.verdict
        if verdict in FAILING[fail_on]:
            verdict = Verdict.FAIL
        elif verdict is Verdict.FAIL:  # --fail-on never
            verdict = Verdict.PASS
        step = f"step {item.step}"
        shape = item.shape or ()
        yield Row(
            (item.op, item.output, step, process),
            (item.op_type, item.dtype, str(shape[-1:])),
            verdict,
            True,
            _excess(item),
            " ".join(filter(None, (item.title, step, process))),
            item.reason,
        )


def _excess(item: Checked) -> float | None:
    """How far beyond its bound it is, by the contract standard; else its largest relative error."""
    worst = item.values.get("worst")
    if isinstance(worst, float | int) and not worst <= 1:
        return float(worst)
    relative = item.max_relative
    return relative if relative is None or not math.isnan(relative) else math.inf
