"""``ait llm plan``: what a capture would write, before it is run."""

from __future__ import annotations

import copy
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ait_llm.cli.dump import dump
from ait_llm.cli.machine import emit
from ait_llm.cli.params import WordsCommand, absolute_path, parse_size
from ait_llm.cli.plan_text import describe
from ait_llm.cli.spoken import spoken
from ait_llm.cli.torch_dump import TORCH_OPTIONS, uses_torch
from ait_llm.core import StepRange
from ait_llm.dump.atb import START_TIME_FORMAT
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.errors import UsageError
from ait_llm.naming import told
from ait_llm.plan.disk import Disk, look_at_disk
from ait_llm.plan.meta_program import MetaRequest
from ait_llm.plan.model_config import read_model_config
from ait_llm.plan.pipeline import make_plan
from ait_llm.plan.survey import Surveyed, survey_atb, survey_model, survey_torch
from ait_llm.probe import ProbeConfig, SaveTime, TensorPart, split_command

_NO_COMMAND = "bash run.sh"
"""What stands for the program in the commands that are proposed for a ``config.json``."""
# What is about a capture that runs.
_NOT_PLANNED = ("start", "control", "most_bytes", "record_arguments")
_STEPS = 32  # of a model, with -er all
_DTYPES = ("float32", "float16", "bfloat16", "float64")
_OF_MODELS = ("prompt", "batch", "tokens", "dtype")


def _budget(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    return None if value is None else parse_size(ctx, param, value)


@click.command("plan", cls=WordsCommand)
@click.option(
    "--model",
    "model",
    metavar="FILE",
    callback=absolute_path,
    help="In place of --exec: config.json of a Hugging Face model. It is run on shapes, without "
    "weights.  [required, or --exec]",
)
@click.option(
    "--prompt-len",
    "prompt",
    type=click.IntRange(1, 1 << 24),
    default=32,
    show_default=True,
    help="With --model: tokens of the prompt.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 1 << 20),
    default=1,
    show_default=True,
    help="With --model: number of sequences.",
)
@click.option(
    "--tokens",
    type=click.IntRange(1, 1 << 24),
    help="With --model: tokens that are generated.  [default: as many as -er asks for]",
)
@click.option(
    "--dtype", type=click.Choice(_DTYPES), help="With --model: element type.  [default: its own]"
)
@click.option(
    "--budget",
    callback=_budget,
    metavar="SIZE",
    help="Bytes that may be written, such as 10GB: propose captures that fit.  [default: none]",
)
@click.option(
    "--no-measure",
    is_flag=True,
    help="Assume how fast the disk is, and do not write 64 MiB to it to find out.",
)
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    model: Path | None,
    prompt: int,
    batch: int,
    tokens: int | None,
    dtype: str | None,
    budget: int | None,
    no_measure: bool,
    command: str | None,
    types: tuple[str, ...],
    as_json: bool,
    **options: Any,  # those of ait llm dump
) -> None:
    """Tell what a capture would write, before it is run.

    \b
    ait llm plan --exec "bash run.sh" --type tensor -er 0,9 --budget 10GB
    ait llm plan --model config.json --type torch -er all --tokens 128

    Takes the options of ait llm dump. The program runs once, and only the shapes of its tensors
    are recorded. With --budget, cheaper captures are proposed, with their commands. The exit code
    is 3 if nothing fits the budget, and the program's own if it fails.
    """
    if (command is None) == (model is None):
        raise UsageError("give a program with --exec, or a config.json with --model")
    if model is None:
        _refuse_options_of_models(ctx)
    elif ctx.get_parameter_source("types") is ParameterSource.DEFAULT:
        types = ("torch",)
    torch = uses_torch(ctx, types)
    capture = _torch_settings(types, options) if torch else _probe_config(types, options)
    words = [] if command is None else split_command(command)
    disk = look_at_disk(capture.output, measure=not no_measure)
    notes: tuple[str, ...] = ()
    if model is not None:
        request = MetaRequest(
            read_model_config(model),
            batch=batch,
            prompt=prompt,
            # On ATB decode counts its own steps, after a prefill that has one.
            steps=tokens or _steps(capture.steps) + (not torch),
            dtype=dtype or "",
        )
        surveyed, notes = _survey_model(request, capture, disk)
    elif isinstance(capture, TorchSettings):
        surveyed = survey_torch(words, capture, os.environ, disk)
    else:
        surveyed = survey_atb(words, capture, os.environ, disk, probe_lib=options["probe_lib"])
    library = options["probe_lib"]
    result = make_plan(
        _NO_COMMAND if command is None else command,
        capture,
        surveyed,
        disk,
        budget=budget,
        more="" if library is None else shlex.join(["--probe-lib", str(library)]),
        notes=notes,
    )
    click.echo(told(spoken(describe(result), 80)), err=as_json)
    if as_json:
        sys.stdout.flush()
        emit("plan", result.as_dict(), lead="\n")
    ctx.exit(result.code)


