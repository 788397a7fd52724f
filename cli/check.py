"""``ait llm check``: capture, golden run and comparison in one command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from ait_llm.cli.compare import FORMATS, compare
from ait_llm.cli.completed import CompletedWords
from ait_llm.cli.console import say
from ait_llm.cli.golden_options import golden_options, golden_settings
from ait_llm.cli.params import (
    ManyOption,
    WordsCommand,
    absolute_path,
    allow_skip_option,
    comma_list,
    json_option,
    message_options,
)
from ait_llm.cli.results import report
from ait_llm.core import StepRange
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.errors import FormatError, code_of_failed
from ait_llm.probe import split_command

_TYPES = ("torch", "torch-op")


def _formats(
    _ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for text in value for name in comma_list(text)))


@click.command(cls=WordsCommand)
@click.option(
    "--exec",
    "command",
    required=True,
    metavar="COMMAND",
    help='Command that runs the program, such as "python serve.py". It is started without a shell.',
)
@click.option(
    "--type",
    "kind",
    type=click.Choice(_TYPES),
    default="torch",
    show_default=True,
    help="What is captured of it: modules, or modules and aten operators.",
)
@click.option(
    "-o",
    "--output",
    default="./check",
    show_default=True,
    callback=absolute_path,
    metavar="DIR",
    help="Directory for the capture (mine), the golden run (golden) and the reports.",
)
@click.option(
    "--format",
    "formats",
    cls=ManyOption,
    type=CompletedWords(lambda: FORMATS),
    callback=_formats,
    metavar="NAME ...",
    help="Reports to write, as in ait llm compare.  [default: csv]",
)
@click.option(
    "--tokens",
    type=click.IntRange(1),
    metavar="N",
    help="Steps that are captured and checked, the prompt first.  [default: all]",
)
@golden_options
@message_options
@allow_skip_option
@json_option
@click.pass_context
def check(
    ctx: click.Context,
    /,
    command: str,
    kind: str,
    output: Path,
    formats: tuple[str, ...],
    tokens: int | None,
    allow_skip: bool,
    as_json: bool,
    log_level: str,
    **options: Any,  # those of a golden run
) -> None:
    """Tell whether a program computes what its checkpoint says, and if not, where it goes wrong.

    \b
    ait llm check --model CHECKPOINT --exec "python generate.py"
    ait llm check --model CHECKPOINT --exec "python vllm_offline.py" --tokens 4

    Captures the program, runs the checkpoint in transformers on the same tokens, and compares the
    two. Exits like ait llm compare: with 0 if everything was compared and passed, with 1 if a
    tensor fails, with 3 if something could not be compared, with 6 if the program fails.
    """
    from ait_llm.cli.golden_text import describe_golden_plan, describe_golden_summary
    from ait_llm.cli.torch_text import describe_torch_plan, describe_torch_summary
    from ait_llm.dump.golden.checkpoint import open_checkpoint
    from ait_llm.dump.golden.run import plan_golden, run_golden
    from ait_llm.dump.torch_run import plan_torch_dump, run_torch_dump

    open_checkpoint(options["model"], trusted=options["trusted"])  # before minutes of work
    mine, golden = output / "mine", output / "golden"
    types = ("torch",) if kind == "torch" else ("torch", "torch-op")
    settings = TorchSettings(
        output=mine,
        types=types,
        steps=StepRange.parse("all" if tokens is None else f"0,{tokens - 1}"),
    )
    capture = plan_torch_dump(split_command(command), settings, os.environ)
    say(describe_torch_plan(capture))
    captured = run_torch_dump(capture, os.environ)
    report(describe_torch_summary(captured), captured)
    if captured.exit_code:
        ctx.exit(code_of_failed(captured.exit_code))
    if not captured.processes:
        raise FormatError(mine, "holds no capture: the program ran no model of PyTorch")
    plan = plan_golden(golden_settings(mine, golden, options))
    say(describe_golden_plan(plan))
    made = run_golden(plan)
    report(describe_golden_summary(made, None), made)
    ctx.invoke(
        compare,
        golden_path=golden,
        my_path=mine,
        output=output,
        formats=formats,
        allow_skip=allow_skip,
        as_json=as_json,
        log_level=log_level,
    )
