"""The options of a golden run, which ``ait llm golden`` and ``ait llm check`` have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ait_llm.cli.params import ListOption, absolute_path, comma_list
from ait_llm.core import StepRange

F = TypeVar("F", bound=Callable[..., Any])

DTYPES = ("float32", "float64", "bfloat16", "float16", "like")


def _layers(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> tuple[tuple[int, int], ...]:
    return () if value is None else StepRange.parse(",".join(comma_list(value))).intervals


def _steps(_ctx: click.Context, _param: click.Parameter, value: str | None) -> StepRange | None:
    return None if value is None else StepRange.parse(",".join(comma_list(value)))


def part_options(function: F) -> F:
    """``--steps`` and ``--layers``: how much of a golden run is made."""
    for option in reversed(
        (
            click.option(
                "--steps",
                cls=ListOption,
                callback=_steps,
                metavar="FIRST,LAST,...",
                help="Only these passes of the capture, as closed intervals; 0 is the first.  "
                "[default: all]",
            ),
            click.option(
                "--layers",
                cls=ListOption,
                callback=_layers,
                metavar="FIRST,LAST,...",
                help="Record only modules in these layers, as closed intervals.  [default: all "
                "modules]",
            ),
        )
    ):
        function = option(function)
    return function


def golden_options(function: F) -> F:
    """``--model``, and how the checkpoint is run."""
    for option in reversed(
        (
            click.option(
                "--model",
                "model",
                required=True,
                callback=absolute_path,
                metavar="DIR",
                help="Folder of the checkpoint: config.json and weights, as save_pretrained of "
                "transformers writes them.",
            ),
            click.option(
                "--dtype",
                type=click.Choice(DTYPES),
                default="float32",
                show_default=True,
                help="Element type that the checkpoint is run in; 'like' is that of the capture.",
            ),
            click.option(
                "--device",
                default="cpu",
                show_default=True,
                metavar="NAME",
                help="Device of torch that it runs on.",
            ),
            click.option(
                "--layer-by-layer/--whole",
                "layer_by_layer",
                default=None,
                help="Hold the weights of one layer at a time, or all of them.  [default: all, if "
                "they take less than half of the free memory]",
            ),
            click.option(
                "--trust-remote-code",
                "trusted",
                is_flag=True,
                help="Run code that lies beside the checkpoint, for families that transformers "
                "does not know.",
            ),
        )
    ):
        function = option(function)
    return function


def golden_settings(like: Path, output: Path, options: dict[str, Any]) -> Any:
    """The settings of a golden run, which takes loading torch."""
    from ait_llm.dump.golden.run import GoldenSettings

    return GoldenSettings(like=like, output=output, **options)
