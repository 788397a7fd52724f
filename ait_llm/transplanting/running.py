"""Programs that are started again and again for a transplant, as child processes."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ait_llm.core import StepRange
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.torch_run import plan_torch_dump, run_torch_dump
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
    started = time.monotonic()
    folder = request.folder
    runner = ProgramRunner(request.words, environ, request.types, request.steps)
    before = 1
    try:
        golden = request.golden
        if not isinstance(golden, Path):
            tell("golden: as it is")
            replace(runner, words=golden).run(folder / GOLDEN, None)
            golden, before = folder / GOLDEN, 2
        tell("mine: as it is")
        runner.run(folder / MINE, None)
        result = search(
            PatchedProgram(golden, folder / MINE, runner, folder),
            folder,
            request.runs - 1,
            tell,
        )
        result = replace(result, runs=result.runs + before)
    except ProgramFailedError as error:
        result = TransplantResult("failed", str(error), folder, program_code=error.program_code)
    except KeyboardInterrupt:
        result = TransplantResult("interrupted", "it was interrupted", folder)
    if not request.keep:
        clean(folder)
    return replace(result, seconds=time.monotonic() - started)


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
    tell("golden: the graph of the dump with golden operators")
    result = search(ReplayedDump(mine, folder), folder, runs, tell)
    if not keep:
        clean(folder)
    return replace(result, runs=result.runs + 1)


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
            capture = plan_torch_dump(self.words, settings, self.environ)
            summary = run_torch_dump(capture, self.environ, file)
        if summary.exit_code in _STOPPED:
            raise KeyboardInterrupt
        if summary.exit_code:
            raise ProgramFailedError(
                f"the program ends with exit code {summary.exit_code}; {log} has its words",
                summary.exit_code,
            )
        if not summary.processes:
            raise ProgramFailedError("; ".join(summary.problems), 0)
