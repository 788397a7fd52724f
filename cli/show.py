"""``ait llm show``: list what a dump holds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from ait_llm.cli.console import say
from ait_llm.cli.fitted import fitted
from ait_llm.cli.machine import emit
from ait_llm.cli.numbers import ranges
from ait_llm.cli.params import OutputCommand, allow_skip_option, message_options
from ait_llm.cli.show_program import program_lines
from ait_llm.dumps import Dump, Process, Row, describe_file, open_dump
from ait_llm.dumps.describe import describe
from ait_llm.errors import IncompleteError, UsageError
from ait_llm.formats.load import is_tensor_file
from ait_llm.language import translate
from ait_llm.naming import told
from ait_llm.report.wording import printable
from ait_llm.storage import local_path
from ait_llm.topology import convert_topologies, find_graph_files


def _given(_ctx: click.Context, _param: click.Parameter, value: str) -> Path:
    return local_path(value)


@click.command(cls=OutputCommand)
@click.argument("path", callback=_given, metavar="PATH")
@click.option("--tensors", is_flag=True, help="Also list the tensors of each operation.")
@click.option("--token", "step", type=click.IntRange(0), help="Only this token.  [default: all]")
@click.option(
    "--program",
    is_flag=True,
    help="Show each forward pass as the matcher sees it: values and who reads them, roles, "
    "definitions, what the rows are. Reads values.",
)
@click.option(
    "--step",
    "number",
    type=click.IntRange(0),
    help="With --program: only the forward pass of this number.  [default: all]",
)
@click.option(
    "--all", "every", is_flag=True, help="With --program: also layers that are like another one."
)
@click.option(
    "--onnx",
    "onnx_folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write every graph of the dump as an ONNX model into this folder instead.  "
    "[default: list operations]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@allow_skip_option
@message_options
@click.pass_context
def show(
    ctx: click.Context,
    /,
    path: Path,
    tensors: bool,
    step: int | None,
    program: bool,
    number: int | None,
    every: bool,
    onnx_folder: Path | None,
    as_json: bool,
    allow_skip: bool,
    log_level: str,
) -> None:
    """List the operations of a dump in the order in which they ran.

    \b
    ait llm show out --tensors
    ait llm show out --program --step 0

    PATH is the output directory of a run, its ait_dump, or a folder in it, or one file of tensors;
    with --onnx it can be a graph file too. No values are read, except with --program. Exits with 3
    if the dump is not complete.
    """
    if onnx_folder is not None:
        ctx.exit(_write_onnx(path, onnx_folder))
    if not program and (number is not None or every):
        raise UsageError("--step and --all are for --program; --token selects what is listed")
    if path.is_file() and is_tensor_file(path):
        for row in describe_file(path):
            if as_json:
                emit("show", asdict(row))
            else:
                click.echo(fitted(printable(_tensor(row)), sys.stdout))
        return
    dump = open_dump(path)
    if program:
        for line in program_lines(dump, step=number, every=every, as_json=as_json):
            click.echo(fitted(printable(line), sys.stdout))
    elif as_json:
        for row in describe(dump, tensors=tensors, step=step):
            emit("show", asdict(row))
    else:
        for line in _lines(dump, tensors=tensors, step=step):
            click.echo(fitted(printable(line), sys.stdout))
    problems = [process.problem for process in dump.processes if process.problem is not None]
    for problem in problems:
        say(f"incomplete: {problem}")
    if problems and not allow_skip:
        ctx.exit(IncompleteError.exit_code)


def _write_onnx(path: Path, folder: Path) -> int:
    """Convert the graphs at a path; one that fails does not stop the others."""
    if not path.exists():
        raise UsageError(f"{path}: no such file or directory")
    files = list(find_graph_files(path)) if path.is_dir() else [path]
    if not files:
        raise UsageError(
            f"{path} holds no graph; capture it with --type model or --type fx, or with torchair's "
            "graph dump"
        )
    done = convert_topologies(files, folder)
    for written in done.written:
        click.echo(told(str(written)))
    for error in done.failed:
        click.echo(told(translate(f"error: {error}")), err=True)
    return IncompleteError.exit_code if done.failed else 0


def _lines(dump: Dump, *, tensors: bool, step: int | None) -> Iterator[str]:
    yield f"{dump.root}: dump of kind {dump.kind}"
    states = {f"{process.device}_{process.pid}": _state(process) for process in dump.processes}
    current = ""
    for row in describe(dump, tensors=tensors, step=step):
        if row.process != current:
            current = row.process
            yield f"process {current}: {states.pop(current, 'no ledger')}"
            yield f"  {'token':>5}  {'id':<12}  operation"
        yield _tensor(row) if row.tensor else _operation(row)
    for name, state in states.items():
        yield f"process {name}: {state}; nothing to list"


def _state(process: Process) -> str:
    end = {"sealed": f"sealed at {process.end}", "unknown": "no ledger"}.get(
        process.state, process.state
    )
    return f"tokens {ranges(process.steps) or 'none'}, {end}"


def _operation(row: Row) -> str:
    note = f"  ({row.note})" if row.note else ""
    name = f"{row.name}  " if row.name else ""
    indent = "  " * row.op_id.count("_")
    return f"  {row.step:>5}  {row.op_id:<12}  {indent}{name}{row.type}{note}"


def _tensor(row: Row) -> str:
    shape = f"[{row.shape}]" if row.dtype else ""  # what is no tensor has none
    text = f"{row.tensor:<28} {row.dtype:<9} {row.format:<10} {shape}"
    if row.note:
        text += f"  ({row.note})"
    return f"{'':24}{text}"
