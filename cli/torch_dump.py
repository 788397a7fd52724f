"""The part of ``ait llm dump`` that captures PyTorch programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from ait_llm.cli.console import say
from ait_llm.cli.params import ListOption, absolute_path, comma_list, parse_size
from ait_llm.cli.torch_text import describe_torch_plan
from ait_llm.core import StepRange
from ait_llm.dump.inject.settings import (
    API_TYPE,
    GGUF_TYPE,
    GRAPH_TYPES,
    ONNX_TYPE,
    TORCH_TYPES,
    TorchSettings,
)
from ait_llm.dump.torch_run import plan_torch_dump, run_torch_dump
from ait_llm.dump.torch_summary import TorchSummary
from ait_llm.errors import IncompleteError, UsageError

F = TypeVar("F", bound=Callable[..., Any])

TORCH_OPTIONS = (
    "module_names",
    "layers",
    "own_code",
    "weights",
    "warmup",
    "follow",
    "requests",
    "passes",
    "start",
    "control",
    "most_bytes",
    "record_arguments",
    "verify_observer",
)
"""Parameters that only torch types have."""

_ATB_OPTIONS = (
    "operation_ids", "with_children", "save_time", "tiling", "probe_lib", "dedupe", "min_free"
)  # fmt: skip
# Compiled graphs have no modules, and what is saved of them is data.
_NOT_FX = (
    *(each for each in TORCH_OPTIONS if each != "record_arguments"),
    *("only_save_desc", "device", "queue_size"),
)
_OF_APIS = ("requests", "passes", "start", "control", "record_arguments")
# Its files are those of msprobe, which hold whole steps.
_NOT_API = (
    *(each for each in TORCH_OPTIONS if each not in _OF_APIS),
    *("operation_names", "device", "queue_size"),
)
_INSTEAD = {"operation_ids": "; select modules with --module-name or --layers"}


def _patterns(
    _ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    names: list[str] = []
    for text in value:
        # A regular expression may hold commas of its own.
        names += [text] if text.startswith("re:") else comma_list(text)
    if value and not names:
        raise UsageError("--module-name names no module; write a pattern such as '*.mlp'")
    return tuple(names)


def _layers(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> tuple[tuple[int, int], ...]:
    return () if value is None else StepRange.parse(",".join(comma_list(value))).intervals


def _requests(
    _ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    names = tuple(name for text in value for name in comma_list(text))
    if value and not names:
        raise UsageError("--request names no request; write its id or its number")
    return names


def _passes(_ctx: click.Context, _param: click.Parameter, value: str | None) -> StepRange | None:
    return None if value is None else StepRange.parse(",".join(comma_list(value)))


def _budget(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    return None if value is None else parse_size(ctx, param, value)


def torch_options(function: F) -> F:
    """The options that only torch types have."""
    for option in reversed(
        (
            click.option(
                "--module-name",
                "module_names",
                multiple=True,
                callback=_patterns,
                metavar="PATTERN",
                help="Torch types: only modules whose path matches, such as '*.mlp.*' or "
                "'re:layers\\.[01]\\.'. May be repeated.  [default: all]",
            ),
            click.option(
                "--layers",
                cls=ListOption,
                callback=_layers,
                metavar="FIRST,LAST,...",
                help="Torch types: only modules in these layers, as closed intervals.  "
                "[default: all]",
            ),
            click.option(
                "--own-code",
                is_flag=True,
                help="Type torch-op, with --module-name: only operators that the code of these "
                "modules calls itself, and only weights of their own, nothing of their members.",
            ),
            click.option(
                "--weights",
                is_flag=True,
                help="Torch types: also save parameters and buffers; with inductor, parameters "
                "that kernels read.",
            ),
            click.option(
                "--warmup",
                type=click.IntRange(0),
                default=0,
                show_default=True,
                metavar="N",
                help="Torch types: generations at the start that do not count.",
            ),
            click.option(
                "--follow",
                callback=absolute_path,
                metavar="GOLDEN",
                help="Torch types: make the program take the tokens that this dump "
                "of a golden run chose, so that all its steps stay comparable.  [default: its own]",
            ),
            click.option(
                "--request",
                "requests",
                multiple=True,
                callback=_requests,
                metavar="ID|N",
                help="Engines such as vLLM: only passes that compute something of this request: "
                "its id, or its number in the order in which requests came, from 0. May be "
                "repeated.  [default: all]",
            ),
            click.option(
                "--step",
                "passes",
                callback=_passes,
                metavar="FIRST,LAST,...",
                help="Engines such as vLLM: only these passes of the engine, as closed intervals; "
                "-er counts the tokens of each request.  [default: all]",
            ),
            click.option(
                "--start",
                type=click.Choice(["on", "off"]),
                default="on",
                show_default=True,
                callback=lambda _ctx, _param, value: value == "on",
                help="Torch types: 'off' captures nothing until ait llm attach PID on.",
            ),
            click.option(
                "--control",
                callback=absolute_path,
                metavar="FILE",
                help="Torch types: capture while the word in this file is 'on', and nothing while "
                "it is 'off'; it may be written at any time.  [default: ait llm attach alone]",
            ),
            click.option(
                "--budget",
                "most_bytes",
                callback=_budget,
                metavar="SIZE",
                help="Torch types: bytes of tensors that may be written, such as 20G; then the "
                "capture ends, and the program goes on.  [default: no limit]",
            ),
            click.option(
                "--record-arguments",
                is_flag=True,
                help="Torch types: write the program's command line into its ledger, with keys and "
                "passwords that are in it.",
            ),
            click.option(
                "--verify-observer",
                is_flag=True,
                help="Torch types: run the program again without the capture and compare what its "
                "models return. Exits with 1 if the capture changed it.",
            ),
        )
    ):
        function = option(function)
    return function


def uses_torch(ctx: click.Context, types: Sequence[str]) -> bool:
    """True if the types are those of PyTorch programs.

    Raises:
        UsageError: types of both kinds, or an option that the given kind does not have.
    """
    # Beside other types of ATB, onnx is the form of its topology.
    wanted = (ONNX_TYPE,) if tuple(types) == (ONNX_TYPE,) else (*TORCH_TYPES, GGUF_TYPE)
    torch_types = [name for name in types if name in wanted]
    others = [name for name in types if name not in wanted]
    if torch_types and others:
        raise UsageError(
            f"--type {' '.join(types)}: {', '.join(torch_types)} captures PyTorch and "
            f"{', '.join(others)} captures ATB; run once for each kind, with an output of its own"
        )
    foreign, kind = (_ATB_OPTIONS, "ATB") if torch_types else (TORCH_OPTIONS, "torch")
    for param in ctx.command.params:
        if (
            param.name in foreign
            and ctx.get_parameter_source(param.name) is not ParameterSource.DEFAULT
        ):
            raise UsageError(
                f"{param.opts[-1]} is for {kind} types, not for --type {' '.join(types)}"
                + _INSTEAD.get(param.name, "")
            )
        if (
            API_TYPE in torch_types
            and param.name in _NOT_API
            and ctx.get_parameter_source(param.name) is not ParameterSource.DEFAULT
        ):
            raise UsageError(
                f"{param.opts[-1]} is not for --type api, which records whole steps; select them "
                "with -er, --step and --request"
            )
        saves_weights = param.name == "weights" and "inductor" in types
        if (
            any(name in GRAPH_TYPES for name in torch_types)
            and param.name in _NOT_FX
            and not saves_weights
            and ctx.get_parameter_source(param.name) is not ParameterSource.DEFAULT
        ):
            raise UsageError(
                f"{param.opts[-1]} is not for --type {' '.join(types)}, which captures "
                "graphs; select executions with -er and targets with -opname"
            )
    return bool(torch_types)


def dump_torch(
    words: Sequence[str],
    types: tuple[str, ...],
    *,
    output: Path,
    steps: StepRange,
    tensor_part: int,
    only_save_desc: bool,
    operation_names: tuple[str, ...],
    device: int | None,
    queue_size: int,
    module_names: tuple[str, ...],
    layers: tuple[tuple[int, int], ...],
    own_code: bool,
    weights: bool,
    warmup: int,
    follow: Path | None,
    requests: tuple[str, ...],
    passes: StepRange | None,
    start: bool,
    control: Path | None,
    most_bytes: int | None,
    record_arguments: bool,
    verify_observer: bool,
) -> TorchSummary:
    """Say what will be captured, and run the program with the capture in its environment."""
    settings = TorchSettings(
        output=output,
        types=types,
        steps=steps,
        description_only=only_save_desc,
        inputs=tensor_part in (0, 2),
        outputs=tensor_part in (1, 2),
        type_prefixes=operation_names,
        module_names=module_names,
        layers=layers,
        device_id=device,
        own_code=own_code,
        weights=weights,
        warmup=warmup,
        queue_bytes=queue_size,
        observe=verify_observer,
        follow=follow,
        requests=requests,
        passes=passes,
        start=start,
        control=control,
        budget=most_bytes,
        record_arguments=record_arguments,
    )
    plan = plan_torch_dump(words, settings, os.environ)
    say(describe_torch_plan(plan))
    return run_torch_dump(plan, os.environ)


def verdict_code(summary: TorchSummary) -> int:
    """Exit code of ``--verify-observer``: 1 if the capture changed the results, 3 if unknown."""
    verdict = "same" if summary.observation is None else summary.observation.verdict
    return {"same": 0, "changed": 1, "undecided": IncompleteError.exit_code}[verdict]
