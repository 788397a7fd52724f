"""Programs and their captures: once as users run them, once in float64 as the truth."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ait_llm import DumpConfig, register_hook
from matching_truth.precision import in_float64

Drive = Callable[[nn.Module], None]
Prepare = Callable[[nn.Module, bool], nn.Module]
SPREAD = 0.15


def as_it_is(model: nn.Module, is_exact: bool) -> nn.Module:
    """The model without a change."""
    return model


@dataclass(frozen=True)
class Program:
    """A model and what it is asked.

    Attributes:
        name: unique; captures are kept under it.
        make: builds the model; called again for the run in float64, whose weights are replaced.
        drive: calls the model: one pass or several.
        dtype: in which it runs as users run it.
        operators: also every aten operator is captured.
        modules: False if operators alone are.
        prepare: changes the model before it runs, in the type of the run; told if that is the run
            in float64.
    """

    name: str
    make: Callable[[], nn.Module]
    drive: Drive
    dtype: torch.dtype = torch.float32
    operators: bool = False
    prepare: Prepare = as_it_is
    modules: bool = True


@dataclass(frozen=True)
class Captured:
    """Two captures of one program, whose tensors have the same names.

    Attributes:
        dump: as users run it; what the matcher gets.
        exact: in float64; what the truth is read from.
    """

    dump: Path
    exact: Path


def capture(program: Program, folder: Path) -> Captured:
    """Both captures of a program; those that are there already are not made again."""
    place = folder / program.name
    found = Captured(place / "dump", place / "exact")
    if not (place / "done").exists():
        rmtree(place, ignore_errors=True)  # what an interrupted run left
        run(program, found)
        (place / "done").touch()
    return found


def run(program: Program, found: Captured) -> None:
    """Run a program twice, captured, in this process."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.manual_seed(7)  # for what a library draws and ``randomise`` keeps
    model = program.make().eval()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    _run(program.prepare(model.to(program.dtype), False), program, found.dump)
    unwritten = UnwrittenIsNaN() if program.operators else nullcontext()
    with in_float64(), unwritten:
        exact = program.make().eval().double()
        exact.load_state_dict(weights)
        _run(program.prepare(exact, True), program, found.exact)


def _run(model: nn.Module, program: Program, folder: Path) -> None:
    config = DumpConfig(
        dump_path=folder,
        token_range=range(16),
        operators=program.operators,
        modules=program.modules,
        weights=True,
    )
    with torch.no_grad(), register_hook(model, config):
        program.drive(model)


class UnwrittenIsNaN(TorchDispatchMode):
    """Fills memory that is handed out unwritten: what it held before would pass for a value."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """The result of the operator."""
        result = func(*args, **(kwargs or {}))
        if "empty" in str(func) and isinstance(result, torch.Tensor) and result.is_floating_point():
            result.fill_(torch.nan)
        return result


def randomise(model: nn.Module, seed: int, *, norms: bool = True) -> nn.Module:
    """Draw all weights again, large enough that each layer changes its input visibly.

    They are numbers that bfloat16 holds, so that a program in a coarser type has the same ones.

    Args:
        model: whose weights are drawn.
        seed: of the generator; equal modules get equal weights whatever library they are from.
        norms: also the scales of norms and all biases; False leaves them at ones and zeros.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float32) * SPREAD
            if parameter.ndim == 1:
                drawn = parameter.float() + drawn * norms
            parameter.copy_(drawn.bfloat16())
    return model
