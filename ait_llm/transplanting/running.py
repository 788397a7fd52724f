"""Programs that are started again and again for a transplant, as child processes."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from ait_llm.core import StepRange
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.torch_run import SAME_PASSES, plan_torch_dump, run_torch_dump
from ait_llm.formats.writing import new_file
from ait_llm.transplanting.patched import PatchedProgram
from ait_llm.transplanting.replayed import ReplayedDump
from ait_llm.transplanting.result import TransplantResult
from ait_llm.transplanting.search import ProgramFailedError, search

GOLDEN, MINE = "golden", "mine"
_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for.

    Attributes:
        words: the program under suspicion and its arguments.
        golden: the trusted program and its arguments; or a dump of it.
        folder: where everything is written; it exists and is empty.
        types: what is captured, as ``ait llm dump --type`` calls it.
        steps: executions of the model that are looked at.
        runs: of the program under suspicion, at most.
        keep: keep the captures, plans and values.
    """

    words: tuple[str, ...]
    golden: tuple[str, ...] | Path
    folder: Path
    types: tuple[str, ...] = ("torch", "torch-op")
    steps: StepRange = StepRange(((0, 0),))  # noqa: RUF009 - a value
    runs: int = 60
    keep: bool = False


def transplant_programs(
    request: Request,
    environ: Mapping[str, str],
    tell: Callable[[str], None] = lambda _text: None,
) -> TransplantResult:
    """Run golden once and mine as often as needed, and find the differences that matter.

    Args:
        request: the programs.
        environ: the user's environment.
        tell: is told before each run what it is.

    Raises:
        UsageError: a program cannot be started, the folder cannot be written, or the captures
            cannot be compared.
        FormatError: golden is no dump.
    """
    return with_programs(
        request,
        environ,
        tell,
        lambda side: search(side, request.folder, request.runs - 1, tell),
        lambda status, reason, code: TransplantResult(
            status, reason, request.folder, program_code=code
        ),
    )


class _Told(Protocol):
    """A result, as far as it is known here."""

    @property
    def runs(self) -> int: ...


R = TypeVar("R", bound=_Told)


def with_programs(
    request: Request,
    environ: Mapping[str, str],
    tell: Callable[[str], None],
    look: Callable[[PatchedProgram], R],
    ended: Callable[[Literal["failed", "interrupted"], str, int], R],
    *,
    keeps_rounding: bool = False,
) -> R:
    """Run golden once and mine once, look at them, and say what all of it took.

    Args:
        request: the programs.
        environ: the user's environment.
        tell: is told before each run what it is.
        look: gets mine, which can run again; its result counts the runs that it makes.
        ended: the result where a program failed or somebody ends it: which, why, and the program's
            own code.
        keeps_rounding: of mine, see :class:`PatchedProgram`.

    Raises:
        UsageError: a program cannot be started, the folder cannot be written, or the captures
            cannot be compared.
        FormatError: golden is no dump.
    """
    started = time.monotonic()
    folder, golden, count = request.folder, request.golden, 0
    runner = ProgramRunner(request.words, environ, request.types, request.steps)
    try:
        if not isinstance(golden, Path):
            count += 1
            tell("golden: as it is")
            replace(runner, words=golden).run(folder / GOLDEN, None)
            golden = folder / GOLDEN
        count += 1
        tell("mine: as it is")
        runner.run(folder / MINE, None)
        side = PatchedProgram(golden, folder / MINE, runner, folder, keeps_rounding)
        result = look(side)
    except ProgramFailedError as error:
        result = ended("failed", str(error), error.program_code)
    except KeyboardInterrupt:
        result = ended("interrupted", "it was interrupted", 0)
    if not request.keep:
        clean(folder)
    told: Any = result  # a frozen dataclass
    finished: R = replace(told, runs=result.runs + count, seconds=time.monotonic() - started)
    return finished


def transplant_dump(
    mine: Path,
    folder: Path,
    runs: int,
    *,
    keep: bool = False,
    tell: Callable[[str], None] = lambda _text: None,
) -> TransplantResult:
    """Find which operators of a captured run of ATB matter, against golden ones.

    Args:
        mine: the dump.
        folder: where everything is written; it exists and is empty.
        runs: computations of its graph, at most.
        keep: keep what is computed.
        tell: is told before each computation what it is.

    Raises:
        FormatError, UsageError: it is no ATB dump, or cannot be computed again.
        MissingDependencyError: torch is not installed.
    """
    started = time.monotonic()
    tell("golden: the graph of the dump with golden operators")
    result = search(ReplayedDump(mine, folder), folder, runs, tell)
    if not keep:
        clean(folder)
    return replace(result, runs=result.runs + 1, seconds=time.monotonic() - started)


def clean(folder: Path) -> None:
    """Remove captures, plans and values."""
    for each in folder.iterdir():
        if each.is_dir():
            shutil.rmtree(each, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class ProgramRunner:
    """Starts one program again and again.

    Attributes:
        words: the program and its arguments.
        environ: the user's environment.
        types: what is captured, as ``ait llm dump --type`` calls it.
        steps: executions of the model.
    """

    words: tuple[str, ...]
    environ: Mapping[str, str]
    types: tuple[str, ...]
    steps: StepRange

    def run(self, output: Path, plan: Path | None) -> None:
        """Run it once; what it prints goes to a file beside the capture.

        Raises:
            UsageError: it cannot be started, or the folder cannot be written.
            ProgramFailedError: it failed, or nothing was captured.
            KeyboardInterrupt: it was told to end, and we with it.
        """
        settings = TorchSettings(
            output=output, types=self.types, steps=self.steps, weights=plan is None, patches=plan
        )
        log = output.with_name(f"{output.name}.log")
        with new_file(log) as file:
            environ = {**SAME_PASSES, **self.environ}
            capture = plan_torch_dump(self.words, settings, environ)
            summary = run_torch_dump(capture, environ, file)
        if summary.exit_code in _STOPPED:
            raise KeyboardInterrupt
        if summary.exit_code:
            raise ProgramFailedError(
                f"the program ends with exit code {summary.exit_code}; {log} has its words",
                summary.exit_code,
            )
        if not summary.processes:
            raise ProgramFailedError("; ".join(summary.problems), 0)
