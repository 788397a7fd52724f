"""``ait llm dump``: run a program and capture what it computes."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from ait_llm.cli.completed import CompletedWords, operator_names
from ait_llm.cli.console import say
from ait_llm.cli.dump_text import describe_plan, describe_summary, what_next
from ait_llm.cli.msprobe_dump import describe_msprobe_summary, dump_msprobe
from ait_llm.cli.params import (
    ListOption,
    ManyOption,
    WordsCommand,
    absolute_path,
    allow_skip_option,
    comma_list,
    json_option,
    message_options,
    parse_size,
    steps_option,
)
from ait_llm.cli.results import finish, report
from ait_llm.cli.torch_dump import (
    TORCH_OPTIONS,
    dump_torch,
    torch_options,
    uses_torch,
    verdict_code,
)
from ait_llm.cli.torch_text import describe_torch_summary, torch_what_next
from ait_llm.core import OpId
from ait_llm.dump.atb import START_TIME_FORMAT, plan_atb_dump, run_atb_dump
from ait_llm.dump.inject.settings import API_TYPE, GGUF_TYPE, ONNX_TYPE, TORCH_TYPES
from ait_llm.dump.summary import DumpSummary
from ait_llm.errors import UsageError
from ait_llm.probe import ATB_TYPES, ProbeConfig, SaveTime, TensorPart, split_command


def _ids(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[OpId, ...]:
    fields = comma_list(value or "")
    if value and not fields:
        raise UsageError(f"-ids {value!r} names no operation; write ids such as 2,3_1")
    return tuple(OpId.parse(field) for field in fields)


def _names(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, ...]:
    fields = comma_list(value or "")
    if value and not fields:
        raise UsageError(f"-opname {value!r} names no operation; write a prefix such as self")
    for field in fields:
        if len(field.split()) != 1:
            raise UsageError(
                f"-opname {field!r} has blanks; separate names by ',', as in self,linear"
            )
    return tuple(field.lower() for field in fields)


def _types(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value))


@click.command(cls=WordsCommand)
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    help='Command that runs the model, such as "bash run.sh". It is started without a shell: put '
    "redirections and pipes into a script.  [required, or --model]",
)
@click.option(
    "--model",
    callback=absolute_path,
    metavar="FILE",
    help="In place of --exec, with --type onnx: run this model of ONNX once, on --inputs.  "
    "[default: none]",
)
@click.option(
    "--inputs",
    callback=absolute_path,
    metavar="FILE",
    help="With --model: an .npz file with an array for each of its inputs.  [default: none]",
)
@click.option(
    "--type",
    "types",
    cls=ManyOption,
    type=click.Choice([*ATB_TYPES, *TORCH_TYPES, GGUF_TYPE]),
    default=("tensor",),
    callback=_types,
    help="What to capture, one or more words. 'onnx' converts the topology of 'model' and 'layer'; "
    "'stats' writes statistics of each tensor instead of its data. The torch types capture any "
    "PyTorch program: its modules ('torch'), statistics instead of data ('torch-stats'), and every "
    "aten operator ('torch-op'). 'api' captures API calls and modules of each step in the files of "
    "msprobe; with 'torch-stats' their statistics. 'fx' captures every node of the graphs that "
    "torch.compile makes, run operator by operator, and 'inductor' what its fused kernels store. "
    "'onnx' alone captures every node of the graphs that ONNX Runtime runs, and 'gguf' of those "
    "that llama.cpp evaluates.  [default: tensor]",
)
@click.option(
    "--msprobe-config",
    callback=absolute_path,
    metavar="FILE",
    help="In place of --type: within the program, msprobe.pytorch is ours, and this config.json "
    "of msprobe says what is captured. For engines that capture through msprobe, such as "
    "vllm-ascend and SGLang.  [default: none]",
)
@click.option("-sd", "--only-save-desc", is_flag=True, help="Write descriptions without data.")
@click.option(
    "-ids",
    "--save-operation-ids",
    "operation_ids",
    cls=ListOption,
    callback=_ids,
    metavar="ID,...",
    help="Only these operations, such as 2,3_1 (operation 2, and child 1 of operation 3). Run "
    "--type model to learn the ids.  [default: all]",
)
@steps_option(
    "0,0",
    "Tokens to capture, as closed intervals: 3,5,7,7 is 3, 4, 5 and 7; 'all' is every token. "
    "With fx, inductor, onnx and gguf: executions of each graph.",
)
@click.option(
    "-child",
    "--save-operation-child",
    "with_children",
    type=click.BOOL,
    default=True,
    show_default=True,
    help="With -ids: also everything below these operations.",
)
@click.option(
    "-time",
    "--save-time",
    "save_time",
    type=click.IntRange(0, 2),
    default=int(SaveTime.AFTER),
    show_default=True,
    help="0: before execution, 1: after, 2: both.",
)
@click.option(
    "-opname",
    "--operation-name",
    "operation_names",
    cls=ListOption,
    type=CompletedWords(operator_names, comma=True),
    callback=_names,
    metavar="PREFIX,...",
    help="Only operations whose type starts so, in any case: 'self' is SelfAttentionOperation. "
    "With torch types: only modules whose class starts so; with fx: only nodes whose target does, "
    "such as mm or aten.mm; with inductor: only kernels that fused such a node.  [default: all]",
)
@click.option(
    "-tiling", "--save-tiling", "tiling", is_flag=True, help="Save tiling data of kernels."
)
@click.option(
    "-stp",
    "--save-tensor-part",
    "tensor_part",
    type=click.IntRange(0, 2),
    default=int(TensorPart.BOTH),
    show_default=True,
    help="0: inputs, 1: outputs, 2: both.",
)
@click.option(
    "-o",
    "--output",
    default="./",
    show_default=True,
    callback=absolute_path,
    metavar="DIR",
    help="Directory that ait_dump is created in.",
)
@click.option(
    "-device",
    "--device-id",
    "device",
    type=click.IntRange(0),
    help="Only this device.  [default: all]",
)
@message_options
@click.option(
    "--probe-lib",
    callback=absolute_path,
    metavar="FILE",
    help="Preload this probe, for instance the one that CANN ships.  [default: ours]",
)
@click.option("--dedupe", is_flag=True, help="Store identical tensors once.")
@click.option(
    "--queue-size",
    default="256M",
    show_default=True,
    callback=parse_size,
    metavar="SIZE",
    help="Tensor bytes that may wait to be written before the program has to wait.",
)
@click.option(
    "--min-free",
    default="256M",
    show_default=True,
    callback=parse_size,
    metavar="SIZE",
    help="Free disk space that the capture leaves alone.",
)
@torch_options
@allow_skip_option
@json_option
@click.pass_context
def dump(
    ctx: click.Context,
    /,
    command: str | None,
    model: Path | None,
    inputs: Path | None,
    types: tuple[str, ...],
    msprobe_config: Path | None,
    allow_skip: bool,
    as_json: bool,
    **options: Any,  # those of one kind of capture
) -> None:
    """Run a program and save what it computes with ATB or with PyTorch.

    \b
    ait llm dump --exec "bash run.sh" --type tensor layer -er 0,1 -o out
    ait llm dump --exec "python generate.py" --type torch -er 0,1 -o out
    ait llm dump --exec "bash serve.sh" --msprobe-config config.json

    The program runs as without us: its output, its environment and its signals are its own. What
    we say goes to stderr; with --json the last line of stdout is the result. The exit code is the
    program's; if the program succeeds but something could not be captured, it is 3.
    """
    words = _words(command, model, inputs, types)
    if msprobe_config is not None:
        summary_of_apis = dump_msprobe(ctx, words, msprobe_config, options["output"])
        report(describe_msprobe_summary(summary_of_apis), summary_of_apis)
        finish(ctx, summary_of_apis, torch_what_next(summary_of_apis), as_json, allow_skip)
        return
    if uses_torch(ctx, types):
        shared = ("steps", "tensor_part", "only_save_desc", "operation_names", "output", "device")
        wanted = {name: options[name] for name in (*shared, "queue_size", *TORCH_OPTIONS)}
        torch_summary = dump_torch(words, types, **wanted)
        describe = describe_msprobe_summary if API_TYPE in types else describe_torch_summary
        report(describe(torch_summary), torch_summary)
        finish(
            ctx,
            torch_summary,
            torch_what_next(torch_summary),
            as_json,
            allow_skip,
            verdict=verdict_code(torch_summary),
        )
        return
    for name in TORCH_OPTIONS:
        del options[name]
    summary = _dump_atb(words, types, **options)
    report(describe_summary(summary), summary)
    finish(ctx, summary, what_next(summary), as_json, allow_skip)


def _words(
    command: str | None, model: Path | None, inputs: Path | None, types: tuple[str, ...]
) -> list[str]:
    """What is run: the command, or a program of ours that runs a model of ONNX.

    Raises:
        UsageError: neither or both are given, or a file is missing.
    """
    if command is not None:
        if model is not None or inputs is not None:
            raise UsageError("--model and --inputs stand in the place of --exec; give one of both")
        return split_command(command)
    if model is None:
        raise UsageError("the option --exec is missing; see ait llm dump --help")
    if types != (ONNX_TYPE,):
        raise UsageError("--model is for --type onnx; other types need --exec")
    if inputs is None:
        raise UsageError("--model needs --inputs FILE.npz, with an array for each of its inputs")
    for path in (model, inputs):
        if not path.is_file():
            raise UsageError(f"{path}: no such file")
    return [sys.executable, "-m", "ait_llm.dump.onnx.run_model", str(model), str(inputs)]


def _dump_atb(
    words: list[str],
    types: tuple[str, ...],
    *,
    only_save_desc: bool,
    save_time: int,
    tensor_part: int,
    probe_lib: Path | None,
    queue_size: int,
    min_free: int,
    **settings: Any,  # those whose names and types are the configuration's own
) -> DumpSummary:
    """Say what will be captured, and run the program under the probe."""
    config = ProbeConfig(
        start_time=time.strftime(START_TIME_FORMAT),
        types=types,
        description_only=only_save_desc,
        save_time=SaveTime(save_time),
        tensor_part=TensorPart(tensor_part),
        queue_bytes=queue_size,
        min_free_bytes=min_free,
        **settings,
    )
    plan = plan_atb_dump(words, config, os.environ, probe_lib)
    say(describe_plan(plan))
    return run_atb_dump(plan, os.environ)
