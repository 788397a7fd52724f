"""``ait llm export``: a dump or a report in the format of another program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ait_llm.cli.console import tell
from ait_llm.cli.machine import emit
from ait_llm.cli.manual import ManualCommand
from ait_llm.cli.numbers import counted
from ait_llm.cli.params import (
    absolute_path,
    allow_skip_option,
    input_path,
    json_option,
    message_options,
)
from ait_llm.cli.progress import ProgressLine
from ait_llm.dumps import open_dump
from ait_llm.errors import UsageError
from ait_llm.report.files import make_folder

_TOLD = 10
_TARGETS = ("safetensors", "npz", "trace", "tensorboard")


@click.command(cls=ManualCommand)
@click.argument("source", callback=input_path, metavar="PATH")
@click.option("--to", "target", required=True, type=click.Choice(_TARGETS), help="What to write.")
@click.option(
    "-o",
    "--output",
    required=True,
    callback=absolute_path,
    metavar="PATH",
    help="File to write; of tensorboard the folder of the run.",
)
@click.option(
    "--report",
    callback=input_path,
    metavar="PATH",
    help="Jsonl report of a comparison with this dump, or its folder: errors for the trace."
    "  [default: none]",
)
@click.option("--overwrite", is_flag=True, help="Replace a file that is there already.")
@message_options
@allow_skip_option
@json_option
@click.pass_context
def export(
    ctx: click.Context,
    /,
    source: Path,
    target: str,
    output: Path,
    report: Path | None,
    overwrite: bool,
    allow_skip: bool,
    as_json: bool,
    log_level: str,
) -> None:
    """Write a dump, or a report of `ait llm compare`, for another program.

    \b
    ait llm export out --to safetensors -o tensors.safetensors
    ait llm export out --to npz -o tensors.npz
    ait llm export out --to trace --report report -o trace.json
    ait llm export report --to tensorboard -o runs/mine

    safetensors and npz take every tensor of a dump. trace has its operators as slices, and with a
    report their errors as counters, for ui.perfetto.dev. tensorboard has the errors of a report
    for each layer. Exits with 3 if a tensor could not be written.
    """
    if report is not None and target != "trace":
        raise UsageError(f"--report goes with --to trace, not with --to {target}")
    if target != "tensorboard" and output.exists() and not overwrite:
        raise UsageError(f"{output}: is there already; give --overwrite to replace it")
    make_folder(output.parent)
    if target == "tensorboard":
        lines, facts = _scalars(source, output)
    elif target == "trace":
        lines, facts = _trace(source, output, report)
    else:
        lines, facts = _tensors(source, output, target)
    complete = facts.get("complete", True)
    code = 0 if complete or allow_skip else 3
    head = f"ait llm export: {'complete' if complete else 'INCOMPLETE'}: {lines[0]}"
    tell("\n".join([head, *lines[1:]]), code, as_json=as_json)
    if as_json:
        result = {"exit_code": code, "complete": complete, "to": target, "output": str(output)}
        emit("export", {**result, **facts})
    ctx.exit(code)


Told = tuple[list[str], dict[str, Any]]
"""Lines for people, and the same for machines."""


def _tensors(source: Path, output: Path, target: str) -> Told:
    from ait_llm.export import export_tensors

    with ProgressLine() as progress:
        result = export_tensors(
            open_dump(source),
            output,
            target,
            on_tensor=lambda done: progress.count("exported", done, "tensors"),
        )
    lines = [f"{counted(result.tensors, 'tensor')} in {output}"]
    lines += _listed("widened", result.widened) + _listed("missing", result.problems)
    return lines, {
        "complete": not result.problems and result.tensors > 0,
        "tensors": result.tensors,
        "widened": list(result.widened),
        "problems": list(result.problems),
    }


def _trace(source: Path, output: Path, report: Path | None) -> Told:
    from ait_llm.export import export_trace
    from ait_llm.report import read_jsonl

    read = None if report is None else read_jsonl(_report_file(report))
    result = export_trace(open_dump(source), output, read)
    lines = [f"{counted(result.operations, 'operation')} in {output}"]
    lines.append(
        f"  times   of {counted(result.timed, 'operation')}; others are 1 us wide, in order"
    )
    if report is not None:
        lines.append(f"  errors  of {counted(result.errors, 'operation')}")
    counts = ("operations", "timed", "errors")
    return lines, {name: getattr(result, name) for name in counts}


def _scalars(source: Path, output: Path) -> Told:
    from ait_llm.export import export_scalars
    from ait_llm.report import read_jsonl

    count = export_scalars(read_jsonl(_report_file(source)), output)
    return [f"{counted(count, 'scalar')} below {output}"], {"scalars": count}


def _report_file(path: Path) -> Path:
    """The report itself, or the latest one of the folder that a comparison wrote to.

    Raises:
        UsageError: there is none.
    """
    if not path.is_dir():
        return path
    found = sorted(path.glob("ait_cmp_report_*.jsonl"))  # with the time in their names
    if not found:
        raise UsageError(f"{path}: holds no jsonl report; compare with --format jsonl")
    return found[-1]


def _listed(what: str, texts: list[str]) -> list[str]:
    lines = [f"  {what:<7} {text}" for text in texts[:_TOLD]]
    return lines + ([f"  {what:<7} and {len(texts) - _TOLD} more"] if len(texts) > _TOLD else [])
