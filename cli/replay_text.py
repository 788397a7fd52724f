"""What ``ait llm replay`` says about its result."""

from __future__ import annotations

import shlex
from typing import Any

from ait_llm.replay import Outcome
from ait_llm.report.wording import counted, printable

_LISTED = 10  # of each kind


def summary_lines(outcome: Outcome) -> list[str]:
    """What a terminal shows: what was computed, what was not and why, and what to do now."""
    word = "complete" if outcome.complete else "INCOMPLETE" if outcome.computed else "nothing done"
    until = f" until {outcome.until}" if outcome.until else ""
    lines = [
        f"ait llm replay: {word}",
        f"  computed  {outcome.computed:,} of {counted(outcome.operators, 'operator')} in "
        f"{counted(len(outcome.steps), 'step')}, {outcome.mode}{until}, {outcome.seconds:.1f} s",
        f"  written   {outcome.tensors:,} tensors, {_size(outcome.bytes)}; {_size(outcome.linked)} "
        f"more shared with the dump",
    ]
    for reason, items in outcome.reasons()[:_LISTED]:
        first = items[0]
        what = "dumped outputs used" if first.taken else "no outputs to go on with"
        more = f" and {len(items) - 1} more" if len(items) > 1 else ""
        lines.append(f"  SKIPPED   {first.op} (token {first.step}){more}: {reason}; {what}")
    if len(outcome.reasons()) > _LISTED:
        lines.append(f"  SKIPPED   and {len(outcome.reasons()) - _LISTED} more reasons")
    missing = list(outcome.missing.items())
    for name, reader in missing[:_LISTED]:
        lines.append(f"  missing   {name}, which {reader} reads, was not captured")
    if len(missing) > _LISTED:
        lines.append(f"  missing   and {len(missing) - _LISTED} more inputs and weights")
    for start in outcome.started[:_LISTED]:
        reader = f" of {start.op}" if start.op else ""
        lines.append(
            f"  started   step {start.step} from the dumped {start.value}{reader}: {start.reason}"
        )
    if len(outcome.started) > _LISTED:
        lines.append(f"  started   and from {len(outcome.started) - _LISTED} more dumped tensors")
    lines += [f"  problem   {text}" for text in outcome.problems[:_LISTED]]
    lines.append(f"  golden    {outcome.output}")
    if outcome.computed:
        words = ["ait", "llm", "compare", "-gp", str(outcome.output), "-mp", str(outcome.source)]
        lines.append(f"  next      {shlex.join(words)}")
    return [printable(line) for line in lines]


def as_dict(outcome: Outcome, allow_skip: bool) -> dict[str, Any]:
    """The result for machines."""
    return {
        "complete": outcome.complete,
        "exit_code": outcome.exit_code(allow_skip=allow_skip),
        "golden": str(outcome.output),
        "mode": outcome.mode,
        "until": outcome.until or None,
        "steps": list(outcome.steps),
        "operators": outcome.operators,
        "computed": outcome.computed,
        "skipped": [
            {
                "op": each.op,
                "op_id": each.op_id,
                "step": each.step,
                "device": each.device,
                "pid": each.pid,
                "reason": each.reason,
                "taken": each.taken,
            }
            for each in outcome.skipped
        ],
        "missing": outcome.missing,
        "started": [
            {"value": each.value, "op": each.op, "step": each.step, "reason": each.reason}
            for each in outcome.started
        ],
        "problems": outcome.problems,
        "tensors": outcome.tensors,
        "bytes": outcome.bytes,
        "linked_bytes": outcome.linked,
        "seconds": round(outcome.seconds, 3),
    }


def _size(count: int) -> str:
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
