"""``ait llm invariant``: one program in, what its answer must not depend on out."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ait_llm.cli.completed import CompletedWords
from ait_llm.cli.console import say, tell
from ait_llm.cli.invariant_text import describe_result, next_step, run_line
from ait_llm.cli.machine import emit
from ait_llm.cli.params import (
    ManyOption,
    WordsCommand,
    comma_list,
    json_option,
    message_options,
    steps_option,
)
from ait_llm.cli.runs_folder import keep_result, runs_option, unused_folder
from ait_llm.cli.summaries import Build, summary_option
from ait_llm.core import Registry, StepRange
from ait_llm.dump.changes.catalogue import CHANGES
from ait_llm.invariance.running import Request, run_changes
from ait_llm.invariance.summary import invariant_summary, invariant_tables
from ait_llm.probe import split_command
from ait_llm.probe.launch import resolve_program

RESULT = "invariant.json"
_FOLDER = "ait_invariant"
_TYPES = {"torch": ("torch",), "torch-op": ("torch", "torch-op")}
_known: Registry[str] = Registry("change")
for _name in CHANGES:
    _known.register(_name)(_name)


def _changes(
    _ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    names = dict.fromkeys(name for text in value or () for name in comma_list(text))
    return tuple(_known.get(name) for name in names) or tuple(CHANGES)


@click.command(cls=WordsCommand)
@click.option(
    "--exec",
    "command",
    required=True,
    metavar="COMMAND",
    help='Command that runs the program, such as "python generate.py". It is started without a '
    "shell, once as it is and once for each change.",
)
@click.option(
    "--changes",
    cls=ManyOption,
    type=CompletedWords(lambda: tuple(CHANGES)),
    callback=_changes,
    metavar="NAME ...",
    help="Changes to make: " + ", ".join(CHANGES) + ".  [default: all]",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice(tuple(_TYPES)),
    default="torch-op",
    show_default=True,
    help="What is captured: modules, or modules and aten operators, which are then named.",
)
@steps_option("0,3")
@runs_option(_FOLDER)
@click.option("--keep", is_flag=True, help="Keep the captures of changes that show nothing, too.")
@summary_option
@message_options
@json_option
@click.pass_context
def invariant(
    ctx: click.Context,
    /,
    command: str,
    changes: tuple[str, ...],
    kind: str,
    steps: StepRange,
    output: Path,
    keep: bool,
    formats: tuple[str, ...],
    log_level: str,
    as_json: bool,
) -> None:
    """Tell whether an answer depends on what it must not depend on, without a trusted run.

    \b
    ait llm invariant --exec "python generate.py"
    ait llm invariant --exec "python generate.py" --changes batch padding-left memory

    Runs the program as it is and with each change (in a batch, padded, in chunks, without a cache,
    with other threads and other bytes in new memory, …) and compares the runs. Programs of
    transformers need no preparation. Exits with 0 if every change that applies holds, with 1 if
    one changes more than rounding may, with 3 if one cannot be decided, with 6 if the program fails
    as it is.
    """
    words = split_command(command)
    resolve_program(words, os.environ)
    request = Request(
        tuple(words),
        unused_folder(output, _FOLDER),
        changes,
        _TYPES[kind],
        steps,
        keep,
    )
    say(f"ait llm invariant: {len(changes) + 1} runs below {request.folder}")
    result = run_changes(request, os.environ, lambda name, outcome: say(run_line(name, outcome)))
    written = [keep_result(request.folder / RESULT, result.as_dict())]
    build = Build(formats, request.folder, "invariant")
    files = [*written, *(path for each in result.outcomes for path in each.reports), *build.files()]
    following = next_step(result)
    tell(describe_result(result, files, following), result.code, as_json=as_json)
    if as_json:
        emit("invariant", {**result.as_dict(), "next": following or None}, lead="\n")
    summary = invariant_summary(result, result.code, files, following)
    build.publish(summary, as_json=as_json, tables=invariant_tables(result))
    ctx.exit(result.code)
