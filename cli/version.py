"""``--version``: of the package, and with ``-v`` of what it was built and runs with."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import click

from ait_llm import __version__

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGES = ("numpy", "ml-dtypes", "torch", "torch-npu", "onnx", "ray")


def version_options(function: F) -> F:
    """``-V/--version`` and ``-v/--verbose`` of a group of commands."""
    for option in (
        click.option(
            "-v",
            "--verbose",
            is_flag=True,
            is_eager=True,  # --version, wherever it stands, wants to know
            expose_value=False,
            callback=lambda ctx, _param, value: ctx.meta.update({_VERBOSE: value}),
            help="With --version: also the builds of the native libraries and of packages.",
        ),
        click.option(
            "-V",
            "--version",
            is_flag=True,
            expose_value=False,
            callback=_show,
            help="Show the version and exit.",
        ),
    ):
        function = option(function)
    return function


_VERBOSE = "ait_llm.verbose"


def _show(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    click.echo(f"ait {__version__}")
    if ctx.meta.get(_VERBOSE):
        for name, text in _details():
            click.echo(f"  {name:<16}{text}")
    ctx.exit()


def _details() -> Iterator[tuple[str, str]]:
    from ait_llm.probe.builds import native_builds

    yield "Python", f"{platform.python_version()} ({sys.executable}), {platform.machine()}"
    for package in _PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"
    for each in native_builds(os.environ):
        place = "" if each.path is None else f" ({each.path})"
        yield each.name, f"{each.text}{place}"
