"""A healthy pair, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from shutil import rmtree

from click.testing import CliRunner

from ait_llm.cli.main import ait
from ait_llm.compare import compare
from ait_llm.core.comparison import Comparison, Report, Verdict
from ait_llm.opcheck.pipeline import opcheck

Source = Callable[[Path], Path]
"""Makes a capture in a folder, or finds it there; the dump."""

_SHOWN = 3


@dataclass(frozen=True)
class Healthy:
    """Two runs of one model.

    Attributes:
        name: ``kind/model/what differs``.
        golden, mine: the captures.
        alone: whether each side is also judged by itself, from its own inputs and weights.
        table: it is also compared as a table of API calls, by the command.
    """

    name: str
    golden: Source
    mine: Source
    alone: bool = False
    table: bool = False


@dataclass(frozen=True)
class Alone:
    """What ``opcheck`` says about one dump.

    Attributes:
        checked: outputs with numbers behind their verdict.
        failed: of them, with a FAIL or an ERROR.
        details: the first of those.
    """

    checked: int
    failed: int
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What is said about a pair.

    Attributes:
        code: exit code of the comparison; the worse one where it is made in two ways.
        passed, failed, missing, not_comparable: tensors; ERROR counts as failed.
        accused: operators in which an error is said to start.
        alone: what is said about each side by itself.
        details: what failed first, and what decided.
    """

    code: int
    passed: int
    failed: int
    missing: int
    not_comparable: int
    accused: tuple[str, ...] = ()
    alone: tuple[Alone, ...] = ()
    details: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_alarm(self) -> bool:
        """True if something is said to be wrong, though nothing is."""
        wrong = self.failed or self.accused or any(each.failed for each in self.alone)
        return bool(wrong) or self.code == 1


def kept(name: str, make: Callable[[Path], None], folder: Path) -> Path:
    """A capture that is made once: ``make`` gets the path of the dump."""
    place = folder / name
    if not (place / "done").exists():
        rmtree(place, ignore_errors=True)  # what an interrupted run left
        place.mkdir(parents=True)
        make(place / "dump")
        (place / "done").touch()
    return place / "dump"


def judge(pair: Healthy, folder: Path) -> Outcome:
    """Compare a pair, and judge its sides where that is wanted.

    Args:
        pair: the two runs.
        folder: where captures are kept for other pairs.
    """
    golden, mine = pair.golden(folder), pair.mine(folder)
    report = compare(golden, mine, jobs=1)
    code = report.exit_code()
    table = _as_table(golden, mine, folder) if pair.table else 0
    counts = report.counts
    return Outcome(
        code if code else table,
        counts[Verdict.PASS],
        counts[Verdict.FAIL] + counts[Verdict.ERROR],
        report.missing,
        report.not_comparable,
        tuple(origin.op for origin in report.origins),
        tuple(_alone(side) for side in dict.fromkeys((golden, mine)) if pair.alone),
        (*_details(report), *([f"as a table: exit code {table}"] if table else [])),
    )


def _as_table(golden: Path, mine: Path, folder: Path) -> int:
    words = ["llm", "compare", "-gp", golden, "-mp", mine, "-o", folder / "tables", "-j", "1"]
    result = CliRunner().invoke(ait, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code


@cache  # a golden run answers several others
def _alone(dump: Path) -> Alone:
    report = opcheck(dump, jobs=1)
    bad = [each for each in report.items if each.verdict in (Verdict.FAIL, Verdict.ERROR)]
    lines = tuple(f"alone: {each.title}: {each.reason}" for each in bad[:_SHOWN])
    return Alone(report.checked, len(bad), lines)


def _details(report: Report) -> list[str]:
    lines = [f"decides: {each.text}" for each in report.problems if each.decides]
    lines += [f"accused: {each.op}: {each.evidence}" for each in report.origins]
    for verdict in (Verdict.FAIL, Verdict.ERROR):
        found = list(report.with_verdict(verdict))
        lines += [f"{verdict.value}: {_told(each)}" for each in found[:_SHOWN]]
    missing = [each for each in report.with_verdict(Verdict.SKIPPED) if each.comparable]
    return lines + [f"missing: {_told(each)}" for each in missing[:_SHOWN]]


def _told(item: Comparison) -> str:
    record = item.record
    return f"{record.title} {record.dtype} {list(record.shape or ())}: {item.reason}"
