"""What ``ait llm golden`` says before and after its run."""

from __future__ import annotations

import shlex
from pathlib import Path

from ait_llm.cli.dump_text import table
from ait_llm.cli.numbers import counted, human_bytes, ranges
from ait_llm.dump.golden.run import GoldenPlan, GoldenSummary


def describe_golden_plan(plan: GoldenPlan) -> str:
    """What will be run, on which tokens, and how."""
    settings, checkpoint = plan.settings, plan.checkpoint
    read = plan.like.rows
    requests = {row[0] for each in read.passes for row in each.rows if row is not None}
    rows = sum(row is not None for each in read.passes for row in each.rows)
    dtype = str(plan.dtype).removeprefix("torch.")
    how = "layer by layer" if plan.layer_by_layer else "all at once"
    lines = [
        (
            "run",
            f"{settings.model} ({checkpoint.config.model_type}, transformers "
            f"{checkpoint.library.__version__}) in {dtype} on {settings.device}",
        ),
        (
            "tokens",
            f"of {plan.like.path}: {counted(rows, 'token')} of "
            f"{counted(len(requests), 'request')} in {counted(len(read.passes), 'step')}",
        ),
        ("weights", f"{human_bytes(plan.weights)}, loaded {how}"),
        ("into", str(plan.dump_dir)),
    ]
    if plan.attention != "eager":
        lines.append(("note", f"attention {plan.attention}: scores would not fit into memory"))
    return table("ait llm golden", lines)


def describe_golden_summary(summary: GoldenSummary, next_command: str | None) -> str:
    """What was written, what is missing, and what to do next."""
    process = summary.process
    lines: list[tuple[str, str]] = []
    if process is not None:
        lines.append(
            (
                "total",
                f"{counted(process.modules, 'module call')}, "
                f"{counted(process.tensors, 'tensor')}, {human_bytes(process.bytes)}; "
                f"tokens {ranges(sorted(process.steps)) or 'none'}",
            )
        )
    lines += [("missing", text) for text in summary.problems]
    if next_command is not None:
        lines.append(("next", next_command))
    return table(f"ait llm golden: {'complete' if summary.complete else 'INCOMPLETE'}", lines)


def golden_what_next(summary: GoldenSummary, like: Path) -> str:
    """The comparison of the capture with its golden run."""
    return shlex.join(["ait", "llm", "compare", "-gp", str(summary.dump_dir), "-mp", str(like)])
