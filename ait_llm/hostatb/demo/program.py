"""What the demo programs share: error boundary, common options, saving of outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch import Tensor

from ait_llm.errors import AitError, MissingDependencyError, UsageError
from ait_llm.hostatb.faults import faults
from ait_llm.hostatb.injection import inject
from ait_llm.hostatb.models.config import ATB_DTYPES

# PyTorch computes in what the acceleration library takes, and in a wider type for a better golden.
TWIN_DTYPES: dict[str, torch.dtype] = {**ATB_DTYPES, "float32": torch.float32}


class Program(click.Command):
    """A command that tells an expected error in one sentence and ends with its exit code."""

    def invoke(self, ctx: click.Context) -> Any:  # as declared by click
        try:
            return super().invoke(ctx)
        except AitError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(error.exit_code)


def _list_faults(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        width = max(len(name) for name in faults)
        for name in faults:
            click.echo(f"{name:{width}}  {faults.get(name).summary}")
        ctx.exit()


def fault_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--fault`` (passed on as ``wrong``) and ``--list-faults``."""
    command = click.option(
        "--fault",
        "wrong",
        multiple=True,
        metavar="NAME[@OP][:layer=N,step=M]",
        help="Compute something wrong on purpose; may be repeated. See --list-faults.",
    )(command)
    return click.option(
        "--list-faults",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_list_faults,
        help="List the faults and exit.",
    )(command)


def _weights_dtype(ctx: click.Context, _param: click.Parameter, given: str | None) -> str:
    """The dtype of ``--weights-dtype``, else that of ``--dtype`` if mine can have it."""
    if given is not None:
        return given
    dtype: str = ctx.params["dtype"]
    return dtype if dtype in ATB_DTYPES else next(iter(ATB_DTYPES))


def twin_dtype_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--dtype`` and ``--weights-dtype`` of a program in PyTorch."""
    command = click.option(
        "--weights-dtype",
        type=click.Choice(list(TWIN_DTYPES)),
        callback=_weights_dtype,
        help="Round the weights to this type first, as the other side does.  "
        "[default: --dtype, or float16 with float32]",
    )(command)
    return click.option(
        "--dtype",
        type=click.Choice(list(TWIN_DTYPES)),
        default="float16",
        is_eager=True,  # the default of --weights-dtype depends on it
        help="Element type of the computation.",
    )(command)


def inject_faults(wrong: tuple[str, ...]) -> None:
    """Put the faults of ``--fault`` in force, if any; else those of the environment stay.

    Raises:
        UnknownNameError: there is no such fault.
        UsageError: a fault cannot be understood.
    """
    if wrong:
        inject(";".join(wrong))


def save_outputs(path: Path, outputs: Mapping[str, Tensor]) -> None:
    """Write tensors to ``.safetensors`` (all of them) or ``.npy`` (the first one, as float32).

    Raises:
        UsageError: another suffix, or the file cannot be written.
        MissingDependencyError: safetensors is not installed.
    """
    try:
        if path.suffix == ".npy":
            first = next(iter(outputs.values()))
            np.save(path, first.to(torch.float32).numpy())
        elif path.suffix == ".safetensors":
            _save_safetensors(path, outputs)
        else:
            raise UsageError(f"{path}: outputs are saved as .safetensors or .npy")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror})") from error


def _save_safetensors(path: Path, outputs: Mapping[str, Tensor]) -> None:
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise MissingDependencyError(
            f"{path}: writing it needs safetensors; pip install 'ait-llm[safetensors]', or save "
            "as .npy"
        ) from error
    path.write_bytes(save({name: tensor.contiguous() for name, tensor in outputs.items()}))
