"""``ait llm tokens``: two runs in, what each thought of its tokens out."""

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
from ait_llm.cli.tokens_text import describe_result
from ait_llm.cli.two_sides import golden_options, suspected_side, trusted_side
from ait_llm.core import StepRange
from ait_llm.decisions.running import tokens_of_dumps, tokens_of_programs
from ait_llm.decisions.summary import tokens_summary, tokens_tables
from ait_llm.errors import UsageError
from ait_llm.transplanting.running import Request

RESULT = "tokens.json"
_FOLDER = "ait_tokens"
_EXITS = {**EXITS, 3: "why a token differs could not be told", 6: "a program failed"}


@click.command(cls=WordsCommand)
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    help="Command that runs the program under suspicion. It is started without a shell, a few "
    "times where tokens differ.  [default: none]",
)
@click.option(
    "-mp",
    "--my-path",
    callback=input_path,
    metavar="PATH",
    help="In place of --exec a dump of that program with values; which operator changed a token "
    "is not told then.  [default: none]",
)
@golden_options
@steps_option("0,3")
@runs_option(_FOLDER)
@click.option("--keep", is_flag=True, help="Keep the captures and the values of all runs.")
@summary_option
@message_options
@json_option
@click.pass_context
def tokens(
    ctx: click.Context,
    /,
    command: str | None,
    my_path: Path | None,
    golden_command: str | None,
    golden_path: Path | None,
    steps: StepRange,
    output: Path,
    keep: bool,
    formats: tuple[str, ...],
    log_level: str,
    as_json: bool,
) -> None:
    """Tell why a token is another one: by rounding, or by which operator.

    \b
    ait llm tokens --exec "python new.py" --golden-exec "python old.py" -er 0,15
    ait llm tokens -gp golden -mp mine

    Compares what both programs thought of each token: margins, probabilities, and how far they
    drift. Where a token differs, the program runs again to tell what each module's own error did
    to the choice. Exits with 0 if no token differs by more than rounding, with 1 if one does or
    tokens are chosen by other settings, with 3 if that is not known, with 6 if a program fails.
    """
    golden = trusted_side(golden_command, golden_path)
    mine = suspected_side(command, my_path)
    if isinstance(mine, Path):
        if not isinstance(golden, Path):
            raise UsageError("a dump is compared with a dump; give --golden-path with --my-path")
        result = tokens_of_dumps(golden, mine)
        folder = unused_folder(output, _FOLDER)
    else:
        folder = unused_folder(output, _FOLDER)
        say(f"ait llm tokens: runs below {folder}")
        request = Request(mine, golden, folder, ("torch",), steps, keep=keep)
        result = tokens_of_programs(request, os.environ, lambda text: say(f"run: {text}"))
    build = Build(formats, folder, "tokens")
    files = [keep_result(folder / RESULT, result.as_dict()), *build.files()]
    tell(describe_result(result, files), result.code, as_json=as_json, own=_EXITS)
    if as_json:
        emit("tokens", result.as_dict(), lead="\n")
    summary = tokens_summary(result, files)
    build.publish(summary, as_json=as_json, tables=tokens_tables(result))
    ctx.exit(result.code)
