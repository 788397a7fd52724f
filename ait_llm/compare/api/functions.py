"""The manual's Python functions that compare API-level dumps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ait_llm.compare.api.difference_report import analyze_differences
from ait_llm.compare.api.outcome import Outcome
from ait_llm.compare.api.run import compare_api_dumps
from ait_llm.compare.api.settings import ApiOptions, read_data_mapping
from ait_llm.errors import UsageError
from ait_llm.report.writing import STAMP_FORMAT
from ait_llm.storage import local_path

_PATHS = ("npu_json_path", "bench_json_path")
_ALIASES = {"npu_path": "npu_json_path", "bench_path": "bench_json_path"}


def compare(
    input_param: Mapping[str, Any],
    output_path: str | Path,
    stack_mode: bool = False,
    auto_analyze: bool = True,
    fuzzy_match: bool = False,
    highlight: bool = False,
    **kwargs: Any,
) -> Outcome:
    """Compare one dump with one dump; tables as csv and xlsx, advice as text.

    Args:
        input_param: ``npu_json_path``, ``bench_json_path``, and optionally ``stack_json_path`` and
            ``is_print_compare_log``.
        output_path: folder of the results.
        stack_mode: show call stacks where ``stack_json_path`` is given; without it they are shown
            if there are any.
        auto_analyze: write the advice.
        fuzzy_match: names may differ in the number of the call.
        highlight: mark suspicious rows.
        **kwargs: ``data_mapping`` (a yaml file or a mapping of names), ``diff_analyze``,
            ``table_style`` (``manual`` or ``release``), ``jobs``.

    Returns:
        Counts by verdict, the first row that fails, and the files.

    Raises:
        UsageError: an argument is missing or unknown.
        FormatError: a file is malformed.

    Example:
        >>> compare({"npu_json_path": "npu/dump.json",
        ...          "bench_json_path": "cpu/dump.json"}, "out")  # doctest: +SKIP
    """
    given = {_ALIASES.get(key, key): value for key, value in input_param.items()}
    for key in _PATHS:
        if not isinstance(given.get(key), str | Path) or not given[key]:
            raise UsageError(f"input_param needs {key!r}, the path of a dump.json or debug.json")
    stack = given.get("stack_json_path")
    options = ApiOptions(
        fuzzy=fuzzy_match,
        highlight=highlight,
        advise=auto_analyze,
        stack=None if stack is None else stack_mode,
        stack_path=None if stack is None else local_path(stack),
        log=bool(given.get("is_print_compare_log", False)),
    )
    mine, golden = (local_path(given[key]).absolute() for key in _PATHS)
    return _compare(mine, golden, Path(output_path), options, kwargs)


def compare_distributed(
    npu_dump_dir: str | Path, bench_dump_dir: str | Path, output_path: str | Path, **kwargs: Any
) -> Outcome:
    """Compare all ranks of a step; see :func:`compare` for the other arguments.

    Args:
        npu_dump_dir, bench_dump_dir: folders of a step, which hold folders of ranks.
        output_path: folder of the results, one table per rank.
        **kwargs: optional arguments of :func:`compare`; ``stack_mode`` has no effect.

    Raises:
        UsageError: an argument is unknown, or no rank is in both.
        FormatError: a file is malformed.
    """
    kwargs.pop("stack_mode", None)
    options = ApiOptions(
        fuzzy=kwargs.pop("fuzzy_match", False),
        highlight=kwargs.pop("highlight", False),
        advise=kwargs.pop("auto_analyze", True),
        log=kwargs.pop("is_print_compare_log", False),
    )
    mine, golden = (local_path(each).absolute() for each in (npu_dump_dir, bench_dump_dir))
    return _compare(mine, golden, Path(output_path), options, kwargs)


def _compare(
    mine: Path, golden: Path, output: Path, options: ApiOptions, more: dict[str, Any]
) -> Outcome:
    table = more.pop("data_mapping", None)
    analyze = more.pop("diff_analyze", False)
    options = replace(
        options,
        style=more.pop("table_style", options.style),
        jobs=more.pop("jobs", options.jobs),
        table=table if isinstance(table, Mapping) else _mapping(table),
    )
    if more:
        raise UsageError(f"compare has no argument {min(more)!r}")
    if options.style not in ("manual", "release"):
        raise UsageError(f"table_style {options.style!r} is neither 'manual' nor 'release'")
    stamp = time.strftime(STAMP_FORMAT)
    if analyze:
        return analyze_differences(mine, golden, output, stamp, options).outcome
    return compare_api_dumps(mine, golden, output, stamp, options)


def _mapping(path: str | Path | None) -> dict[str, str]:
    return {} if path is None else read_data_mapping(local_path(path))
