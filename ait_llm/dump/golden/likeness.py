"""What a golden run has to compute, read from the capture that it is to be compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ait_llm.core import StepRange
from ait_llm.dumps import Dump, Process, open_dump
from ait_llm.dumps.runs import newest_run
from ait_llm.errors import AitError, FormatError, UsageError
from ait_llm.match.executions import compiled_passes
from ait_llm.program.one_pass import Pass
from ait_llm.program.passes import passes_of
from ait_llm.program.readings import readings
from ait_llm.program.row_plan import RowPlan, plan_rows
from ait_llm.program.schedule import engine_schedules
from ait_llm.program.token_ids import looked_up


@dataclass(frozen=True, slots=True)
class Likeness:
    """What a capture read, and what is known of its model.

    Attributes:
        path: the capture, as it was given.
        rows: requests, and the rows of each pass that golden computes.
        hidden: width of its hidden states; None if the capture does not show it.
        table: rows of its table of tokens; None if the capture does not show it.
        dtype: element type of its hidden states, such as ``bf16``; empty if it does not show it.
        problems: what of the capture golden cannot follow, a sentence each.
    """

    path: Path
    rows: RowPlan
    hidden: int | None
    table: int | None
    dtype: str
    problems: tuple[str, ...] = ()


def read_likeness(path: Path, steps: StepRange | None = None) -> Likeness:
    """Read requests, tokens and passes of a capture of any kind that shows what it reads.

    Args:
        path: a dump.
        steps: passes that golden is to compute; None for all.

    Raises:
        FormatError: there is no dump, it shows no tokens, or it does not begin with the prompts.
        UsageError: its processes read different tokens, or none of its passes is wanted.
    """
    dump = open_dump(path)
    found = [
        (process, passes, rows)
        for process in newest_run(dump.processes)
        for passes, rows in _row_plans(dump, process)
    ]
    told = [each for each in found if each[2].passes]
    if not told:
        raise FormatError(path, *_why_nothing(found))
    process, passes, rows = told[0]
    other = next((each for each in told[1:] if each[2].passes != rows.passes), None)
    other = other or next((each for each in told[1:] if each[2].requests != rows.requests), None)
    if other is not None:
        raise UsageError(
            f"{path}: processes {process.pid} and {other[0].pid} read different tokens (data "
            "parallel); give --like the folder of one process"
        )
    problems = []
    if rows.reason:
        problems.append(f"golden ends before {rows.reason}")
    wanted = tuple(each for each in rows.passes if steps is None or each.step in steps)
    if not wanted:
        have = ", ".join(str(each.step) for each in rows.passes[:8])
        raise UsageError(f"--steps {steps}: {path} has none of these passes (it has {have})")
    return Likeness(
        path, replace(rows, passes=wanted), *_model_of(passes), problems=tuple(problems)
    )


def _row_plans(dump: Dump, process: Process) -> Iterator[tuple[Sequence[Pass], RowPlan]]:
    """The passes of a process and what they read; nothing for one without passes."""
    if dump.traits.compiled:
        passes, _ = compiled_passes("mine", dump, process)
    else:
        passes = passes_of(dump, process)
    lines = () if process.ledger is None else process.ledger.engine
    if passes:
        yield passes, plan_rows(readings(passes), engine_schedules(lines).requests)


def _why_nothing(found: Sequence[tuple[Process, Sequence[Pass], RowPlan]]) -> tuple[str, str]:
    """Why no pass can be computed again, and what to do."""
    reason = next((each.reason for _, _, each in found if each.reason), "")
    if reason:
        return f"golden cannot follow it from the start: {reason}", ""
    return (
        "holds no tokens that golden could read: ids that the model or its embedding is given",
        "Capture the tensors of the whole model from its first token on, such as --type torch "
        "-er all",
    )


def _model_of(passes: Sequence[Pass]) -> tuple[int | None, int | None, str]:
    """Width and type of hidden states and rows of the table of tokens, as the first pass shows."""
    for run in passes:
        found = looked_up(run)
        if found is None:
            continue
        operation, table = found
        try:
            rows = table.shape[0] if table is not None else None
            hidden = next((each for each in operation.outputs if each.dtype.is_floating), None)
            if hidden is not None and len(hidden.shape) > 1:
                return hidden.shape[-1], rows, hidden.dtype.label
        except AitError:
            continue
    return None, None, ""
