"""The use case opcheck: select operators of a dump, check them in parallel, report."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path

from ait_llm.core.comparison import Problem, Verdict
from ait_llm.core.optional import import_optional
from ait_llm.dumps import open_dump
from ait_llm.errors import UsageError
from ait_llm.opcheck.checker import Checker, OnFailure, stamp_of
from ait_llm.opcheck.journal import Journal, Key, read_journal
from ait_llm.opcheck.judging import METRICS
from ait_llm.opcheck.outcome import Checked, OpcheckReport
from ait_llm.opcheck.plugins import load_entry_points
from ait_llm.opcheck.ranks import Ranks
from ait_llm.opcheck.rerun import Backend
from ait_llm.opcheck.selection import Selection, Target, Wanted
from ait_llm.opcheck.standards import standards

_AHEAD = 2  # operators waiting for a thread, for each thread
OnProgress = Callable[[int, int], None]


def opcheck(
    path: Path | str,
    *,
    table: Path | str | None = None,
    wanted: Wanted | None = None,
    standard: str = "classic",
    metrics: Sequence[str] = (),
    backend: Backend | None = None,
    jobs: int | None = None,
    journal: Path | None = None,
    resume: Path | None = None,
    stop: threading.Event | None = None,
    on_progress: OnProgress | None = None,
    on_failure: OnFailure | None = None,
) -> OpcheckReport:
    """Check the operators of a dump against their golden operators.

    Args:
        path: an ATB dump, or any folder in it.
        table: operation table of the run; None to go by the dump alone.
        wanted: filters.
        standard: name of the precision standard.
        metrics: optional columns, ``abs``, ``cos_sim``, ``kl``.
        backend: runs each operator again; then operators are checked one after the other.
        jobs: threads; None for one for each processor.
        journal: file that grows with the results.
        resume: journal of an interrupted check with the same options.
        stop: set it to end early with a partial report.
        on_progress: gets the number of finished operators and of all.
        on_failure: gets the tensors of each output that failed; called from the threads.

    Raises:
        UsageError: no operator is selected, or an option does not fit.
        FormatError: no dump, or its tables are damaged.
        MissingDependencyError: torch is not installed.
    """
    import_optional("torch", "computing golden operators")
    standards.get(standard)
    for name in metrics:
        if name not in METRICS:
            raise UsageError(f"unknown metric {name!r}; known: {', '.join(METRICS)}")
    load_entry_points()
    started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    path = Path(path)
    selection = Selection(path, None if table is None else Path(table), wanted or Wanted())
    targets, problems = selection.targets(), selection.problems()
    if not targets and not problems:
        raise UsageError(
            f"{path}: no operator to check; the dump has none of those that -ids, -opname or -c "
            "select, or none at all"
        )
    options = {
        "path": str(path),
        "standard": standard,
        "metrics": sorted(metrics),
        "rerun": backend.name if backend else "",
    }
    known = {} if resume is None else read_journal(resume, options)
    root = selection.dump.root

    @cache
    def ranks() -> Ranks:
        return Ranks(open_dump(root).operations())

    checker = Checker(standard, tuple(metrics), backend, ranks, on_failure)
    work = _Work(checker, targets, known, stop or threading.Event(), on_progress)
    threads = 1 if backend is not None else jobs or os.cpu_count() or 1
    if journal is None:
        results = work.run(threads, None)
    else:
        with Journal(journal, options) as file:
            results = work.run(threads, file)
    return OpcheckReport(
        path=str(path),
        items=[item for items in results if items is not None for item in items],
        problems=_with_nothing_checked(problems, targets),
        standard=standard,
        metrics=tuple(metrics),
        rerun=backend.name if backend else "",
        partial=any(items is None for items in results),
        started=started,
        finished=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    )


def _with_nothing_checked(problems: list[Problem], targets: list[Target]) -> list[Problem]:
    return problems if targets else [*problems, Problem("mine", "no operator was selected")]


class _Work:
    """Operators over threads, a few ahead, so that memory does not grow with the dump."""

    def __init__(
        self,
        checker: Checker,
        targets: Sequence[Target],
        known: dict[Key, list[Checked]],
        stop: threading.Event,
        on_progress: OnProgress | None,
    ) -> None:
        self._checker = checker
        self._targets = targets
        self._known = known
        self._stop = stop
        self._on_progress = on_progress
        self._results: list[list[Checked] | None] = [None] * len(targets)
        self._done = 0

    def run(self, threads: int, journal: Journal | None) -> list[list[Checked] | None]:
        """The results of each target; None for those that were not reached."""
        running: dict[Future[list[Checked]], int] = {}
        with ThreadPoolExecutor(threads, thread_name_prefix="opcheck") as pool:
            try:
                for index, target in enumerate(self._targets):
                    if self._stop.is_set():
                        break
                    if (kept := self._kept(target)) is not None:
                        self._finish(index, kept, journal)
                        continue
                    running[pool.submit(self._checker.check, target)] = index
                    if len(running) >= threads * (1 + _AHEAD):
                        self._collect(running, journal)
                while running and not self._stop.is_set():
                    self._collect(running, journal)
            finally:
                for future in running:
                    future.cancel()
        for future, index in running.items():  # those that were on their way when it stopped
            if not future.cancelled():
                self._finish(index, future.result(), journal)
        return self._results

    def _collect(self, running: dict[Future[list[Checked]], int], journal: Journal | None) -> None:
        done, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
        for future in sorted(done, key=running.__getitem__):  # one thread: in the dump's order
            self._finish(running.pop(future), future.result(), journal)

    def _finish(self, index: int, items: list[Checked], journal: Journal | None) -> None:
        self._results[index] = items
        self._done += 1
        if journal is not None:
            journal.add(items)
        if self._on_progress is not None:
            self._on_progress(self._done, len(self._targets))

    def _kept(self, target: Target) -> list[Checked] | None:
        """What an earlier check found, if its numbers count and no file has changed since."""
        key = (target.device, target.pid, target.step, target.op_id, target.type)
        items = self._known.get(key)
        if not items or target.operation is None or target.missing:
            return None
        if any(item.verdict not in (Verdict.PASS, Verdict.FAIL) for item in items):
            return None
        stamp = stamp_of(target.operation)
        return items if stamp is not None and items[0].stamp == stamp else None
