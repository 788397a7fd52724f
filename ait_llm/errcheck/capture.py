"""Runs a program under a capture that is made for the check, and checks what it brought back."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from ait_llm.core import StepRange
from ait_llm.dump.atb import START_TIME_FORMAT, plan_atb_dump, run_atb_dump
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.torch_run import plan_torch_dump, run_torch_dump
from ait_llm.dumps import open_dump
from ait_llm.errcheck.check import check
from ait_llm.errcheck.files import move_reports, reported_operator
from ait_llm.errcheck.result import Checked, ErrcheckResult
from ait_llm.errors import FormatError, UsageError
from ait_llm.probe import ProbeConfig

TORCH_TYPES = ("torch", "torch-op")
"""What ``--type`` calls the checks of PyTorch programs: by module, or by aten operator."""
EVERY_STEP = StepRange.parse("all")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a program is checked.

    Attributes:
        output: absolute folder for result files; the capture lies in it while the program runs.
        types: members of :data:`TORCH_TYPES` for a PyTorch program; empty for one on ATB.
        stop: ATB fails the operation that overflows.
        values: capture the data of all tensors; else statistics, and on ATB the data of tensors
            in which something is odd.
        steps: execution counts to look at.
        keep: leave the capture behind, in a folder ``ait_dump`` of the output.
        log_level: of the probe.
    """

    output: Path
    types: tuple[str, ...] = ()
    stop: bool = False
    values: bool = False
    steps: StepRange = EVERY_STEP
    keep: bool = False
    log_level: str = "info"

    def __post_init__(self) -> None:
        if self.stop and self.types:
            raise UsageError(
                "--exit is what the acceleration library does; a PyTorch program runs to its end"
            )
        if self.keep and (self.output / "ait_dump").exists():
            raise UsageError(
                f"{self.output / 'ait_dump'} is there already; with --keep give an output of its "
                "own with -o"
            )


def check_program(
    words: Sequence[str],
    settings: Settings,
    environ: Mapping[str, str],
    output: IO[bytes] | None = None,
) -> ErrcheckResult:
    """Run a program and find what is NaN, infinite or saturated in what it computes.

    The program's own failure is not an error here: see :attr:`ErrcheckResult.exit_code`.

    Args:
        words: the program and its arguments, as :func:`ait_llm.probe.split_command` returns them.
        settings: how to check it.
        environ: the user's environment.
        output: takes what the program prints; None leaves it our own streams.

    Raises:
        UsageError: the program cannot be started, or the output cannot be written.
        ProbeError: no usable ATB or probe.
    """
    with _folder(settings) as folder:
        run = _run_torch if settings.types else _run_atb
        exit_code, problems = run(words, settings, folder, environ, output)
        reported = move_reports(folder, settings.output)
        try:
            result = check(open_dump(folder))
        except FormatError as error:
            result = ErrcheckResult(
                Checked(), problems=() if problems else (f"nothing was captured: {error}",)
            )
        everything = dict.fromkeys((*problems, *result.problems))
        shown = {name for names in result.odd.values() for name in names}
        unexplained = [
            name
            for names in reported.values()
            for name in names
            if reported_operator(name) not in shown
        ]
        return replace(
            result,
            problems=tuple(everything),
            reported=reported,
            unexplained=tuple(dict.fromkeys(unexplained)),
            exit_code=exit_code,
        )


def _run_atb(
    words: Sequence[str],
    settings: Settings,
    folder: Path,
    environ: Mapping[str, str],
    output: IO[bytes] | None,
) -> tuple[int, tuple[str, ...]]:
    config = ProbeConfig(
        output=folder,
        start_time=time.strftime(START_TIME_FORMAT),
        types=("tensor", "layer", "model", *(() if settings.values else ("stats",))),
        steps=settings.steps,
        log_level=settings.log_level,
        overflow_check=True,
        overflow_stop=settings.stop,
        odd_only=not settings.values,
    )
    summary = run_atb_dump(plan_atb_dump(words, config, environ), environ, output)
    # Graphs only help to tell passes apart; programs without a model layer report none.
    problems = (text for text in summary.problems if "no topology was reported" not in text)
    return summary.exit_code, tuple(problems)


def _run_torch(
    words: Sequence[str],
    settings: Settings,
    folder: Path,
    environ: Mapping[str, str],
    output: IO[bytes] | None,
) -> tuple[int, tuple[str, ...]]:
    # Modules are given masks by name, which operators are not. "torch" saves the data.
    types = ("torch" if settings.values else "torch-stats", *(set(settings.types) - {"torch"}))
    capture = TorchSettings(
        output=folder, types=types, steps=settings.steps, weights=settings.values
    )
    summary = run_torch_dump(plan_torch_dump(words, capture, environ), environ, output)
    return summary.exit_code, summary.problems


@contextmanager
def _folder(settings: Settings) -> Iterator[Path]:
    """A folder for the capture: the output's file system has the room that was chosen for it."""
    try:
        settings.output.mkdir(mode=0o750, parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".ait_errcheck_", dir=settings.output))
    except OSError as error:
        raise UsageError(
            f"the output directory {settings.output} cannot be written ({error.strerror}); give "
            "another one with -o"
        ) from error
    try:
        yield folder
    finally:
        move_reports(folder, settings.output)  # also when we are interrupted
        if settings.keep and (folder / "ait_dump").is_dir():
            (folder / "ait_dump").rename(settings.output / "ait_dump")
        shutil.rmtree(folder, ignore_errors=True)
