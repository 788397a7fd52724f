"""A dump in, a golden dump out: the captured graph computed again with golden operators."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from ait_llm.core import OpId
from ait_llm.core.optional import import_optional
from ait_llm.dumps import Dump, IoRow, open_dump
from ait_llm.errors import FormatError, UsageError
from ait_llm.naming import shown
from ait_llm.program.one_pass import Pass
from ait_llm.program.passes import passes_of
from ait_llm.replay.collectives import run_together
from ait_llm.replay.execution import Execution, Steps
from ait_llm.replay.files import Files
from ait_llm.replay.golden_dump import GoldenDump, ProcessWriter
from ait_llm.replay.outcome import MODES, Mode, Outcome
from ait_llm.replay.program import program_of
from ait_llm.storage import local_path


def replay(
    path: Path | str,
    output: Path | str,
    *,
    mode: Mode | None = None,
    until: str | None = None,
    steps: Iterable[int] | None = None,
    errors: Mapping[str, Path] | None = None,
    on_pass: Callable[[Pass], None] | None = None,
) -> Outcome:
    """Compute a captured graph again with golden operators, and write what they make as a dump.

    Args:
        path: an ATB dump, or a folder in it.
        output: directory for the golden dump, which becomes ``ait_dump`` in it.
        mode: ``end-to-end``: operators get what the golden ones before them computed, so that
            nothing of the dump is used but the inputs and weights of the graph. ``local``: each
            operator gets its dumped inputs. ``hybrid``: end-to-end up to and including ``until``,
            local afterwards. End-to-end unless ``until`` is given.
        until: id of an operation.
        steps: forward passes of each process; all when None.
        errors: numbers to add to what operators make, as ``.npy`` files in row-major order, by the
            path of the output's file below ``tensors``, without its ending.
        on_pass: called before each pass.

    Returns:
        What was computed and what was not.

    Raises:
        FormatError: it is no dump, or a file of it is damaged.
        UsageError: a dump of another kind, options that do not go together, or the output directory
            holds a dump already.
        MissingDependencyError: torch is not installed.

    Example:
        >>> from ait_llm.replay import replay
        >>> replay("out/ait_dump", "golden").complete  # doctest: +SKIP
        True
    """
    begin = time.perf_counter()
    import_optional("torch", "ait llm replay")
    chosen, last = _options(mode, until)
    dump = open_dump(path)
    if not dump.traits.library:
        raise UsageError(
            f"{path}: this is a {dump.kind} dump; replay computes graphs of the acceleration "
            "library, captured with ait llm dump --type model layer tensor"
        )
    wanted = None if steps is None else frozenset(steps)
    runs = [
        [run for run in passes_of(dump, process) if wanted is None or run.step in wanted]
        for process in dump.processes
    ]
    if not any(runs):
        what = "no operation with tensors" if wanted is None else "none of the given steps"
        raise UsageError(f"{path}: it has {what}; dump with ait llm dump --type model layer tensor")
    if last is not None and not any(
        operation.op_id.is_within(last)
        for found in runs
        for run in found
        for operation in run.operations
    ):
        raise UsageError(f"--until {until}: the dump has no operation of that id")
    golden = GoldenDump(Path(output))
    outcome = Outcome(local_path(path), golden.root, chosen, until or "")
    outcome.steps = tuple(sorted({run.step for found in runs for run in found}))
    outcome.problems += [p.problem for p in dump.processes if p.problem is not None]
    for level, graphs in (("layer", dump.layers), ("model", dump.models)):
        for graph in graphs:
            golden.add_graph(level, graph.pid, graph.path)
    options = {"mode": chosen, "until": until, "source": shown(str(dump.root))}
    tables = _tables(dump)
    with ExitStack() as stack:
        processes = []
        for process, found in zip(dump.processes, runs, strict=True):
            if found:
                writer = golden.process(process.device, process.pid, options)
                table = tables.get(process.pid, {})
                execution = Execution(chosen, last, outcome, table, errors or {})
                stack.enter_context(writer)
                processes.append(_process(found, writer, execution, outcome, on_pass))
        run_together(processes)
    outcome.tensors, outcome.bytes = golden.tensors, golden.bytes
    outcome.linked = golden.linked
    outcome.seconds = time.perf_counter() - begin
    return outcome


def _options(mode: Mode | None, until: str | None) -> tuple[Mode, OpId | None]:
    chosen: Mode = mode or ("hybrid" if until else "end-to-end")
    if chosen not in MODES:
        raise UsageError(f"mode {chosen!r} is unknown; known: {', '.join(MODES)}")
    if (chosen == "hybrid") != (until is not None):
        raise UsageError("mode hybrid and --until OP go together: golden until that operation")
    return chosen, None if until is None else OpId.parse(until)


def _process(
    runs: Sequence[Pass],
    writer: ProcessWriter,
    execution: Execution,
    outcome: Outcome,
    on_pass: Callable[[Pass], None] | None,
) -> Steps:
    for run in runs:
        if on_pass is not None:
            on_pass(run)
        program = program_of(run)
        outcome.problems += program.problems
        yield from execution.run(program, Files(writer, program))


def _tables(dump: Dump) -> Mapping[int, Mapping[tuple[int, OpId], IoRow]]:
    """Rows of the operation tables by process, execution count and id.

    They hold the shapes of operators whose tensors were not saved; a damaged table is no evidence.
    """
    found: dict[int, dict[tuple[int, OpId], IoRow]] = {}
    for table in dump.io_tables():
        with suppress(FormatError):
            for row in table.rows():
                if row.op_id is not None:
                    found.setdefault(table.pid, {})[table.step, row.op_id] = row
    return found
