"""Two sides, each a program to run or a dump of one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ait_llm.cli.params import input_path
from ait_llm.dumps import open_dump
from ait_llm.errors import UsageError
from ait_llm.probe import split_command
from ait_llm.probe.launch import resolve_program

F = TypeVar("F", bound=Callable[..., Any])


def golden_options(function: F) -> F:
    """``--golden-exec`` and ``-gp/--golden-path``, as :func:`trusted_side` takes them."""
    program = click.option(
        "--golden-exec",
        "golden_command",
        metavar="COMMAND",
        help="Command that runs the trusted program; or give --golden-path.  [default: none]",
    )
    dump = click.option(
        "-gp",
        "--golden-path",
        callback=input_path,
        metavar="PATH",
        help="A dump of the trusted program with values, in place of --golden-exec.  "
        "[default: none]",
    )
    return program(dump(function))


def suspected_side(command: str | None, path: Path | None) -> tuple[str, ...] | Path:
    """The side under suspicion: words of a program that exists, or a dump that can be read.

    Raises:
        UsageError: none or both are given, or there is no such program.
        FormatError: the path is no dump.
    """
    if (command is None) == (path is None):
        raise UsageError("give the side under suspicion once: --exec COMMAND, or --my-path DUMP")
    return _side(command, path)


def trusted_side(command: str | None, path: Path | None) -> tuple[str, ...] | Path:
    """The trusted side, the same.

    Raises:
        UsageError: none or both are given, or there is no such program.
        FormatError: the path is no dump.
    """
    if (command is None) == (path is None):
        raise UsageError("give the trusted side once: --golden-exec COMMAND, or --golden-path DUMP")
    return _side(command, path)


def _side(command: str | None, path: Path | None) -> tuple[str, ...] | Path:
    if path is not None:
        return open_dump(path).root
    words = tuple(split_command(command or ""))
    resolve_program(words, os.environ)
    return words
