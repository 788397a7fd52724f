"""``ait llm dump --msprobe-config``: engines that call msprobe, captured through ours."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from ait_llm.cli.console import say
from ait_llm.cli.dump_text import MANY_PROCESSES, ending, table
from ait_llm.cli.numbers import counted, human_bytes, ranges
from ait_llm.cli.torch_text import torch_what_next
from ait_llm.dump.msprobe_run import MsprobeDumpPlan, plan_msprobe_dump, run_msprobe_dump
from ait_llm.dump.torch_ledger import TorchProcess
from ait_llm.dump.torch_summary import TorchSummary
from ait_llm.errors import UsageError

_ITS_OWN = frozenset(
    {
        "command",
        "msprobe_config",
        "output",
        "allow_skip",
        "as_json",
        "quiet",
        "verbose",
        "log_level",
    }
)


def dump_msprobe(
    ctx: click.Context, words: Sequence[str], config: Path, output: Path
) -> TorchSummary:
    """Say what will be captured, and run the program with ours in the place of msprobe.

    Raises:
        UsageError: an option that has nothing to do with this, or a file that cannot be used.
    """
    for param in ctx.command.params:
        given = ctx.get_parameter_source(str(param.name)) is not ParameterSource.DEFAULT
        if given and param.name not in _ITS_OWN:
            raise UsageError(
                f"{param.opts[-1]} is not for --msprobe-config, whose file says what is captured"
            )
    own = ctx.get_parameter_source("output") is not ParameterSource.DEFAULT
    plan = plan_msprobe_dump(words, config, output if own else None, os.environ)
    say(describe_msprobe_plan(plan))
    return run_msprobe_dump(plan, os.environ)


def describe_msprobe_plan(plan: MsprobeDumpPlan) -> str:
    """What will be written and where."""
    capture = plan.capture
    steps = f"steps {ranges(sorted(capture.steps))}" if capture.steps else "every step"
    lines = [
        ("run", shlex.join(plan.words)),
        ("config", f"{plan.settings.config}, in the place of any that the program names"),
        ("write", f"{capture.task} of level {capture.level}"),
        ("of", steps + (f"; request {capture.request_id}" if capture.request_id else "")),
        ("into", f"{capture.dump_path} ({human_bytes(plan.free_bytes)} free)"),
    ]
    return table("ait llm dump", lines)


def describe_msprobe_summary(summary: TorchSummary) -> str:
    """What came back, what is missing, and what to do next."""
    lines: list[tuple[str, str]] = []
    if summary.exit_code:
        lines.append(("program", ending(summary.exit_code)))
    lines += [("process", _process(process)) for process in summary.processes[:MANY_PROCESSES]]
    more = len(summary.processes) - MANY_PROCESSES
    if more > 0:
        lines.append(("", f"and {more} more processes (all of them with --json)"))
    lines += [("missing", text) for text in summary.problems]
    lines += [("note", text) for text in summary.notes]
    if summary.complete and summary.processes:
        lines.append(("lost", "nothing; every process sealed its ledger"))
    if (next_command := torch_what_next(summary)) is not None:
        lines.append(("next", next_command))
    return table(f"ait llm dump: {'complete' if summary.complete else 'INCOMPLETE'}", lines)


def _process(process: TorchProcess) -> str:
    if process.sealed:
        state = f"sealed at {process.end}"
    else:
        state = "still running" if process.running else "NOT SEALED"
    calls = [
        text
        for number, text in (
            (process.modules, counted(process.modules, "module call")),
            (process.operators, counted(process.operators, "API call")),
        )
        if number
    ]
    tensors = f", {counted(process.tensors, 'tensor')}" if process.tensors else ", statistics"
    return (
        f"{process.pid} ({process.device}): steps {ranges(sorted(process.steps)) or 'none'}, "
        f"{', '.join(calls) or 'no call'}{tensors if calls else ''}; {state}"
    )