def _survey_model(
    request: MetaRequest, capture: ProbeConfig | TorchSettings, disk: Disk
) -> tuple[Surveyed, tuple[str, ...]]:
    """What a model would show, and what to know about that."""
    if isinstance(capture, TorchSettings):
        notes = ["of a config.json: programs that call their model in another way differ"]
        if capture.operators and any("experts" in name for name in request.config):
            notes.append(
                "which operators compute experts depends on the values and the device, so those "
                "of a mixture of experts are told by --exec alone"
            )
        return survey_model(request, capture, os.environ, disk), tuple(notes)
    from ait_llm.plan.atb_template import survey_of_decoder

    survey = survey_of_decoder(request, capture.steps, disk)
    return survey, ("of a typical decoder on ATB, not of your program; --exec tells exactly",)


def _refuse_options_of_models(ctx: click.Context) -> None:
    for param in ctx.command.params:
        if param.name in _OF_MODELS and (
            ctx.get_parameter_source(param.name) is not ParameterSource.DEFAULT
        ):
            raise UsageError(f"{param.opts[-1]} is for --model; a program decides that itself")


def _steps(steps: StepRange) -> int:
    """How many steps a model has that is asked for some of them."""
    last = max(last for _, last in steps.intervals)
    return last + 1 if last < 1 << 24 else _STEPS


def _probe_config(types: tuple[str, ...], options: dict[str, Any]) -> ProbeConfig:
    names = (
        "output", "operation_ids", "with_children", "operation_names", "steps", "tiling", "device",
        "log_level", "dedupe",
    )  # fmt: skip
    return ProbeConfig(
        start_time=time.strftime(START_TIME_FORMAT),
        types=types,
        description_only=options["only_save_desc"],
        save_time=SaveTime(options["save_time"]),
        tensor_part=TensorPart(options["tensor_part"]),
        queue_bytes=options["queue_size"],
        min_free_bytes=options["min_free"],
        **{name: options[name] for name in names},
    )


def _torch_settings(types: tuple[str, ...], options: dict[str, Any]) -> TorchSettings:
    names = set(TORCH_OPTIONS) - {"verify_observer", *_NOT_PLANNED}
    return TorchSettings(
        output=options["output"],
        types=types,
        steps=options["steps"],
        description_only=options["only_save_desc"],
        inputs=options["tensor_part"] in (0, 2),
        outputs=options["tensor_part"] in (1, 2),
        type_prefixes=options["operation_names"],
        device_id=options["device"],
        queue_bytes=options["queue_size"],
        observe=options["verify_observer"],
        **{name: options[name] for name in names},
    )


def _options_of_dump() -> list[click.Parameter]:
    """The options of ``ait llm dump``; the program may be left out for a model."""
    params = []
    for param in dump.params:
        if param.name not in ("allow_skip", "model", "inputs", "msprobe_config", *_NOT_PLANNED):
            params.append(copy.copy(param))
    return params


plan.params[:0] = _options_of_dump()
