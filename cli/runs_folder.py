"""Where a command that runs programs several times leaves what it makes, and how it ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from ait_llm.cli.params import absolute_path
from ait_llm.formats.writing import new_file
from ait_llm.report.files import make_folder

F = TypeVar("F", bound=Callable[..., Any])


def runs_option(name: str) -> Callable[[F], F]:
    """``-o/--output``, the directory in which :func:`unused_folder` makes one of that name."""
    return click.option(
        "-o",
        "--output",
        default="./",
        show_default=True,
        callback=absolute_path,
        metavar="DIR",
        help=f"Directory in which a folder {name}_{{time}} is made.",
    )


def unused_folder(output: Path, name: str) -> Path:
    """A new folder ``{output}/{name}_{time}``.

    Raises:
        UsageError: it cannot be made.
    """
    make_folder(output)
    moment = time.time()
    while True:
        stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(moment))
        folder = output / f"{name}_{stamp}"
        if not folder.exists():
            make_folder(folder)
            return folder
        moment += 1


def keep_result(path: Path, result: Mapping[str, Any]) -> Path:
    """Write what a command prints with ``--json`` into a file, too; the file.

    Raises:
        FormatError: it cannot be written.
    """
    with new_file(path) as file:
        file.write(f"{json.dumps(result, indent=2)}\n".encode())
    return path
