"""Captures programs for real, with the captures of ``ait llm dump``."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from ait_llm.bisect.captures import (
    Captured,
    Kind,
    OperatorSelection,
    Program,
    Selection,
    written,
)
from ait_llm.core import OpId, StepRange
from ait_llm.dump.atb import START_TIME_FORMAT, plan_atb_dump, run_atb_dump
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.torch_run import plan_torch_dump, run_torch_dump
from ait_llm.errors import ProbeError
from ait_llm.probe import (
    ProbeConfig,
    SaveTime,
    TensorPart,
    child_environment,
    find_host,
    find_probe,
    probe_environment,
)
from ait_llm.probe.library import ProbeLibrary, preloadable
from ait_llm.probe.writers import wait_for_writers

_FINGERPRINTS = ("stats", "layer", "model")
_DUMP = "ait_dump"


@dataclass(frozen=True, slots=True)
class ProgramRunner:
    """Captures programs as child processes.

    Attributes:
        environ: the user's environment.
        output: takes what the programs print; None leaves it our own streams.
    """

    environ: Mapping[str, str]
    output: IO[bytes] | None = None

    def statistics(self, program: Program, folder: Path, steps: StepRange) -> Captured:
        """Statistics of every tensor, and the topology.

        Raises:
            UsageError: the program cannot be started, or the output cannot be written.
            ProbeError: no usable ATB or probe.
        """
        atb = ProbeConfig(folder, _now(), types=_FINGERPRINTS, steps=steps)
        torch = TorchSettings(folder, types=("torch-stats",), steps=steps, weights=True)
        if program.kind is None:
            return self._either(program, folder, atb, torch)
        if program.kind == "atb":
            return self._atb(program, atb)
        return self._torch(program, torch)

    def values(self, program: Program, folder: Path, selection: Selection) -> Captured:
        """Values and statistics of what is selected.

        Raises:
            UsageError: the program cannot be started, or the output cannot be written.
            ProbeError: no usable ATB or probe.
        """
        if program.kind == "atb":
            return self._atb(
                program,
                ProbeConfig(
                    folder,
                    _now(),
                    types=("tensor", "stats"),
                    operation_ids=tuple(map(OpId.parse, selection.operations)),
                    with_children=False,
                    steps=selection.step_range(),
                    save_time=SaveTime.BOTH if selection.before else SaveTime.AFTER,
                    tensor_part=selection.part,
                ),
            )
        return self._torch(
            program,
            TorchSettings(
                folder,
                types=("torch", "torch-stats"),
                steps=selection.step_range(),
                inputs=selection.part is not TensorPart.OUTPUTS,
                outputs=selection.part is not TensorPart.INPUTS,
                module_names=(exactly(selection.operations),),
            ),
        )

    def operators(self, program: Program, folder: Path, selection: OperatorSelection) -> Captured:
        """Operators of torch that the code of modules calls.

        Raises:
            UsageError: the program cannot be started, or the output cannot be written.
        """
        return self._torch(
            program,
            TorchSettings(
                folder,
                types=("torch-op",) if selection.values else ("torch-op", "torch-stats"),
                steps=StepRange(((selection.step, selection.step),)),
                module_names=(exactly(selection.modules),),
                own_code=True,
                weights=selection.values,
            ),
        )

    def _atb(self, program: Program, config: ProbeConfig) -> Captured:
        plan = plan_atb_dump(program.words, config, self.environ)
        summary = run_atb_dump(plan, self.environ, self.output)
        kind: Kind | None = "atb" if summary.processes else None
        return Captured(kind, summary.exit_code, written(config.output), summary.problems)

    def _torch(self, program: Program, settings: TorchSettings) -> Captured:
        plan = plan_torch_dump(program.words, settings, self.environ)
        summary = run_torch_dump(plan, self.environ, self.output)
        kind: Kind | None = "torch" if summary.processes else None
        return Captured(kind, summary.exit_code, written(settings.output), summary.problems)

    def _either(
        self, program: Program, folder: Path, atb: ProbeConfig, torch: TorchSettings
    ) -> Captured:
        """One run under both captures; a program that calls ATB is one of ATB."""
        probe = self._probe()
        if probe is None:
            return self._torch(program, torch)
        atb = replace(atb, output=folder / "atb")
        torch = replace(torch, output=folder / "torch")
        plan_atb_dump(program.words, atb, self.environ)  # checks and makes the folder
        plan = plan_torch_dump(program.words, torch, self.environ)
        with preloadable(probe.path) as library:
            environ = child_environment(self.environ, probe_environment(atb), library)
            summary = run_torch_dump(plan, environ, self.output)
            wait_for_writers(atb.output, atb.start_time)
        size = written(folder)
        problems = summary.problems
        kind: Kind | None = "torch" if summary.processes else None
        if any((atb.dump_dir / "ledger").glob("*.jsonl")):
            kind, problems = "atb", ()
        if kind is not None:
            (folder / kind / _DUMP).replace(folder / _DUMP)
        shutil.rmtree(folder / "atb")
        shutil.rmtree(folder / "torch")
        return Captured(kind, summary.exit_code, size, problems)

    def _probe(self) -> ProbeLibrary | None:
        try:
            return find_probe(find_host(self.environ).abi, self.environ)
        except ProbeError:
            return None


def exactly(modules: tuple[str, ...]) -> str:
    """A pattern of ``--module-name`` for these paths and no others."""
    return f"re:^(?:{'|'.join(map(re.escape, modules))})$"


def _now() -> str:
    return time.strftime(START_TIME_FORMAT)
