"""The runs of a program, without a change and with each of them."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ait_llm.compare.pipeline import compare
from ait_llm.core import StepRange
from ait_llm.dump.changes.catalogue import CHANGES, VARIABLE, Change, NotPossibleError
from ait_llm.dump.changes.ranks import on_ranks
from ait_llm.dump.inject.channel import Report
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.torch_run import SAME_PASSES, plan_torch_dump, run_torch_dump
from ait_llm.dump.torch_summary import TorchSummary
from ait_llm.errors import AitError
from ait_llm.formats.writing import new_file
from ait_llm.invariance.heard import Heard
from ait_llm.invariance.judging import judged
from ait_llm.invariance.result import InvariantResult, Outcome
from ait_llm.report.writing import write_reports

PLAIN = "plain"
_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
_OPERATORS = "torch-op"
_FIRST_STEPS = StepRange(((0, 3),))
_SKIPPED = "the same run again differs already, so that no change can be told from chance"


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for.

    Attributes:
        words: the program and its arguments.
        folder: where everything is written; it does not exist, or is empty.
        changes: names, in the order in which they are made.
        types: what is captured, as ``ait llm dump --type`` calls it.
        steps: executions of the model that are looked at.
        keep: keep the runs that show nothing, too.
        formats: of the reports of runs that show something.
    """

    words: tuple[str, ...]
    folder: Path
    changes: tuple[str, ...] = tuple(CHANGES)
    types: tuple[str, ...] = ("torch", "torch-op")
    steps: StepRange = _FIRST_STEPS
    keep: bool = False
    formats: tuple[str, ...] = ("html",)


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the program.

    Attributes:
        summary: what was captured.
        heard: what its changed calls told.
    """

    summary: TorchSummary
    heard: Heard


def run_changes(
    request: Request,
    environ: Mapping[str, str],
    tell: Callable[[str, Outcome | None], None] = lambda _name, _outcome: None,
) -> InvariantResult:
    """Run a program without a change and with each one, and compare.

    Args:
        request: the program and the changes.
        environ: the user's environment.
        tell: called before each run with its name, and after it with what it shows.

    Returns:
        The outcomes; a program that fails without a change has none.

    Raises:
        UsageError: the program does not exist, or the folder cannot be written.
    """
    started = time.monotonic()
    tell(PLAIN, None)
    plain = _run(request, PLAIN, environ)
    result = InvariantResult(
        request.folder,
        (),
        exit_code=plain.summary.exit_code,
        problems=plain.summary.problems if not plain.summary.processes else (),
    )
    outcomes: list[Outcome] = []
    runs = 1
    if not result.exit_code and not result.problems:
        for name in request.changes:
            if any(each.name == "again" and each.state == "broken" for each in outcomes):
                outcomes.append(Outcome(name, "not made", _SKIPPED))
                continue
            tell(name, None)
            begun = time.monotonic()
            try:
                outcome = _outcome(request, name, plain, environ)
            except KeyboardInterrupt:
                result = replace(result, interrupted=True)
                break
            runs += 1
            outcomes.append(replace(outcome, seconds=time.monotonic() - begun))
            tell(name, outcomes[-1])
    return replace(result, outcomes=tuple(outcomes), runs=runs, seconds=time.monotonic() - started)


def _outcome(request: Request, name: str, plain: _Run, environ: Mapping[str, str]) -> Outcome:
    try:
        is_started = name == "ranks" and not plain.heard.has_engine
        words = on_ranks(request.words) if is_started else request.words
    except NotPossibleError as error:
        return Outcome(name, "not made", str(error))
    changed = _run(replace(request, words=words), name, environ)
    dump = request.folder / name
    if changed.summary.exit_code in _STOPPED:  # the signal was for us as well
        raise KeyboardInterrupt
    if changed.summary.exit_code:
        code = changed.summary.exit_code
        text = (
            f"the program ends with exit code {code} under it; {_log(request, name)} has its words"
        )
        return Outcome(name, "failed", text, exit_code=code, dump=dump)
    if not changed.heard.made:
        _remove(dump)
        return Outcome(name, "not made", changed.heard.why_not())
    try:
        report = compare(request.folder / PLAIN, dump)
    except AitError as error:
        return Outcome(name, "undecided", str(error), dump=dump)
    outcome = judged(name, report, plain.heard.answers, changed.heard.answers)
    if outcome.state == "held" and not request.keep:
        _remove(dump)
        return outcome
    files = write_reports(report, request.formats, request.folder, name)
    return replace(outcome, dump=dump, reports=tuple(files))


def _run(request: Request, name: str, environ: Mapping[str, str]) -> _Run:
    """Run the program once; what it prints under a change goes to a file."""
    change = CHANGES.get(name)
    settings = TorchSettings(
        output=request.folder / name,
        types=_types(request, change),
        steps=request.steps,
        weights=True,
        change=name,
        warmup=0 if change is None else change.warmup,
    )
    environment = {
        **SAME_PASSES,
        **environ,
        VARIABLE: name,
        **({} if change is None else change.environment),
    }
    reports: list[Report] = []
    plan = plan_torch_dump(request.words, settings, environment)
    if change is None:
        summary = run_torch_dump(plan, environment, heard=reports.extend)
    else:
        with new_file(_log(request, name)) as log:
            summary = run_torch_dump(plan, environment, log, heard=reports.extend)
    return _Run(summary, _heard(reports))


def _types(request: Request, change: Change | None) -> tuple[str, ...]:
    if change is None or not change.modules_only:
        return request.types
    return tuple(name for name in request.types if name != _OPERATORS) or ("torch",)


def _heard(reports: Iterable[Report]) -> Heard:
    """What a run told; of several processes, the answers of the first that gave some."""
    heard = Heard()
    answering = ""
    for each in reports:
        if each.event == "answer":
            answering = answering or each.process
            if each.process != answering:
                continue
        heard.hear(each.event, **each.facts)
    return heard


def _log(request: Request, name: str) -> Path:
    return request.folder / f"{name}.log"


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
