"""``ait llm transplant``: two programs in, the differences that matter for the answer out."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ait_llm.cli.console import EXITS, say, tell
from ait_llm.cli.machine import emit
from ait_llm.cli.params import (
    WordsCommand,
    input_path,
    json_option,
    message_options,
    steps_option,
)
from ait_llm.cli.runs_folder import keep_result, runs_option, unused_folder
from ait_llm.cli.summaries import Build, summary_option
from ait_llm.cli.transplant_text import describe_result
from ait_llm.cli.two_sides import golden_options, suspected_side, trusted_side
from ait_llm.core import StepRange
from ait_llm.errors import UsageError
from ait_llm.transplanting.running import Request, transplant_dump, transplant_programs
from ait_llm.transplanting.summary import transplant_summary, transplant_tables

RESULT = "transplant.json"
_FOLDER = "ait_transplant"
_FEWEST = 4
_EXITS = {**EXITS, 3: "the differences that matter could not be told", 6: "a program failed"}
_TYPES = {"torch": ("torch",), "torch-op": ("torch", "torch-op")}


@click.command(cls=WordsCommand)
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    help="Command that runs the program under suspicion. It is started without a shell, once for "
    "each trial. Needs a trusted side.  [default: none]",
)
@click.option(
    "-mp",
    "--my-path",
    callback=input_path,
    metavar="PATH",
    help="In place of --exec a dump of the acceleration library, whose graph is computed again; "
    "its trusted side are golden operators.  [default: none]",
)
@golden_options
@click.option(
    "--type",
    "kind",
    type=click.Choice(tuple(_TYPES)),
    default="torch-op",
    show_default=True,
    help="What is captured: modules, or modules and aten operators, which are then named.",
)
@steps_option("0,0")
@click.option(
    "--runs",
    type=click.IntRange(_FEWEST),
    default=60,
    show_default=True,
    help="Runs of the program under suspicion, at most.",
)
@runs_option(_FOLDER)
@click.option("--keep", is_flag=True, help="Keep the captures and the values of all runs.")
@summary_option
@message_options
@json_option
@click.pass_context
def transplant(
    ctx: click.Context,
    /,
    command: str | None,
    my_path: Path | None,
    golden_command: str | None,
    golden_path: Path | None,
    kind: str,
    steps: StepRange,
    runs: int,
    output: Path,
    keep: bool,
    formats: tuple[str, ...],
    log_level: str,
    as_json: bool,
) -> None:
    """Tell which difference from a trusted run matters for the answer.

    \b
    ait llm transplant --exec "python new.py" --golden-exec "python old.py"
    ait llm transplant --exec "python new.py" -gp golden
    ait llm transplant -mp atb_dump

    Runs the program again with golden's values in place of its own at some operators, and
    measures what becomes of the answer. Names the smallest set of operators that heals it, and how
    much each of them explains. Exits with 0 if the answer is golden's within rounding, with 1 if
    the set is found, with 3 if it is not, with 6 if a program fails.
    """
    if my_path is not None and (golden_command is not None or golden_path is not None):
        raise UsageError(
            "--my-path is compared with golden operators; leave the trusted side out, or give "
            "--exec for a program that can run again"
        )
    mine = suspected_side(command, my_path)
    if isinstance(mine, Path):
        folder = unused_folder(output, _FOLDER)
        say(f"ait llm transplant: computed below {folder}")
        result = transplant_dump(mine, folder, runs, keep=keep, tell=say)
    else:
        golden = trusted_side(golden_command, golden_path)
        folder = unused_folder(output, _FOLDER)
        request = Request(mine, golden, folder, _TYPES[kind], steps, runs, keep)
        say(f"ait llm transplant: runs below {folder}")
        result = transplant_programs(request, os.environ, say)
    build = Build(formats, folder, "transplant")
    files = [keep_result(folder / RESULT, result.as_dict()), *build.files()]
    tell(describe_result(result, files), result.code, as_json=as_json, own=_EXITS)
    if as_json:
        emit("transplant", result.as_dict(), lead="\n")
    summary = transplant_summary(result, files)
    build.publish(summary, as_json=as_json, tables=transplant_tables(result))
    ctx.exit(result.code)
