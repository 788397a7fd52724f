"""What ``ait llm dump`` says before and after a run of a PyTorch program, as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from ait_llm.cli.dump_text import MANY_PROCESSES, ending, step_ranges, table
from ait_llm.cli.numbers import counted, human_bytes, ranges
from ait_llm.core import StepRange
from ait_llm.dump.golden_tokens import GoldenTokens
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.torch_ledger import TorchProcess
from ait_llm.dump.torch_run import TorchDumpPlan
from ait_llm.dump.torch_summary import TorchSummary


def describe_torch_plan(plan: TorchDumpPlan) -> str:
    """What will be written and where."""
    settings = plan.settings
    device = "all devices" if settings.device_id is None else f"device {settings.device_id}"
    lines = [
        ("run", shlex.join(plan.words)),
        ("write", ", ".join(_what(settings))),
        ("of", f"{_selection(settings)}; {step_ranges(settings.steps)}; {device}"),
        ("into", f"{settings.dump_dir} ({human_bytes(plan.free_bytes)} free)"),
    ]
    if plan.earlier is not None:
        lines.append(("note", plan.earlier))
    if plan.golden is not None:
        lines.append(("follow", _golden(plan.golden)))
    if settings.observe:
        lines.append(
            (
                "then",
                "run it again without the capture, unheard, and compare what its models return",
            )
        )
    return table("ait llm dump", lines)


def _golden(golden: GoldenTokens) -> str:
    """Whose tokens are taken, and how many there are."""
    what = f"{counted(golden.generations, 'generation')}, {counted(golden.steps, 'token')} at most"
    return f"{golden.path} ({what})"


def _what(settings: TorchSettings) -> Iterator[str]:
    if settings.is_inductor:
        yield f"{_sides(settings)} of every kernel that Inductor makes of compiled graphs"
        if settings.weights:
            yield "weights"
        return
    if settings.is_gguf:
        yield f"{_sides(settings)} of every node of the graphs that llama.cpp evaluates"
        return
    if settings.is_onnx:
        yield f"{_sides(settings)} of every node of the graphs that ONNX Runtime runs"
        return
    if settings.is_compiled:
        yield f"{_sides(settings)} of every node of compiled graphs, run operator by operator"
        return
    if settings.is_api:
        saved = "statistics" if settings.statistics else "tensors"
        written = "descriptions" if settings.description_only else saved
        yield f"{written} of {_sides(settings)} of API calls and modules, in msprobe's files"
        return
    content = ["tensors"] if settings.data else ["descriptions"] if settings.descriptions else []
    content += ["statistics"] if settings.statistics else []
    operators = "operators of the code of modules itself" if settings.own_code else "operators"
    levels = (("modules", settings.modules), (operators, settings.operators))
    what = " and ".join(name for name, wanted in levels if wanted)
    yield f"{' and '.join(content)} of {_sides(settings)} of {what}"
    if settings.weights:
        yield "weights"


def _sides(settings: TorchSettings) -> str:
    sides = (("inputs", settings.inputs), ("outputs", settings.outputs))
    return " and ".join(name for name, wanted in sides if wanted)


def _selection(settings: TorchSettings) -> str:
    if settings.is_compiled:
        if settings.type_prefixes:
            return "targets starting with " + " or ".join(settings.type_prefixes)
        if settings.is_gguf:
            return "all contexts"
        return "all sessions" if settings.is_onnx else "all graphs of torch.compile"
    wanted = []
    if settings.type_prefixes:
        wanted.append("of classes starting with " + " or ".join(settings.type_prefixes))
    if settings.module_names:
        wanted.append("named " + " or ".join(settings.module_names))
    if settings.layers:
        wanted.append(f"in layers {StepRange(settings.layers)}")
    return "modules " + " and ".join(wanted) if wanted else "all modules"


def describe_torch_summary(summary: TorchSummary) -> str:
    """What came back, what is missing, and what to do next."""
    lines: list[tuple[str, str]] = []
    if summary.exit_code:
        lines.append(("program", ending(summary.exit_code)))
    lines += [("process", _process(process)) for process in summary.processes[:MANY_PROCESSES]]
    more = len(summary.processes) - MANY_PROCESSES
    if more > 0:
        lines.append(("", f"and {more} more processes (all of them with --json)"))
    if summary.processes:
        lines.append(
            (
                "total",
                f"{_calls(summary.processes)}, "
                f"{counted(summary.total('tensors'), 'tensor')}, "
                f"{human_bytes(summary.total('bytes'))}; tokens {ranges(summary.steps) or 'none'}",
            )
        )
    lines += [("missing", text) for text in summary.problems]
    lines += [("note", text) for text in summary.notes]
    if summary.complete and summary.processes:
        lines.append(("lost", "nothing; every process sealed its ledger"))
    if summary.observation is not None:
        verdict = summary.observation.verdict
        lines.append(("observer", f"{verdict}: {summary.observation.detail}"))
    if (next_command := torch_what_next(summary)) is not None:
        lines.append(("next", next_command))
    return table(f"ait llm dump: {'complete' if summary.complete else 'INCOMPLETE'}", lines)


def torch_what_next(summary: TorchSummary) -> str | None:
    """The command that looks at what was captured; None if there is nothing to look at."""
    if not summary.total("modules") + summary.total("operators"):
        return None
    return shlex.join(["ait", "llm", "show", str(summary.dump_dir)])


def _process(process: TorchProcess) -> str:
    if process.sealed:
        state = f"sealed at {process.end}"
    else:
        state = "still running" if process.running else "NOT SEALED"
    return (
        f"{process.pid} on {process.device}: tokens {ranges(sorted(process.steps)) or 'none'}, "
        f"{_calls([process])}, {_content(process)}; {state}"
    )


def _content(process: TorchProcess) -> str:
    if not process.tensors and process.states["described"]:
        return "described in statistics.csv"
    return (
        counted(process.tensors, "tensor")
        + (f" ({process.weights} of them weights)" if process.weights else "")
        + f", {human_bytes(process.bytes)}"
    )


def _calls(processes: Sequence[TorchProcess]) -> str:
    operators = sum(process.operators for process in processes)
    if processes and all(process.is_fx for process in processes):
        return counted(operators, "node")
    texts = [counted(sum(process.modules for process in processes), "module call")]
    if operators:
        texts.append(counted(operators, "operator call"))
    return ", ".join(texts)
