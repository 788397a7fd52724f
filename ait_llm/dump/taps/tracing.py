"""What hooks of modules do while Dynamo traces them: they put taps into the graph.

Everything here but :func:`_may_insert` is traced, not run: plain Python on constants. Anything that
Dynamo does not know would break the graph of the program, or fail it. Numbers are left out, since
looking at one that stands for a size would make it a constant of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ait_llm.dump.taps.operator import (
    CLOCKS,
    ENTER,
    ENTER_ROOT,
    LEAVE,
    LEAVE_ROOT,
    is_available,
)

_MAX_DEPTH = 16
HIDDEN: set[str] = set()
"""Modules that a graph has where no tap could be: number of the capture, blank, path."""

COMPILED: set[str] = set()
"""Numbers of captures of which graphs have taps."""


def before_module(
    number: str, clock: str, path: str, *, values: bool = True
) -> Callable[..., None]:
    """What the hook before a module's call puts into a graph.

    Args:
        number: of the capture.
        clock: key of the model's device.
        path: of the module.
        values: False where it is enough that the module runs.
    """

    def before(
        module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> None:
        named = {} if kwargs is None else kwargs
        parts = [(f"input_{index}", value) for index, value in enumerate(args)]
        parts += [(f"input_{name}", value) for name, value in named.items()]
        _insert(number, clock, ENTER, path, parts if values else [])

    return before


def after_module(number: str, clock: str, path: str, *, values: bool = True) -> Callable[..., None]:
    """The same for the hook behind it."""

    def after(module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        _insert(number, clock, LEAVE, path, [("output", rest[-1])] if values else [])

    return after


def before_model(
    number: str, clock: str, path: str, parameters: tuple[str, ...]
) -> Callable[..., None]:
    """The same for the model itself, whose arguments tell the step.

    Args:
        number, clock, path: see :func:`before_module`.
        parameters: names of its positional arguments.
    """

    def before(
        module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> None:
        named = {} if kwargs is None else kwargs
        parts = list(zip(parameters, args, strict=False))
        parts += list(named.items())
        _insert(number, clock, ENTER_ROOT, path, parts)

    return before


def after_model(number: str, clock: str, path: str) -> Callable[..., None]:
    """The same for its return."""

    def after(*args: Any) -> None:
        _insert(number, clock, LEAVE_ROOT, path, [])

    return after


def _insert(number: str, clock: str, event: str, path: str, parts: list[tuple[str, Any]]) -> None:
    """Put a tap here.

    Args:
        number, clock, path: see :func:`before_module`.
        event: what has happened.
        parts: names and what they name.
    """
    if _may_insert(f"{number} {path}"):  # Dynamo wants a constant that it has made itself
        tensors: list[Tensor] = []
        names: list[str] = []
        texts: list[str] = []
        for name, value in parts:
            _collect(name, value, tensors, names, texts, 0)
        torch.ops.ait_llm.tap.default(tensors, CLOCKS[clock], number, event, path, names, texts)


def _collect(
    name: str,
    value: Any,
    tensors: list[Tensor],
    names: list[str],
    texts: list[str],
    depth: int,
) -> None:
    """Find tensors and their names, as :func:`ait_llm.dump.pytorch.values.leaves` names them."""
    if isinstance(value, Tensor):
        if type(value) is Tensor or type(value) is torch.nn.Parameter:
            tensors.append(value.detach())
            names.append(name)
    elif value is None or isinstance(value, (bool, str)):
        texts.append(f"{name}={value}")
    elif isinstance(value, (tuple, list)):
        if depth < _MAX_DEPTH:
            for index, part in enumerate(value):
                _collect(f"{name}_{index}", part, tensors, names, texts, depth + 1)
    elif isinstance(value, dict) and depth < _MAX_DEPTH:
        for key, part in value.items():
            if isinstance(key, str):
                _collect(f"{name}_{key}", part, tensors, names, texts, depth + 1)


def _may_insert(place: str) -> bool:
    """Run while tracing: False where the graph must not have an operator that is not its own.

    In the body of a higher-order operator (a loop, a branch, a checkpoint) nothing may be written
    to, and a program that is exported is not run here.
    """
    from torch._dynamo.symbolic_convert import InstructionTranslator

    output = InstructionTranslator.current_tx().output
    fits = is_available() and output.is_root_tracer() and not output.export
    if fits:
        COMPILED.add(place.partition(" ")[0])
    else:
        HIDDEN.add(place)
    return fits


# What torch._dynamo.assume_constant_result does, without the seconds that its import takes.
_may_insert._dynamo_marked_constant = True  # type: ignore[attr-defined]
