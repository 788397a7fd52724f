"""The check of one or more dumps."""

from __future__ import annotations

import itertools
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ait_llm.apicheck.calls import Call, CallFile, read_calls, without_repeats
from ait_llm.apicheck.checker import Checker, Prepared, Selection
from ait_llm.apicheck.devices import choose_devices, set_up
from ait_llm.apicheck.judging import Judge
from ait_llm.apicheck.outcome import ApiResult, Checked, Outcome
from ait_llm.apicheck.sides import Side, golden_side
from ait_llm.apicheck.standards import CONTRACT
from ait_llm.apicheck.tables import Tables, free_stamp, stamp_of
from ait_llm.errors import UsageError
from ait_llm.opcheck.api.functions import Functions
from ait_llm.report.csv_table import safe_cell
from ait_llm.storage import local_path

if TYPE_CHECKING:
    import torch

Progress = Callable[[int, int], None]
"""Called with the number of calls that are done, and of all."""


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How calls are checked.

    Attributes:
        device: ``cpu``, ``cuda:0``, ``npu:0,npu:1``, or numbers of the best accelerator; empty for
            the best that there is.
        standard: name of the accuracy standard.
        jobs: calls at a time.
        float64: golden in float64 also where inputs have 16 bits.
        selection: which functions are wanted.
        once: only the first of calls that differ in their values only.
        api_list: further functions that may be called, as captures take them.
        resume: result table of an interrupted check that is to be continued.
        save_error_data: keep the tensors of calls that do not pass.
        error_data: folder that gets the folder of them; that of the tables if None.
        jit_compile: let the NPU compile its operators for each shape.
    """

    device: str = ""
    standard: str = CONTRACT
    jobs: int = 1
    float64: bool = False
    selection: Selection = field(default_factory=Selection)
    once: bool = False
    api_list: Path | None = None
    resume: Path | None = None
    save_error_data: bool = False
    error_data: Path | None = None
    jit_compile: bool = False


def check_apis(
    paths: Sequence[Path | str],
    output: Path,
    options: CheckOptions | None = None,
    *,
    on_progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> Outcome:
    """Run every recorded call again and judge it against a CPU run in more bits.

    Args:
        paths: each a ``dump.json``, a folder of a dump of level L1 or mix, or its URL.
        output: folder for the tables; not used when an earlier check is continued.
        options: how.
        on_progress: called in this thread.
        stop: set it to end after the calls that are being checked; the tables can be continued.

    Raises:
        FormatError: a dump or table cannot be read.
        UsageError: an option cannot be used here, or a table cannot be written.
        MissingDependencyError: torch or the package of the device is not installed.
    """
    options = options or CheckOptions()
    stop = stop or threading.Event()
    judge = Judge(options.standard)
    devices = choose_devices(options.device)
    kind = devices[0].type
    if options.standard == "benchmark" and kind == "cpu":
        raise UsageError(
            "--standard benchmark compares a device with the CPU in the same precision, which says "
            "nothing of the CPU itself; choose another --device or standard"
        )
    functions = Functions(options.api_list)
    files = read_calls([local_path(path) for path in paths])
    folder, stamp = _tables_of(output, options.resume)
    error_data = None
    if options.save_error_data:
        error_data = (options.error_data or folder) / f"ut_error_data{stamp}"
    set_up(kind, jit_compile=options.jit_compile)
    checker = Checker(
        functions,
        options.selection,
        judge,
        golden_side(all_float64=options.float64, for_npu=kind == "npu"),
        Side(_cpu()) if options.standard == "benchmark" else None,
        error_data,
    )
    progress = _Counter(sum(len(file.calls) for file in files), on_progress)
    checked = tuple(
        _check_file(
            file,
            checker,
            Tables(folder, stamp, file.suffix, options.standard),
            [Side(device) for device in devices],
            options,
            progress,
            stop,
        )
        for file in files
    )
    saved = error_data if error_data is not None and error_data.is_dir() else None
    names = ",".join(str(device) for device in devices)
    return Outcome(names, options.standard, checked, progress.is_behind, saved)


class _Counter:
    """Calls that are done, over all files."""

    def __init__(self, total: int, told: Progress | None) -> None:
        self._total = total
        self._told = told
        self.done = 0

    @property
    def is_behind(self) -> bool:
        """True if calls are left."""
        return self.done < self._total

    def add(self, count: int) -> None:
        """Some more."""
        self.done += count
        if self._told is not None:
            self._told(self.done, self._total)


def _check_file(
    file: CallFile,
    checker: Checker,
    tables: Tables,
    sides: Sequence[Side],
    options: CheckOptions,
    progress: _Counter,
    stop: threading.Event,
) -> Checked:
    calls = without_repeats(file.calls) if options.once else list(file.calls)
    known = {safe_cell(call.name): call.name for call in calls}  # as the table has them
    earlier = [
        replace(result, name=known[result.name])
        for result in tables.earlier
        if result.name in known
    ]
    if len(earlier) < len(tables.earlier):
        raise UsageError(
            f"{tables.result_path}: has calls that {file.path} does not have; "
            "-csv_path takes a table of the same dump and options"
        )
    progress.add(len(file.calls) - len(calls) + len(earlier))
    done = {result.name for result in earlier}
    results = list(earlier)
    with tables, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what functions warn of was told when they were recorded
        left = (call for call in calls if call.name not in done)
        for result in _in_order(checker, left, sides, options.jobs, stop):
            tables.add(result)
            results.append(result)
            progress.add(1)
    return Checked(
        path=file.path,
        files=(tables.result_path, tables.details_path),
        results=tuple(results),
        taken_over=len(earlier),
        filtered=len(file.calls) - len(calls),
        problems=file.problems,
    )


def _in_order(
    checker: Checker,
    calls: Iterator[Call],
    sides: Sequence[Side],
    jobs: int,
    stop: threading.Event,
) -> Iterator[ApiResult]:
    """Results in the order of the calls; after a stop only those already under way."""
    turns = itertools.cycle(sides)
    if jobs <= 1:
        for call in calls:
            if stop.is_set():
                return
            yield checker.check(checker.prepare(call), next(turns))
        return
    with ThreadPoolExecutor(jobs, thread_name_prefix="ait-api-check") as pool:
        running: deque[Future[ApiResult]] = deque()
        for call in calls:
            if stop.is_set():
                break
            prepared: Prepared = checker.prepare(call)
            running.append(pool.submit(checker.check, prepared, next(turns)))
            if len(running) >= 2 * jobs:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def _tables_of(output: Path, resume: Path | None) -> tuple[Path, str]:
    """Folder and time of the tables."""
    if resume is None:
        return output, free_stamp(output)
    return resume.parent, stamp_of(resume)


def _cpu() -> torch.device:
    import torch

    return torch.device("cpu")
