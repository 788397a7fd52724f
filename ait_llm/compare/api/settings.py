"""What a user can set, and the manual's file that sets it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ait_llm.compare.api.columns import Style
from ait_llm.core.optional import import_optional
from ait_llm.errors import FormatError
from ait_llm.formats.opening import read_small
from ait_llm.judge import Tolerance
from ait_llm.metrics.custom import CustomMetric
from ait_llm.storage import local_path

_LIMIT = 64 << 20  # bytes of a file that a person wrote
# Text in quotes, or a comment: only the latter is taken out.
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|#[^\n]*|/\*.*?\*/', re.DOTALL)
_PATHS = ("npu_path", "bench_path")
_KNOWN = (*_PATHS, "stack_path", "is_print_compare_log", "is_print_compare_detail")


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """How API-level dumps are compared.

    Attributes:
        style: ``manual`` for the columns, rules and messages of the product manual, ``release``
            for those of msprobe 26.2.
        fuzzy: match names without call numbers.
        table: full names of my rows to those of golden.
        stack: with call stacks; None for where they were captured.
        stack_path: the file of call stacks, in place of the one beside mine.
        highlight: mark suspicious rows.
        advise: say where to look first.
        log: print a line per row.
        custom: further metrics.
        tolerance: limits of the user; None for those of the types.
        jobs: threads that read and measure tensors; with more than one, large JSON files are
            decoded by processes of their own.
    """

    style: Style = "manual"
    fuzzy: bool = False
    table: Mapping[str, str] = field(default_factory=dict)
    stack: bool | None = None
    stack_path: Path | None = None
    highlight: bool = False
    advise: bool = True
    log: bool = False
    custom: tuple[CustomMetric, ...] = ()
    tolerance: Tolerance | None = None
    jobs: int = 2


@dataclass(frozen=True, slots=True)
class CompareFile:
    """The manual's ``compare.json``.

    Attributes:
        mine, golden: files or folders.
        stack: the file of call stacks; None if not given.
        log: print a line per row.
    """

    mine: Path
    golden: Path
    stack: Path | None
    log: bool


def read_compare_file(path: Path) -> CompareFile:
    """Read a ``compare.json``; comments are allowed, relative paths start where the user is.

    Raises:
        FormatError: it is no such file.
    """
    try:
        content = json.loads(_COMMENT.sub(_without_comment, _read_text(path)))
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise FormatError(path, f"is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise FormatError(path, "is not an object with npu_path and bench_path")
    unknown = [key for key in content if key not in _KNOWN]
    if unknown:
        raise FormatError(path, f"has an unknown key {unknown[0]!r}; known: {', '.join(_KNOWN)}")
    for key in _PATHS:
        if not isinstance(content.get(key), str) or not content[key]:
            raise FormatError(path, f"needs {key!r}, the path of a dump, as text")
    stack = content.get("stack_path")
    if stack is not None and not isinstance(stack, str):
        raise FormatError(path, "'stack_path' is not text")
    log = content.get("is_print_compare_log", True)
    if not isinstance(log, bool):
        raise FormatError(path, "'is_print_compare_log' is neither true nor false")
    mine, golden = (local_path(content[key]).absolute() for key in _PATHS)
    return CompareFile(mine, golden, local_path(stack).absolute() if stack else None, log)


def read_data_mapping(path: Path) -> dict[str, str]:
    """Read a yaml file of row names of mine to row names of golden, several to one if need be.

    Raises:
        FormatError: it is no such file.
        MissingDependencyError: PyYAML is not installed.
    """
    content = read_yaml(path, "a data mapping")
    if not isinstance(content, dict) or not content:
        raise FormatError(path, "holds no lines 'name of mine: name of golden'")
    for mine, golden in content.items():
        if not isinstance(mine, str) or not isinstance(golden, str):
            raise FormatError(path, f"{mine!r} is not mapped to the name of one tensor")
    return content


def read_yaml(path: Path, purpose: str) -> Any:
    """The content of a small yaml file; nothing but plain values is made of it.

    Raises:
        FormatError: it cannot be read.
        MissingDependencyError: PyYAML is not installed.
    """
    yaml = import_optional("yaml", purpose)
    try:
        return yaml.safe_load(_read_text(path))
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        where = " ".join(str(error).split())
        raise FormatError(path, f"is not yaml: {where}") from None


def _read_text(path: Path) -> str:
    try:
        return read_small(path, _LIMIT).decode()
    except UnicodeDecodeError as error:
        raise FormatError(path, f"is not text in UTF-8: {error}") from None


def _without_comment(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else " "
