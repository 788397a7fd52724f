"""What ``ait llm dump`` says before and after a run, as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from ait_llm.cli.numbers import counted, human_bytes, ranges
from ait_llm.core import StepRange
from ait_llm.dump.atb import AtbDumpPlan
from ait_llm.dump.summary import DumpSummary, ProcessSummary
from ait_llm.probe import ProbeConfig, SaveTime, TensorPart

_PARTS = {
    TensorPart.INPUTS: "inputs",
    TensorPart.OUTPUTS: "outputs",
    TensorPart.BOTH: "inputs and outputs",
}
_TIMES = {
    SaveTime.BEFORE: "before execution",
    SaveTime.AFTER: "after execution",
    SaveTime.BOTH: "before and after execution",
}
_TYPES = {
    "layer": "layer topology",
    "model": "model and layer topology",
    "op": "operation table",
    "kernel": "kernel table",
    "cpu_profiling": "setup and execute times",
    "onnx": "ONNX models of the topology",
}
MANY_PROCESSES = 16


def describe_plan(plan: AtbDumpPlan) -> str:
    """What will be written, where, and by which libraries."""
    config, host = plan.config, plan.host
    atb = f"{host.path} (C++ ABI {host.abi}, {host.evidence})"
    if host.embedded:
        atb = f"embedded CPU library hostatb, because ATB_HOME_PATH is not set: {host.path}"
    lines = [
        ("run", shlex.join(plan.words)),
        *_what(config),
        (
            "into",
            f"{config.dump_dir} ({human_bytes(plan.free_bytes)} free, "
            f"{human_bytes(config.min_free_bytes)} of it are left alone)",
        ),
        ("ATB", atb),
        ("probe", str(plan.probe.path) + ("" if plan.probe.packaged else " (yours)")),
        *(("note", text) for text in filter(None, (plan.earlier,))),
        *(("warning", text) for text in host.warnings),
        *(("warning", text) for text in _without_effect(config)),
    ]
    return table("ait llm dump", lines)


def _what(config: ProbeConfig) -> Iterator[tuple[str, str]]:
    if config.captures_tensors:
        stats = "stats" in config.types
        if config.description_only or "tensor" not in config.types:
            content = "descriptions"
        else:
            content = "tensors"
        yield (
            "write",
            f"{content}{' with statistics' if stats else ''} of {_PARTS[config.tensor_part]} "
            f"{_TIMES[config.save_time]}{', tiling data' if config.tiling else ''}"
            f"{', identical ones once' if config.dedupe else ''}",
        )
        yield "of", f"{_selection(config)}; {step_ranges(config.steps)}; {_devices(config)}"
    others = [text for name, text in _TYPES.items() if name in config.types]
    if "model" in config.types and "layer" in config.types:
        others.remove(_TYPES["layer"])  # the model's line names it
    if others:
        yield ("and" if config.captures_tensors else "write"), ", ".join(others)
        if {"op", "kernel"} & set(config.types) and not config.captures_tensors:
            yield "of", f"all operations; {step_ranges(config.steps)}; {_devices(config)}"


def _selection(config: ProbeConfig) -> str:
    wanted = []
    if config.operation_ids:
        below = " and below" if config.with_children else ""
        wanted.append("ids " + ", ".join(map(str, config.operation_ids)) + below)
    if config.operation_names:
        wanted.append("types starting with " + ", ".join(config.operation_names))
    return "operations with " + " or ".join(wanted) if wanted else "all operations"


def step_ranges(steps: StepRange) -> str:
    """A step range in words."""
    texts = [
        "every step" if last == 2**64 - 1 else f"step {a}" if a == last else f"steps {a} to {last}"
        for a, last in steps.intervals
    ]
    return ", ".join(texts)


def _devices(config: ProbeConfig) -> str:
    return "all devices" if config.device is None else f"device {config.device}"


def _without_effect(config: ProbeConfig) -> Iterator[str]:
    if config.captures_tensors:
        return
    for given, name in (
        (config.description_only, "-sd"),
        (bool(config.operation_ids), "-ids"),
        (bool(config.operation_names), "-opname"),
        (config.tiling, "-tiling"),
    ):
        if given:
            yield f"{name} has no effect, because no tensors are captured (--type tensor)"


def describe_summary(summary: DumpSummary) -> str:
    """What came back, what is missing, and what to do next."""
    lines: list[tuple[str, str]] = []
    if summary.exit_code:
        lines.append(("program", ending(summary.exit_code)))
    if summary.processes:
        lines += [("process", _process(process)) for process in summary.processes[:MANY_PROCESSES]]
        more = len(summary.processes) - MANY_PROCESSES
        if more > 0:
            lines.append(("", f"and {more} more processes (all of them with --json)"))
        lines.append(
            (
                "total",
                ", ".join(
                    counted(summary.total(f"{noun}s"), noun)
                    for noun in ("operation", "kernel", "tensor", "file")
                )
                + f", {human_bytes(summary.total('bytes'))}; "
                f"tokens {ranges(summary.steps) or 'none'}",
            )
        )
    if summary.files:
        lines.append(("files", str(summary.files)))
    for name, paths in (
        ("topology", summary.topologies),
        ("tables", summary.tables),
        ("statistics", summary.statistics),
        ("onnx", summary.onnx),
    ):
        if paths:
            lines.append((name, _places(paths)))
    lines += [("missing", text) for text in summary.problems]
    lines += [("note", text) for text in summary.notes]
    if summary.complete and summary.processes:
        lines.append(("lost", "nothing; every process sealed its ledger"))
    if (next_command := what_next(summary)) is not None:
        lines.append(("next", next_command))
    head = "complete" if summary.processes else "finished"
    if not summary.complete:
        head = "INCOMPLETE"
    return table(f"ait llm dump: {head}", lines)


def what_next(summary: DumpSummary) -> str | None:
    """The command that looks at what was captured; None if there is nothing to look at."""
    if not summary.total("tensors"):
        return None
    return shlex.join(["ait", "llm", "show", str(summary.dump_dir)])


def ending(code: int) -> str:
    """How a program ended, in words."""
    if code > 128:
        return f"ended by signal {code - 128} (exit code {code})"
    return f"failed with exit code {code}"


def _process(process: ProcessSummary) -> str:
    if process.sealed:
        state = f"sealed at {process.end}"
    else:
        state = "still running" if process.running else "NOT SEALED"
    if lost := process.failed + process.dropped:
        state = f"{counted(lost, 'operation')} lost; {state}"
    counts = ", ".join(
        counted(getattr(process, f"{noun}s"), noun) for noun in ("operation", "kernel", "tensor")
    )
    return (
        f"{process.pid} on device {', '.join(process.devices)}: "
        f"tokens {ranges(process.steps) or 'none'}, "
        f"{counts}, {human_bytes(process.bytes)}; {state}"
    )


def _places(paths: Iterable[Path]) -> str:
    counts: dict[Path, int] = {}
    for path in paths:
        counts[path.parent] = counts.get(path.parent, 0) + 1
    texts = [f"{count} in {folder}" for folder, count in list(counts.items())[:MANY_PROCESSES]]
    hidden = len(counts) - len(texts)
    return ", ".join([*texts, *([f"and {hidden} more folders"] if hidden else [])])


def table(title: str, lines: Iterable[tuple[str, str]]) -> str:
    """Lines of a name and a text below a title."""
    rows = list(lines)
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {text}" for name, text in rows)])
