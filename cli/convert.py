"""``ait llm convert``: tensor files from one format to another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ait_llm.cli.console import tell
from ait_llm.cli.engine_options import engine_options, take_engine
from ait_llm.cli.machine import emit
from ait_llm.cli.numbers import counted
from ait_llm.cli.params import (
    OutputCommand,
    allow_skip_option,
    input_path,
    json_option,
    message_options,
    output_path,
)
from ait_llm.cli.progress import ProgressLine
from ait_llm.compare import stop_on_signals
from ait_llm.convert import convert_files
from ait_llm.formats.save import SAVE_FORMATS

_TOLD = 10


@click.command(cls=OutputCommand)
@click.argument("source", callback=input_path, metavar="PATH")
@click.option(
    "-o",
    "--output",
    required=True,
    callback=output_path,
    metavar="DIR",
    help="Folder to write to; the tree of a source folder is kept.",
)
@click.option(
    "--to",
    "format_name",
    required=True,
    type=click.Choice(list(SAVE_FORMATS)),
    help="Format to write.",
)
@click.option("--name", metavar="TENSOR", help="Only the tensor of that name.  [default: all]")
@click.option("--overwrite", is_flag=True, help="Replace files that are there already.")
@click.option("-j", "--jobs", type=click.IntRange(1), default=2, show_default=True, help="Threads.")
@engine_options
@message_options
@allow_skip_option
@json_option
@click.pass_context
def convert(
    ctx: click.Context,
    /,
    source: Path,
    output: Path,
    format_name: str,
    name: str | None,
    overwrite: bool,
    jobs: int,
    allow_skip: bool,
    as_json: bool,
    log_level: str,
    **engine_settings: Any,
) -> None:
    """Convert a tensor file, or every one below a folder, to another format.

    \b
    ait llm convert out/ait_dump/tensors -o plain --to npy
    ait llm convert Add.Add_2.3.7.1732533825146000 -o plain --to pt

    Reads ATB .bin, .npy, .pt, .pth, .safetensors and dump files of the graph engine. Layouts of a
    device become row-major; a type that the format does not know is widened, no value changes.
    Exits with 3 if a file could not be converted.
    """
    choice = take_engine(engine_settings)
    given = ctx.get_parameter_source("jobs") is not click.core.ParameterSource.DEFAULT
    limit = jobs if given or choice.address is None else None  # a cluster has its own number
    with (
        choice.open(limit) as engine,
        stop_on_signals() as stop,
        ProgressLine() as progress,
    ):
        done = 0

        def count(_path: Path) -> None:
            nonlocal done
            done += 1
            progress.count("converted", done, "files")

        result = convert_files(
            source,
            output,
            format_name,
            name=name,
            overwrite=overwrite,
            jobs=jobs,
            engine=engine,
            stop=stop,
            on_file=count,
        )
    incomplete = bool(result.problems or result.stopped) or not result.files
    code = 3 if incomplete and not allow_skip else 0
    what = f"{counted(result.tensors, 'tensor')} in {counted(len(result.files), 'file')}"
    lines = [
        f"ait llm convert: {'INCOMPLETE' if incomplete else 'complete'}: {what} below {output}"
    ]
    lines += _listed("widened", result.widened)
    lines += _listed("missing", result.problems)
    if result.stopped:
        text = f"{counted(result.stopped, 'file')} left, because it was interrupted"
        lines.append(f"  missing {text}")
    if result.others:
        lines.append(f"  left    {counted(result.others, 'file')} without tensors")
    tell("\n".join(lines), code, as_json=as_json)
    if as_json:
        converted = {
            "exit_code": code,
            "complete": not incomplete,
            "tensors": result.tensors,
            "files": [str(path) for path in result.files],
            "widened": result.widened,
            "problems": result.problems,
            "others": result.others,
        }
        emit("convert", converted)
    ctx.exit(code)


def _listed(what: str, texts: list[str]) -> list[str]:
    lines = [f"  {what:<7} {text}" for text in texts[:_TOLD]]
    return lines + ([f"  {what:<7} and {len(texts) - _TOLD} more"] if len(texts) > _TOLD else [])
