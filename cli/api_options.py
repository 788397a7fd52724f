"""Options of ``ait llm compare`` for API-level dumps, without what compares them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click

from ait_llm.cli.params import input_path
from ait_llm.dumps.api_place import is_api_dump
from ait_llm.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])
TABLES = ("csv", "xlsx")
"""Formats of the manual's tables; ``compare.api.run`` has their writers."""

_OPTIONS = (
    click.option(
        "-i",
        "--input-path",
        "--input_path",
        "input_file",
        callback=input_path,
        metavar="compare.json",
        help="The manual's file with npu_path and bench_path, instead of -mp and -gp.  "
        "[default: none]",
    ),
    click.option(
        "-s",
        "--stack-mode",
        "--stack_mode",
        "stack",
        is_flag=True,
        help="API level: with call stacks where compare.json names a stack_path.  "
        "[default: where stack.json lies beside my file]",
    ),
    click.option(
        "-c",
        "--compare-only",
        "--compare_only",
        "compare_only",
        is_flag=True,
        help="API level: tables only, no advice.",
    ),
    click.option(
        "-f",
        "-fm",
        "--fuzzy-match",
        "--fuzzy_match",
        "fuzzy",
        is_flag=True,
        help="API level: match calls whose names differ in the number of the call only.",
    ),
    click.option(
        "-hl",
        "--highlight",
        is_flag=True,
        help="API level: mark suspicious rows red or yellow and say why.",
    ),
    click.option(
        "-dm",
        "--data-mapping",
        "--data_mapping",
        "data_mapping",
        callback=input_path,
        metavar="FILE.yaml",
        help="API level: lines 'name of mine: name of golden' for what no name matches.  "
        "[default: none]",
    ),
    click.option(
        "-da",
        "--diff-analyze",
        "--diff_analyze",
        "diff_analyze",
        is_flag=True,
        help="API level: find the first call that differs over all ranks; json files, no tables.",
    ),
    click.option(
        "--layout",
        callback=input_path,
        metavar="FILE.yaml",
        help="API level, runs on different numbers of ranks: lines 'name of a tensor: layout', as "
        "such a comparison writes them.  [default: found out]",
    ),
    click.option(
        "--table-style",
        type=click.Choice(["manual", "release"]),
        default="manual",
        show_default=True,
        help="API level: columns, rules and messages of the manual, or of msprobe 26.2.",
    ),
)


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """What the user asked of API-level dumps.

    Attributes:
        input_file: the manual's ``compare.json``.
        stack, compare_only, fuzzy, highlight, diff_analyze: as the options are called.
        data_mapping, layout: yaml files.
        table_style: ``manual`` or ``release``.
    """

    input_file: Path | None
    stack: bool
    compare_only: bool
    fuzzy: bool
    highlight: bool
    data_mapping: Path | None
    diff_analyze: bool
    layout: Path | None
    table_style: Any


def api_options(command: F) -> F:
    """Add the options of API-level dumps to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_request(settings: dict[str, Any]) -> ApiRequest:
    """Take what :func:`api_options` added out of a command's arguments."""
    return ApiRequest(**{name: settings.pop(name) for name in ApiRequest.__slots__})


def paths_of(
    request: ApiRequest, golden: Path | None, mine: Path | None
) -> tuple[Path, Path, bool]:
    """Golden and my path, and whether both are API-level dumps.

    Raises:
        UsageError: a path is missing or given twice.
        FormatError: the manual's file is wrong.
    """
    if request.input_file is not None:
        if golden is not None or mine is not None:
            raise UsageError("-i names both sides already; leave out -gp and -mp")
        from ait_llm.compare.api.settings import read_compare_file  # rarely wanted

        given = read_compare_file(request.input_file)
        return given.golden, given.mine, True
    missing = [name for name, path in (("-gp", golden), ("-mp", mine)) if path is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} missing; give both sides, or -i compare.json")
    assert golden is not None
    assert mine is not None
    return golden, mine, is_api_dump(golden) and is_api_dump(mine)


def split_formats(formats: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Formats of the manual's tables, and all other formats.

    Where the user chose none, all tables that can be written: xlsx needs a package of its own.
    """
    if not formats:
        writable = (name for name in TABLES if name != "xlsx" or find_spec("openpyxl"))
        return tuple(writable), ()
    tables = tuple(name for name in formats if name in TABLES)
    return tables, tuple(name for name in formats if name not in TABLES)
