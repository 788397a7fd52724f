"""Captures a PyTorch program that does not know of it: start, wait, add up, and verify."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from ait_llm.dump.earlier import earlier_runs
from ait_llm.dump.folders import refuse_link
from ait_llm.dump.fx_summary import no_graphs
from ait_llm.dump.golden_tokens import GoldenTokens
from ait_llm.dump.inject.channel import Report, read_reports
from ait_llm.dump.inject.settings import TorchSettings, injection_environment
from ait_llm.dump.torch_ledger import TorchProcess, read_torch_ledger
from ait_llm.dump.torch_summary import (
    Observation,
    TorchSummary,
    nothing_captured,
    torch_losses,
    torch_notes,
)
from ait_llm.errors import UsageError
from ait_llm.probe.launch import resolve_program, run_command

SAME_PASSES = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
"""With which programs make the same passes each time they run, if the user does not say otherwise.

In a process of its own, the engine of vLLM begins with what requests it has by then, so that runs
batch them differently; in that of the program it has them all.
"""


@dataclass(frozen=True, slots=True)
class TorchDumpPlan:
    """A capture that has been checked and can start.

    Attributes:
        words: the program and its arguments.
        settings: what to capture and where.
        free_bytes: free space of the output's file system.
        golden: the tokens to follow; None where the program takes its own.
        earlier: what lies in the output already, in a sentence; None if nothing does.
    """

    words: tuple[str, ...]
    settings: TorchSettings
    free_bytes: int
    golden: GoldenTokens | None = None
    earlier: str | None = None


def plan_torch_dump(
    words: Sequence[str], settings: TorchSettings, environ: Mapping[str, str]
) -> TorchDumpPlan:
    """Check what can be checked before the program runs, and create the output.

    Args:
        words: the program and its arguments, as :func:`ait_llm.probe.split_command` returns them.
        settings: what to capture.
        environ: the user's environment.

    Raises:
        UsageError: the program does not exist, or the output cannot be written.
        FormatError: the dump to follow holds no tokens.
    """
    resolve_program(words, environ)
    golden = None
    if settings.follow is not None:
        from ait_llm.dump.golden_run import read_golden_tokens  # what reads dumps is seldom needed

        golden = read_golden_tokens(settings.follow)
    if settings.control is not None:
        _usable(settings.control)
    output = settings.output
    try:
        output.mkdir(mode=0o750, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            free = shutil.disk_usage(output).free
    except OSError as error:
        raise UsageError(
            f"the output directory {output} cannot be written ({error.strerror}); "
            "give another one with -o"
        ) from error
    refuse_link(output / "ait_dump")
    earlier = earlier_runs(settings.dump_dir)
    return TorchDumpPlan(tuple(words), settings, free, golden, earlier)


def _usable(control: Path) -> None:
    """Refuse a file of ``--control`` that no process could follow."""
    if not control.parent.is_dir():
        raise UsageError(f"--control {control}: the folder {control.parent} is not there")
    if control.exists() and not control.is_file():
        raise UsageError(f"--control {control} is no plain file")


def run_torch_dump(
    plan: TorchDumpPlan,
    environ: Mapping[str, str],
    output: IO[bytes] | None = None,
    heard: Callable[[Sequence[Report]], object] = lambda _: None,
) -> TorchSummary:
    """Run the program with the capture in its environment and report what was captured.

    The program's own failure is not an error here: see :attr:`TorchSummary.exit_code`.

    Args:
        plan: what :func:`plan_torch_dump` returned.
        environ: the user's environment.
        output: takes what the program prints; None leaves it our own streams.
        heard: gets all that the processes of the program reported.

    Raises:
        UsageError: the program cannot be started.
    """
    with _channel(plan.settings) as (channel, run):
        settings = replace(plan.settings, run=run, tokens=_tokens(plan, channel))
        environment = injection_environment(settings, environ, channel)
        exit_code = run_command(plan.words, environment, output)
        reports = list(read_reports(channel))
    heard(reports)
    why_nothing = no_graphs if settings.is_compiled else nothing_captured
    observation = None
    if settings.observe and any(report.event == "output" for report in reports):
        observation = _verify(plan, environ, (exit_code, _outputs(reports)))
    problems: list[str] = []
    processes: list[TorchProcess] = []
    for path in _ledgers(settings, reports):
        try:
            process = read_torch_ledger(path, None if settings.is_api else run)
        except OSError as error:
            problems.append(f"ledger {path} cannot be read ({error.strerror})")
            continue
        if process is not None:
            processes.append(process)
    processes.sort(key=lambda process: (process.device, process.pid))
    return TorchSummary(
        exit_code=exit_code,
        dump_dir=settings.dump_dir,
        processes=tuple(processes),
        problems=(
            *why_nothing(settings, exit_code, reports, processes),
            *torch_losses(processes),
            *problems,
        ),
        notes=(*torch_notes(processes), *filter(None, (plan.earlier,))),
        observation=observation,
    )


def _ledgers(settings: TorchSettings, reports: Sequence[Report]) -> list[Path]:
    """Ledgers that this run may have written; those of API calls do not name their run."""
    if settings.is_api:
        told = {str(each.facts.get("path")) for each in reports if each.event == "ledger"}
        return sorted(map(Path, told))
    return sorted((settings.dump_dir / "ledger").glob("*.jsonl"))


_Outputs = Mapping[tuple[str, str], Counter[tuple[str, ...]]]


def _verify(
    plan: TorchDumpPlan, environ: Mapping[str, str], captured: tuple[int, _Outputs]
) -> Observation:
    """Run the program without the capture, once or twice, and compare what its models return."""
    bare = _bare_run(plan, environ)
    count = sum(
        len(digests) * often
        for sequences in captured[1].values()
        for digests, often in sequences.items()
    )
    if captured == bare:
        return Observation(
            "same", count, f"{count} outputs of the model have equal SHA-256 with and without it"
        )
    difference = _difference(captured, bare)
    if _bare_run(plan, environ) != bare:
        return Observation(
            "undecided",
            count,
            f"the program does not repeat itself: {difference}, and so do two runs without the "
            "capture; set its seeds (torch.manual_seed) and verify again",
        )
    return Observation(
        "changed",
        count,
        f"the capture changed the results: {difference}, while two runs without it are equal",
    )


def _bare_run(plan: TorchDumpPlan, environ: Mapping[str, str]) -> tuple[int, _Outputs]:
    """Exit code and digests of a run without capture; what it prints goes nowhere."""
    with _channel(plan.settings) as (channel, run):
        settings = replace(plan.settings, run=run, capture=False, tokens=_tokens(plan, channel))
        environment = injection_environment(settings, environ, channel)
        with open(os.devnull, "r+b") as nowhere:  # noqa: PTH123 - no file of ours
            exit_code = run_command(plan.words, environment, nowhere)
        return exit_code, _outputs(read_reports(channel))


def _outputs(reports: Iterator[Report] | Sequence[Report]) -> _Outputs:
    """Sequences of digests by rank and root; processes of one rank are told apart by nothing."""
    ranks: dict[str, str] = {}
    sequences: dict[tuple[str, str], list[str]] = {}
    for report in reports:
        if report.event == "torch":
            ranks[report.process] = str(report.facts.get("rank") or "")
        elif report.event == "output":
            key = (report.process, str(report.facts.get("root")))
            sequences.setdefault(key, []).append(str(report.facts.get("sha256")))
    found: dict[tuple[str, str], Counter[tuple[str, ...]]] = {}
    for (process, root), digests in sequences.items():
        found.setdefault((ranks.get(process, ""), root), Counter())[tuple(digests)] += 1
    return found


def _difference(first: tuple[int, _Outputs], second: tuple[int, _Outputs]) -> str:
    """The first difference between two runs, as a clause."""
    if first[0] != second[0]:
        return f"one run ended with exit code {first[0]}, another with {second[0]}"
    for rank, root in sorted({*first[1], *second[1]}):
        mine = [*(first[1].get((rank, root)) or Counter()).elements()]
        other = [*(second[1].get((rank, root)) or Counter()).elements()]
        if mine == other:
            continue
        name = root + (f" of rank {rank}" if rank else "")
        if len(mine) != 1 or len(other) != 1:
            return f"{name} ran in {len(mine)} and {len(other)} processes, with unlike outputs"
        for number, (a, b) in enumerate(zip(mine[0], other[0], strict=False)):
            if a != b:
                return f"output {number} of {name} differs between runs"
        return f"{name} was called {len(mine[0])} times in one run and {len(other[0])} in another"
    return "the order of processes differs"


def _tokens(plan: TorchDumpPlan, channel: Path) -> Path | None:
    """The file from which the program's processes read the tokens to follow."""
    if plan.golden is None:
        return None
    path = channel / "tokens.json"
    path.write_text(plan.golden.to_json(), "utf-8")
    return path


@contextmanager
def _channel(settings: TorchSettings) -> Iterator[tuple[Path, str]]:
    """A folder for reports that lives as long as the run, and a name for the run.

    It is below the output, so that processes in containers which share the output reach it.
    """
    with tempfile.TemporaryDirectory(
        prefix=".ait_run_", dir=settings.output, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder), Path(folder).name.removeprefix(".ait_run_")
