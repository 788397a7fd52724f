"""``ait llm errcheck``: find where NaN, Inf and saturated values are born."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from ait_llm.cli.console import tell
from ait_llm.cli.engine_options import engine_options, take_engine
from ait_llm.cli.errcheck_text import describe_result, next_step
from ait_llm.cli.fitted import fitted
from ait_llm.cli.machine import emit
from ait_llm.cli.params import (
    ManyOption,
    WordsCommand,
    allow_skip_option,
    input_path,
    json_option,
    message_options,
    output_path,
    steps_option,
)
from ait_llm.cli.spoken import spoken
from ait_llm.cli.summaries import Build, places_in, summary_option
from ait_llm.compare import stop_on_signals
from ait_llm.core import StepRange
from ait_llm.errcheck.capture import TORCH_TYPES, Settings, check_program
from ait_llm.errcheck.check import check_dump
from ait_llm.errcheck.files import write_files
from ait_llm.errcheck.result import ErrcheckResult
from ait_llm.errcheck.summary import errcheck_summary
from ait_llm.errors import IncompleteError, UsageError, code_of_failed
from ait_llm.naming import told
from ait_llm.probe import split_command

_FOUND = 1
_OF_A_RUN = ("types", "stop", "values", "steps", "keep")


def _types(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value))


@click.command(cls=WordsCommand)
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    help='Command that runs the model, such as "bash run.sh". It is started without a shell: put '
    "redirections and pipes into a script.  [required, or --dump]",
)
@click.option(
    "--dump",
    "dump",
    callback=input_path,
    metavar="DIR",
    help="Check this dump, of any kind that ait llm show lists, instead of running a program.  "
    "[required, or --exec]",
)
@click.option(
    "--type",
    "types",
    cls=ManyOption,
    type=click.Choice(["overflow", *TORCH_TYPES]),
    default=("overflow",),
    callback=_types,
    help="What to look for: 'overflow' is NaN, Inf and saturated values. 'torch' looks for them in "
    "the modules of a PyTorch program instead of in ATB operations, 'torch-op' in its aten "
    "operators.  [default: overflow]",
)
@click.option("--exit", "stop", is_flag=True, help="Stop the operation that overflows (ATB).")
@click.option(
    "-o",
    "--output",
    "output",
    default="./",
    show_default=True,
    callback=output_path,
    metavar="DIR",
    help="Directory for the result files. None is written if nothing overflows.",
)
@click.option(
    "--values",
    is_flag=True,
    help="Capture all values while the program runs, which takes as much disk as a dump. Without, "
    "statistics are taken, on ATB with the values of tensors that are not clean. PyTorch programs "
    "need it to tell the first element, and padding from tokens.",
)
@steps_option(
    "all",
    "Tokens to check, as closed intervals: 3,5,7,7 is 3, 4, 5 and 7.",
)
@click.option("--keep", is_flag=True, help="Keep the capture as ait_dump in the output directory.")
@summary_option
@engine_options
@message_options
@allow_skip_option
@json_option
@click.pass_context
def errcheck(
    ctx: click.Context,
    /,
    command: str | None,
    dump: Path | None,
    types: tuple[str, ...],
    output: Path,
    formats: tuple[str, ...],
    allow_skip: bool,
    as_json: bool,
    stop: bool,
    values: bool,
    steps: StepRange,
    keep: bool,
    log_level: str,
    **engine_settings: Any,
) -> None:
    """Find where NaN, Inf and saturated values are born, and how far they go.

    \b
    ait llm errcheck --exec "bash run.sh" -o out
    ait llm errcheck --exec "python generate.py" --type torch
    ait llm errcheck --dump out

    The exit code is 1 if something was found, 3 if something could not be checked, and 6 if the
    program fails, or 128 plus the signal that ended it.
    """
    choice = take_engine(engine_settings)
    if (command is None) == (dump is None):
        raise UsageError("give either --exec with a command or --dump with a folder")
    if dump is not None:
        _refuse(ctx)
        with choice.open() as engine, stop_on_signals() as asked:
            result = check_dump(dump, engine=engine, stop=asked)
    elif choice.name != "local":
        raise UsageError(
            f"--engine {choice.name} is for --dump; a program runs where it is started"
        )
    else:
        assert command is not None
        settings = Settings(
            output=output,
            types=tuple(name for name in types if name in TORCH_TYPES),
            stop=stop,
            values=values,
            steps=steps,
            keep=keep,
            log_level=log_level,
        )
        result = check_program(split_command(command), settings, os.environ)
    build = Build(formats, output, "ait_errcheck")
    files = [*write_files(result, output), *build.files()]
    following = next_step(result, command)
    text = describe_result(result, files, following)
    code = _exit_code(result, allow_skip)
    if command is not None and code:  # stdout is the program's
        click.echo(fitted(told(spoken(text)), sys.stderr), err=True)
    else:
        tell(text, code, as_json=command is not None or as_json)
    if as_json:
        # On a line of its own even if the program left its last line open.
        lead = "\n" if command is not None else ""
        listed = {"found": result.found, "complete": result.complete}
        files_listed = {"files": [str(path) for path in files]}
        found = {**listed, **result.as_dict(), **files_listed}
        emit("errcheck", found, lead=lead)
    lines = places_in(dump, {each.place.name for each in result.harmful}, formats)
    summary = errcheck_summary(result, code, files, following, lines=lines)
    build.publish(summary, as_json=as_json)
    ctx.exit(code)


def _exit_code(result: ErrcheckResult, allow_skip: bool) -> int:
    if result.found:  # also by a program that then fails
        return _FOUND
    if result.exit_code:
        return code_of_failed(result.exit_code)
    return 0 if result.complete or allow_skip else IncompleteError.exit_code


def _refuse(ctx: click.Context) -> None:
    """Options of a run have nothing to say about a dump."""
    for param in ctx.command.params:
        source = ctx.get_parameter_source(param.name or "")
        if param.name in _OF_A_RUN and source is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(f"{param.opts[0]} is for --exec; a dump is what it is")
