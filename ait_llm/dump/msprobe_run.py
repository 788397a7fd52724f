"""Captures programs that capture themselves through msprobe: ours stands in its place."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ait_llm.dump.api.settings import ApiSettings, read_settings
from ait_llm.dump.inject.channel import Report, read_reports
from ait_llm.dump.inject.msprobe.settings import MsprobeSettings, msprobe_environment
from ait_llm.dump.torch_ledger import TorchProcess, read_torch_ledger
from ait_llm.dump.torch_summary import TorchSummary, torch_losses, torch_notes
from ait_llm.errors import UsageError
from ait_llm.probe.launch import resolve_program, run_command

_NAMED = 3


@dataclass(frozen=True, slots=True)
class MsprobeDumpPlan:
    """A capture that has been checked and can start.

    Attributes:
        words: the program and its arguments.
        settings: what the program gets.
        capture: what the file asks for.
        free_bytes: free space of the output's file system.
    """

    words: tuple[str, ...]
    settings: MsprobeSettings
    capture: ApiSettings
    free_bytes: int


def plan_msprobe_dump(
    words: Sequence[str], config: Path, output: Path | None, environ: Mapping[str, str]
) -> MsprobeDumpPlan:
    """Check what can be checked before the program runs, and create the output.

    Args:
        words: the program and its arguments.
        config: the ``config.json`` that is to hold.
        output: folder in the place of its ``dump_path``; None for that.
        environ: the user's environment.

    Raises:
        UsageError: the file or the program cannot be used, or the output cannot be written.
    """
    resolve_program(words, environ)
    capture = read_settings(config, dump_path=output)
    folder = capture.dump_path
    try:
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        place = "give another one with -o" if output else f"change dump_path in {config}"
        raise UsageError(
            f"the output directory {folder} cannot be written ({error.strerror}); {place}"
        ) from error
    return MsprobeDumpPlan(tuple(words), MsprobeSettings(config, folder), capture, free)


def run_msprobe_dump(
    plan: MsprobeDumpPlan, environ: Mapping[str, str], output: IO[bytes] | None = None
) -> TorchSummary:
    """Run the program with ours in the place of ``msprobe.pytorch``, and report what was captured.

    The program's own failure is not an error here: see :attr:`TorchSummary.exit_code`.

    Args:
        plan: what :func:`plan_msprobe_dump` returned.
        environ: the user's environment.
        output: takes what the program prints; None leaves it our own streams.

    Raises:
        UsageError: the program cannot be started.
    """
    folder = plan.settings.dump_path
    with tempfile.TemporaryDirectory(
        prefix=".ait_run_", dir=folder, ignore_cleanup_errors=True
    ) as channel:
        environment = msprobe_environment(plan.settings, environ, Path(channel))
        exit_code = run_command(plan.words, environment, output)
        reports = list(read_reports(Path(channel)))
    problems: list[str] = []
    processes: list[TorchProcess] = []
    paths = {str(each.facts.get("path")) for each in reports if each.event == "ledger"}
    for path in sorted(map(Path, paths)):
        try:
            process = read_torch_ledger(path, None)
        except OSError as error:
            problems.append(f"ledger {path} cannot be read ({error.strerror})")
            continue
        if process is not None:
            processes.append(process)
    return TorchSummary(
        exit_code=exit_code,
        dump_dir=folder,
        processes=tuple(processes),
        problems=(
            *_nothing_captured(plan, exit_code, reports, processes),
            *torch_losses(processes),
            *problems,
        ),
        notes=(*_set_aside(plan, reports), *torch_notes(processes)),
    )


def _set_aside(plan: MsprobeDumpPlan, reports: Sequence[Report]) -> list[str]:
    """What the program has of its own, and did not get."""
    sentences = []
    installed = _facts(reports, "msprobe", "installed")
    if installed:
        sentences.append(
            f"msprobe is installed in {installed[0]}; its msprobe.pytorch was not used in this "
            "program"
        )
    files = _facts(reports, "debugger", "named")
    if files:
        sentences.append(
            f"the program names {' and '.join(files[:_NAMED])}; {plan.settings.config} was used"
        )
    given = _facts(reports, "debugger", "given")
    if given:
        sentences.append(
            f"the program gives {', '.join(given)} as arguments; {plan.settings.config} was used"
        )
    absent = _facts(reports, "absent", "name")
    if absent:
        sentences.append(
            f"the program asked for {', '.join(absent[:_NAMED])}, which is not in what stands in "
            "the place of msprobe.pytorch"
        )
    return sentences


def _facts(reports: Sequence[Report], event: str, name: str) -> list[str]:
    """Each thing that the processes told under this name, once."""
    told: dict[str, None] = {}
    for each in reports:
        value = each.facts.get(name) if each.event == event else None
        for text in value if isinstance(value, list) else [value]:
            if text:
                told[str(text)] = None
    return list(told)


def _nothing_captured(
    plan: MsprobeDumpPlan,
    exit_code: int,
    reports: Sequence[Report],
    processes: Sequence[TorchProcess],
) -> list[str]:
    """Why nothing was recorded, in one sentence; empty if something was."""
    if any(process.modules or process.operators for process in processes):
        return []
    events = {each.event for each in reports}
    if exit_code and "start" not in events:
        return [
            f"the program failed (exit code {exit_code}) before a capture was started; make it run "
            "without ait first, then dump again"
        ]
    if "pytorch" not in events and "debugger" not in events:
        return [
            "the program never imported msprobe.pytorch, so nothing was captured. Possible "
            "reasons: the engine was not told to (vllm-ascend: --additional-config "
            '\'{"dump_config_path": "FILE"}\'; SGLang: --msprobe-dump-config FILE); its Python '
            "is started with -I, -E or -S; it drops PYTHONPATH on the way (sudo, containers). A "
            "program without msprobe is captured with --type torch"
        ]
    if "debugger" not in events:
        return [
            "the program imported msprobe.pytorch and made neither a PrecisionDebugger nor an "
            "AclGraphDumper, so nothing was captured"
        ]
    if "start" not in events:
        return ["the program made a debugger and never called its start, so nothing was captured"]
    return [
        f"the program started a capture, but recorded no call. Possible reasons: {_reasons(plan)}"
    ]


def _reasons(plan: MsprobeDumpPlan) -> str:
    capture = plan.capture
    reasons = ["no request was computed"]
    if capture.enabled is False:
        reasons = [f"dump_enable is false in {plan.settings.config}"]
    if capture.steps:
        reasons.append(f"no step was one of {', '.join(map(str, sorted(capture.steps)))}")
    if capture.ranks:
        reasons.append(f"no rank was one of {', '.join(map(str, sorted(capture.ranks)))}")
    if capture.names or capture.scope:
        reasons.append("list or scope name nothing that ran")
    if capture.request_id:
        reasons.append(f"no step had the request {capture.request_id}")
    return "; ".join(reasons)
