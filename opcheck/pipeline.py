"""The use case opcheck: select operators of a dump, check them in parallel, report."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from ait_llm.core.comparison import Problem, Verdict
from ait_llm.core.optional import import_optional
from ait_llm.dumps import open_dump
from ait_llm.dumps.model import Dump
from ait_llm.engine import Engine, Lost
from ait_llm.errors import UsageError
from ait_llm.judge.outputs import METRICS
from ait_llm.judge.standards import standards
from ait_llm.naming import shown
from ait_llm.opcheck.checker import Checker, OnFailure, stamp_of
from ait_llm.opcheck.journal import Journal, Key, read_journal
from ait_llm.opcheck.outcome import Checked, OpcheckReport
from ait_llm.opcheck.plugins import load_entry_points
from ait_llm.opcheck.ranks import Ranks
from ait_llm.opcheck.remote import OTHER_FILES, OpcheckRequest, check_unit, units_of
from ait_llm.opcheck.rerun import Backend, FunctionBackend
from ait_llm.opcheck.selection import Selection, Target, Wanted
from ait_llm.storage import address, is_staging, local_path, prefetch

_AHEAD = 2  # operators waiting for a thread, for each thread
OnProgress = Callable[[int, int], None]
_Results = list[list[Checked] | None]


def opcheck(
    path: Path | str,
    *,
    table: Path | str | None = None,
    wanted: Wanted | None = None,
    standard: str | None = None,
    metrics: Sequence[str] = (),
    backend: Backend | None = None,
    soc: str | None = None,
    jobs: int | None = None,
    engine: Engine | None = None,
    plugins: Sequence[str] = (),
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
        standard: name of the precision standard; None for ``classic`` where operators are the
            acceleration library's, ``contract`` where they are torch's.
        metrics: optional columns, ``abs``, ``cos_sim``, ``kl``.
        backend: runs each operator again; then operators are checked one after the other.
        soc: the chip that ran it, ``Ascend310P3``; None to go by the table or the ledger, and where
            these say nothing to permit what kernels of any chip do.
        jobs: threads; None for one for each processor.
        engine: checks operators in other processes; see :func:`ait_llm.engine.open_engine`.
        plugins: modules and files with golden operators, loaded here already, that other processes
            must load too.
        journal: file that grows with the results.
        resume: journal of an interrupted check with the same options.
        stop: set it to end early with a partial report.
        on_progress: gets the number of finished operators and of all.
        on_failure: gets the tensors of each output that failed; called from the threads.

    Raises:
        UsageError: no operator is selected, an option does not fit, or the chip is unknown.
        FormatError: no dump, or its tables are damaged.
        MissingDependencyError: torch is not installed.
    """
    import_optional("torch", "computing golden operators")
    if standard is not None:
        standards.get(standard)
    for name in metrics:
        if name not in METRICS:
            raise UsageError(f"unknown metric {name!r}; known: {', '.join(METRICS)}")
    remote = engine if engine is not None and engine.remote else None
    if remote is not None and backend is not None:
        raise UsageError("operators are run again in this process; leave out --engine or --rerun")
    soc = None if soc is None else known_soc(soc)
    load_entry_points()
    started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    path = local_path(path)
    selection = Selection(path, None if table is None else local_path(table), wanted or Wanted())
    targets, problems = selection.targets(), selection.problems()
    standard = standard or "contract"
    is_function = isinstance(backend, FunctionBackend)
    if backend is not None and not is_function and not selection.dump.traits.library:
        raise UsageError(
            f"{path}: operators of torch are run again by another implementation; give it with "
            "--rerun-with MODULE:FUNCTION"
        )
    if not targets and selection.unchecked:
        problems = [*problems, Problem("mine", "none of the operators that it has can be checked")]
    if not targets and not problems:
        raise UsageError(
            f"{path}: no operator to check; the dump has none of those that -ids, -opname or -c "
            "select, or none at all"
        )
    options = {
        "path": shown(str(path)),
        "standard": standard,
        "metrics": sorted(metrics),
        "rerun": backend.name if backend else "",
        "soc": soc or "",
    }
    known = {} if resume is None else read_journal(resume, options)
    root = selection.dump.root

    @cache
    def ranks() -> Ranks:
        return Ranks(open_dump(root).operations())

    checker = Checker(standard, tuple(metrics), backend, soc, ranks, on_failure)
    work = _Work(checker, targets, known, stop or threading.Event(), on_progress)
    threads = 1 if backend is not None else jobs or os.cpu_count() or 1
    run: Callable[[Journal | None], _Results] = partial(work.run, threads)
    if remote is not None:
        request = OpcheckRequest(
            uuid.uuid4().hex,
            address(path),
            None if table is None else address(table),
            wanted or Wanted(),
            standard,
            tuple(metrics),
            tuple(plugins),
            max(1, (os.cpu_count() or 1) // threads),
            soc,
        )
        run = partial(work.run_elsewhere, remote, request)
    if journal is None:
        results = run(None)
    else:
        with Journal(journal, options) as file:
            results = run(file)
    return OpcheckReport(
        path=shown(str(path)),
        items=explained([item for items in results if items is not None for item in items]),
        problems=_with_nothing_checked(problems, targets),
        standard=standard,
        metrics=tuple(metrics),
        rerun=backend.name if backend else "",
        partial=any(items is None for items in results),
        unchecked=dict(selection.unchecked),
        started=started,
        finished=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        on_hostatb=_on_hostatb(selection.dump),
    )


def known_soc(name: str) -> str:
    """The family of chips that a name is of.

    Raises:
        UsageError: there is none.
    """
    from ait_llm.opcheck.golden.soc import soc_named

    return soc_named(name).value


def _on_hostatb(dump: Dump) -> bool:
    """Whether any process of a dump used our CPU library, by what its capture wrote down.

    It is used where the environment names no other; real ones come with CANN's.
    """
    if not dump.traits.library:
        return False
    headers = [process.ledger.header for process in dump.processes if process.ledger is not None]
    return any(
        "hostatb" in Path(str(found.get("ATB_HOME_PATH", ""))).parts
        or not {"ATB_HOME_PATH", "ASCEND_TOOLKIT_HOME"} & found.keys()
        for header in headers
        if isinstance(found := header.get("environment"), dict)
    )


def explained(items: list[Checked]) -> list[Checked]:
    """The same where what is wrong in a module is not said again of the one that it is part of."""
    failed = [item for item in items if item.verdict is Verdict.FAIL]
    inner: dict[tuple[int, int, int, str], str] = {}
    for item in failed:
        path = item.op_id.rpartition("@")[0]
        while path := path.rpartition(".")[0]:
            inner.setdefault((item.device, item.pid, item.step, path), item.op_id)

    def of(item: Checked) -> Checked:
        path = item.op_id.rpartition("@")[0]
        part = inner.get((item.device, item.pid, item.step, path))
        if item.verdict is not Verdict.FAIL or part is None:
            return item
        reason = f"{part}, which is a part of it, is wrong"
        return replace(item, verdict=Verdict.SKIPPED, reason=reason, first_bad=None)

    return [of(item) for item in items]


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
        self._results: _Results = [None] * len(targets)
        self._done = 0

    def run(self, threads: int, journal: Journal | None) -> _Results:
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
                    if is_staging() and target.operation is not None:
                        prefetch(tensor.path for tensor in target.operation.tensors)
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

    def run_elsewhere(
        self, engine: Engine, request: OpcheckRequest, journal: Journal | None
    ) -> _Results:
        """The same from other processes."""
        todo = []
        for index, target in enumerate(self._targets):
            if (kept := self._kept(target)) is not None:
                self._finish(index, kept, journal)
            else:
                todo.append((index, target))
        units = tuple(units_of(todo, engine.slots))
        running = engine.run(
            partial(check_unit, request), units, roots=request.roots, stop=self._stop
        )
        with closing(running) as results:
            for number, answer in results:
                for place, (index, _) in enumerate(units[number]):
                    found = answer if isinstance(answer, Lost) else answer[place]
                    self._finish(index, self._received(self._targets[index], found), journal)
        return self._results

    def _received(self, target: Target, found: list[Checked] | Lost | None) -> list[Checked]:
        """What another process says of an operator, under the names of this one."""
        own = self._checker.not_checked(target, Verdict.ERROR, OTHER_FILES)
        if found is None:
            return [own]
        if isinstance(found, Lost):
            return [replace(own, verdict=Verdict.SKIPPED, reason=found.reason)]
        failed = any(item.verdict is Verdict.FAIL for item in found)
        if failed and self._checker.on_failure is not None:
            self._checker.check(target)  # tensors do not travel
        return [replace(item, path=own.path) for item in found]

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
