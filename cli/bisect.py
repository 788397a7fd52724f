"""``ait llm bisect``: two programs in, the operator where they part out, for few bytes."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Literal

import click

from ait_llm.bisect import Bisection, Budget, Program, bisect
from ait_llm.bisect.running import ProgramRunner
from ait_llm.bisect.summary import bisect_summary
from ait_llm.cli.bisect_text import next_step, result_lines, run_line
from ait_llm.cli.console import EXITS, say, tell
from ait_llm.cli.machine import emit
from ait_llm.cli.params import (
    WordsCommand,
    json_option,
    message_options,
    parse_size,
    steps_option,
)
from ait_llm.cli.runs_folder import keep_result, runs_option, unused_folder
from ait_llm.cli.summaries import Build, summary_option
from ait_llm.core import StepRange
from ait_llm.errors import UsageError
from ait_llm.probe import split_command

RESULT = "bisect.json"
_FOLDER = "ait_bisect"
_EXITS = {
    **EXITS,
    3: "the operator could not be told",
    5: "a program does not repeat itself",
    6: "a program failed",
}


def _budget(ctx: click.Context, param: click.Parameter, value: str) -> Budget:
    percent = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", value.strip())
    if percent is None:
        size = parse_size(ctx, param, value)
        if size:
            return Budget(bytes=size)
    elif 0 < float(percent[1]) <= 100:
        return Budget(share=float(percent[1]) / 100)
    raise UsageError(f"--budget {value!r} is nothing; write a size like 200M or a share like 5%")


@click.command("bisect", cls=WordsCommand)
@click.option(
    "--exec",
    "command",
    required=True,
    metavar="COMMAND",
    help="Command that runs the program under suspicion. It is started without a shell: put "
    "redirections and pipes into a script.",
)
@click.option(
    "--golden-exec",
    "golden_command",
    required=True,
    metavar="COMMAND",
    help="Command that runs the trusted program.",
)
@click.option(
    "--budget",
    default="200M",
    show_default=True,
    callback=_budget,
    metavar="SIZE",
    help="Bytes that all runs together may write, such as 200MB, or a share of what full dumps "
    "of both programs would take, such as 5%.",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice(["auto", "atb", "torch"]),
    default="auto",
    show_default=True,
    help="What the program under suspicion computes with.",
)
@click.option(
    "--golden-type",
    "golden_kind",
    type=click.Choice(["auto", "atb", "torch"]),
    default="auto",
    show_default=True,
    help="What the trusted program computes with.",
)
@steps_option("0,1")
@click.option(
    "--runs",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Runs of the program under suspicion that are compared with each other, to see whether "
    "it repeats itself; 1 to do without.",
)
@runs_option(_FOLDER)
@summary_option
@click.option("--clean", is_flag=True, help="Remove the dumps at the end and keep the result.")
@message_options
@json_option
@click.pass_context
def bisect_command(
    ctx: click.Context,
    /,
    command: str,
    golden_command: str,
    budget: Budget,
    kind: str,
    golden_kind: str,
    steps: StepRange,
    runs: int,
    output: Path,
    formats: tuple[str, ...],
    clean: bool,
    log_level: str,
    as_json: bool,
) -> None:
    """Find the operator where two programs part, without a full dump of either.

    \b
    ait llm bisect --exec "bash mine.sh" --golden-exec "bash golden.sh" --budget 200MB -o out

    Statistics of all operators are captured first, then values around the first difference only,
    then the operators in the module that is named, and the operator is computed once more from
    its own inputs. Exits with 0 if the programs do not differ, with 1 if an operator is named,
    with 3 if it cannot be told, with 5 if a program does not repeat itself, and with 6 if one
    fails.
    """
    request = Bisection(
        Program("mine", tuple(split_command(command)), _kind(kind)),
        Program("golden", tuple(split_command(golden_command)), _kind(golden_kind)),
        budget,
        unused_folder(output, _FOLDER),
        steps,
        runs,
    )
    say(f"ait llm bisect: at most {_words(budget)} below {request.folder}")
    try:
        result = bisect(
            request,
            ProgramRunner(os.environ),
            on_run=lambda record: say(run_line(record)),
        )
        keep_result(result.folder / RESULT, result.as_dict())
    finally:
        if clean:
            _remove_dumps(request.folder)
    code = result.exit_code
    tell("\n".join(result_lines(result, cleaned=clean)), code, as_json=as_json, own=_EXITS)
    if as_json:
        emit("bisect", result.as_dict())
    following = "" if clean else next_step(result) or ""
    summary = bisect_summary(result, code, following)
    Build(formats, result.folder, "bisect").publish(summary, as_json=as_json)
    ctx.exit(code)


def _kind(name: str) -> Literal["atb", "torch"] | None:
    return "atb" if name == "atb" else "torch" if name == "torch" else None


def _words(budget: Budget) -> str:
    if budget.bytes is not None:
        return f"{budget.bytes:,} bytes"
    assert budget.share is not None
    return f"{100 * budget.share:g} % of full dumps"


def _remove_dumps(folder: Path) -> None:
    """Everything but the result."""
    for path in folder.glob("*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
