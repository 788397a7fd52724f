"""One run of a program that reveals what a capture would write, and saves none of it."""

from __future__ import annotations

import shutil
import sys
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
from ait_llm.errors import FormatError, IncompleteError, UsageError
from ait_llm.plan.atb_sizes import AtbSizes
from ait_llm.plan.atb_survey import read_atb_survey
from ait_llm.plan.disk import Disk
from ait_llm.plan.graph_survey import GraphSizes, read_graph_survey
from ait_llm.plan.meta_program import STEPS, MetaRequest
from ait_llm.plan.steps import steps_to_look_at
from ait_llm.plan.torch_sizes import TorchSizes
from ait_llm.plan.torch_survey import read_torch_survey
from ait_llm.probe import ProbeConfig, SaveTime, TensorPart


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What a run revealed.

    Attributes:
        sizes: gives estimates.
        exit_code: how the program ended.
        seconds: how long it took; None where no program ran.
    """

    sizes: AtbSizes | TorchSizes | GraphSizes
    exit_code: int = 0
    seconds: float | None = None


def survey_atb(
    words: Sequence[str],
    config: ProbeConfig,
    environ: Mapping[str, str],
    disk: Disk,
    *,
    probe_lib: Path | None = None,
    output: IO[bytes] | None = None,
) -> Surveyed:
    """Run a program on ATB with descriptions of its tensors.

    Args:
        words: the program and its arguments.
        config: options of the capture; filters are left out, so that others can be tried.
        environ: the user's environment.
        disk: where it would write.
        probe_lib: the user's own probe.
        output: takes what the program prints; None leaves it our own streams.

    Raises:
        UsageError: the program cannot be started, or the output cannot be written.
        IncompleteError: nothing was captured.
        ProbeError: no usable ATB or probe.
    """
    with _folder(config.output) as folder:
        types = {*config.types, "cpu_profiling"} - {"tensor"}
        if "tensor" in config.types and "stats" not in types:
            types.add("tensor")
        survey = replace(
            config,
            output=folder,
            start_time=time.strftime(START_TIME_FORMAT),
            types=tuple(sorted(types)),
            description_only=True,
            operation_ids=(),
            with_children=True,
            operation_names=(),
            steps=steps_to_look_at(config.steps),
            save_time=SaveTime.BOTH,
            tensor_part=TensorPart.BOTH,
            device=None,
            dedupe=False,
        )
        start = time.perf_counter()
        summary = run_atb_dump(plan_atb_dump(words, survey, environ, probe_lib), environ, output)
        seconds = time.perf_counter() - start
        try:
            found = read_atb_survey(folder)
        except FormatError as error:
            raise _nothing(summary.problems, summary.exit_code) from error
        if not found.units and not found.counts:
            raise _nothing(summary.problems, summary.exit_code)
        return Surveyed(AtbSizes(found, disk.block), summary.exit_code, seconds)


def survey_torch(
    words: Sequence[str],
    settings: TorchSettings,
    environ: Mapping[str, str],
    disk: Disk,
    output: IO[bytes] | None = None,
) -> Surveyed:
    """Run a PyTorch program and note the sizes of what a capture would save.

    Args:
        words: the program and its arguments.
        settings: options of the capture; filters are left out, so that others can be tried.
        environ: the user's environment.
        disk: where it would write.
        output: takes what the program prints; None leaves it our own streams.

    Raises:
        UsageError: the program cannot be started, or the output cannot be written.
        IncompleteError: nothing was captured.
    """
    with _folder(settings.output) as folder:
        survey = _noting(settings, folder, steps_to_look_at(settings.steps))
        start = time.perf_counter()
        summary = run_torch_dump(plan_torch_dump(words, survey, environ), environ, output)
        seconds = time.perf_counter() - start
        try:
            sizes: TorchSizes | GraphSizes
            if settings.is_compiled:
                sizes = GraphSizes(read_graph_survey(folder), disk.block)
            else:
                sizes = TorchSizes(read_torch_survey(folder), disk.block)
        except FormatError as error:
            raise _nothing(summary.problems, summary.exit_code) from error
        return Surveyed(sizes, summary.exit_code, seconds)


def survey_model(
    request: MetaRequest, settings: TorchSettings, environ: Mapping[str, str], disk: Disk
) -> Surveyed:
    """Run a model that a ``config.json`` describes, without weights.

    Args:
        request: the model and its inputs; ``steps`` is how many steps the program would have.
        settings: options of the capture.
        environ: the user's environment.
        disk: where it would write.

    Raises:
        UsageError: the model cannot be run.
    """
    if settings.is_compiled:
        raise UsageError(
            f"--model gives no graphs of torch.compile, so --type {' '.join(settings.types)} "
            "cannot be planned with it; use --exec"
        )
    with _folder(settings.output) as folder, tempfile.TemporaryFile() as told:
        short = replace(request, steps=min(request.steps, STEPS))
        words = (sys.executable, "-m", "ait_llm.plan", short.to_json())
        survey = _noting(settings, folder, StepRange(((0, STEPS - 1),)))
        summary = run_torch_dump(plan_torch_dump(words, survey, environ), environ, told)
        told.seek(0)
        reasons = [
            line.removeprefix("ait llm plan: ")
            for line in told.read().decode("utf-8", "replace").splitlines()
            if line.startswith("ait llm plan: ")
        ]
        if summary.exit_code:
            reason = f"it ended with code {summary.exit_code}"
            if summary.exit_code == 128 + 14:
                reason = "it takes too long without weights already"
            raise UsageError(f"--model: {(reasons or [reason])[-1]}")
        try:
            processes = read_torch_survey(folder)
        except FormatError as error:
            raise _nothing(summary.problems, 0) from error
        for process in processes:
            if (process.steps or 0) > 1:
                process.steps = request.steps
        return Surveyed(TorchSizes(processes, disk.block))


def _noting(settings: TorchSettings, folder: Path, steps: StepRange) -> TorchSettings:
    """Settings of a run that notes sizes of everything."""
    if settings.is_compiled:
        return replace(
            settings,
            output=folder,
            steps=steps,
            inputs=True,
            outputs=True,
            type_prefixes=(),
            survey=True,
        )
    return replace(
        settings,
        output=folder,
        # Operators are attributed to modules, which are noted too for that.
        types=("torch", "torch-op") if settings.operators else ("torch",),
        steps=steps,
        description_only=False,
        inputs=True,
        outputs=True,
        type_prefixes=(),
        module_names=(),
        layers=(),
        weights=True,
        observe=False,
        survey=True,
    )


def _nothing(problems: Sequence[str], exit_code: int) -> IncompleteError:
    """What is said when a run showed nothing."""
    reason = problems[0] if problems else "no call of the wanted kind was seen"
    ending = f"; the program ended with exit code {exit_code}" if exit_code else ""
    return IncompleteError(f"nothing can be planned: {reason}{ending}")


@contextmanager
def _folder(output: Path) -> Iterator[Path]:
    """A folder for the run, below the output, that is removed after it."""
    made = not output.exists()
    try:
        output.mkdir(mode=0o750, parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".ait_plan_", dir=output))
    except OSError as error:
        raise UsageError(
            f"the output directory {output} cannot be written ({error.strerror}); give another "
            "one with -o"
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if made and not any(output.iterdir()):
            output.rmdir()
