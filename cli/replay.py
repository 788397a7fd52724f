"""``ait llm replay``: the captured graph computed again with golden operators."""

from __future__ import annotations

from pathlib import Path

import click

from ait_llm.cli.console import say, tell
from ait_llm.cli.machine import emit
from ait_llm.cli.params import (
    ListOption,
    WordsCommand,
    allow_skip_option,
    comma_list,
    input_path,
    json_option,
    message_options,
    output_path,
)
from ait_llm.cli.replay_text import as_dict, summary_lines
from ait_llm.cli.summaries import Build, summary_option
from ait_llm.errors import UsageError
from ait_llm.program.one_pass import Pass
from ait_llm.replay import MODES
from ait_llm.replay import replay as replay_dump
from ait_llm.replay.summary import replay_summary


def _steps(_ctx: click.Context, _param: click.Parameter, value: str | None) -> list[int] | None:
    """``0,2-4`` as numbers.

    Raises:
        UsageError: something else.
    """
    if value is None:
        return None
    found: list[int] = []
    for item in comma_list(value):
        first, dash, last = (part.strip() for part in item.partition("-"))
        if not (first.isdecimal() and (last.isdecimal() if dash else True)):
            raise UsageError(f"--steps {value!r}: {item!r} is no step; write it like 0,2-4")
        low, high = int(first), int(last or first)
        if high < low or high - low > 100_000:
            raise UsageError(f"--steps {value!r}: {item!r} ends before it starts, or is too long")
        found += range(low, high + 1)
    return found


@click.command(cls=WordsCommand)
@click.option(
    "--dump",
    "path",
    required=True,
    callback=input_path,
    metavar="DIR",
    help="A dump of ait llm dump --type model layer tensor, or a folder in it.",
)
@click.option(
    "-o",
    "--output",
    default="./replay",
    show_default=True,
    callback=output_path,
    metavar="DIR",
    help="Directory for the golden dump, which becomes ait_dump in it.",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help="What operators start from. 'end-to-end': the inputs and weights of the graph alone; "
    "'local': each operator its dumped inputs; 'hybrid': end-to-end up to --until, local after "
    "it.  [default: end-to-end, with --until hybrid]",
)
@click.option(
    "--until",
    metavar="OP",
    help="Id of the last operation that gets golden inputs: 2_0_1, or 2 for all within it.  "
    "[default: the last]",
)
@click.option(
    "--steps",
    cls=ListOption,
    callback=_steps,
    metavar="STEP,...",
    help="Only these forward passes: 0,2-4. Pass 0 is the prefill.  [default: all]",
)
@summary_option
@allow_skip_option
@json_option
@message_options
@click.pass_context
def replay(
    ctx: click.Context,
    /,
    path: Path,
    output: Path,
    mode: str | None,
    until: str | None,
    steps: list[int] | None,
    formats: tuple[str, ...],
    allow_skip: bool,
    as_json: bool,
    log_level: str,
) -> None:
    """Compute a captured graph again with golden operators, on the CPU.

    \b
    ait llm replay --dump out/ait_dump -o golden
    ait llm compare -gp golden/ait_dump -mp out/ait_dump

    Nothing but the inputs and weights of the graph is used, so every tensor of the result is what
    a right run would have made; no PyTorch model is needed. Exits with 3 if an operator could not
    be computed, or something that the graph starts from was not captured.
    """

    def follow(run: Pass) -> None:
        say(f"replaying step {run.step} of process {run.pid}")

    chosen = next((each for each in MODES if each == mode), None)
    outcome = replay_dump(path, output, mode=chosen, until=until, steps=steps, on_pass=follow)
    code = outcome.exit_code(allow_skip=allow_skip)
    build = Build(formats, output, "replay")
    lines = [*summary_lines(outcome), *(f"  summary   {path}" for path in build.files())]
    tell("\n".join(lines), code, as_json=as_json)
    if as_json:
        emit("replay", as_dict(outcome, allow_skip))
    build.publish(replay_summary(outcome, code), as_json=as_json)
    ctx.exit(code)
