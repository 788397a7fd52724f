"""``ait llm golden``: the trusted side of a comparison, made from the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ait_llm.cli.console import say
from ait_llm.cli.golden_options import golden_options, golden_settings, part_options
from ait_llm.cli.params import (
    WordsCommand,
    absolute_path,
    allow_skip_option,
    input_path,
    json_option,
    message_options,
)
from ait_llm.cli.results import finish, report


@click.command(cls=WordsCommand)
@click.option(
    "--like",
    required=True,
    callback=input_path,
    metavar="PATH",
    help="The capture whose requests and tokens it reads: a dump of any kind that shows them.",
)
@click.option(
    "-o",
    "--output",
    default="./golden",
    show_default=True,
    callback=absolute_path,
    metavar="DIR",
    help="Directory that ait_dump is created in.",
)
@golden_options
@part_options
@message_options
@allow_skip_option
@json_option
@click.pass_context
def golden(
    ctx: click.Context,
    /,
    like: Path,
    output: Path,
    allow_skip: bool,
    as_json: bool,
    log_level: str,
    **options: Any,  # those of a golden run
) -> None:
    """Run a checkpoint in transformers on the tokens of a capture, to compare it with.

    \b
    ait llm golden --model CHECKPOINT --like mine -o golden
    ait llm compare -gp golden -mp mine -o report

    Every pass of the capture is computed again, row by row, with the same tokens, whatever the
    captured engine packed, padded, cached or read in chunks. Exits with 0 if all passes were, with
    3 if some could not be.
    """
    from ait_llm.cli.golden_text import (
        describe_golden_plan,
        describe_golden_summary,
        golden_what_next,
    )
    from ait_llm.dump.golden.run import plan_golden, run_golden

    plan = plan_golden(golden_settings(like, output, options))
    say(describe_golden_plan(plan))
    summary = run_golden(plan)
    next_command = golden_what_next(summary, like)
    report(describe_golden_summary(summary, next_command), summary)
    finish(ctx, summary, next_command, as_json, allow_skip, schema="golden")
