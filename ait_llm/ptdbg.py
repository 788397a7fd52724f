"""The interface of ptdbg_ascend: ``from ait_llm.ptdbg import *`` in place of its own import.

See docs/migrating.md for what differs.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ait_llm.compare.api import functions as _api
from ait_llm.compare.ptdbg import compare_distributed as _compare_distributed
from ait_llm.compare.ptdbg import compare_pkl, describe_call
from ait_llm.dump.ptdbg import (
    acc_cmp_dump,
    overflow_check,
    register_hook,
    seed_all,
    set_backward_input,
    set_dump_path,
    set_dump_switch,
    set_overflow_check_switch,
    unregister_hook,
)
from ait_llm.dumps.api_place import is_api_dump
from ait_llm.dumps.ptdbg_place import PtdbgPlace
from ait_llm.errors import UsageError
from ait_llm.storage import local_path

__all__ = [
    "acc_cmp_dump",
    "compare",
    "compare_distributed",
    "overflow_check",
    "parse",
    "register_hook",
    "seed_all",
    "set_backward_input",
    "set_dump_path",
    "set_dump_switch",
    "set_overflow_check_switch",
    "unregister_hook",
]
_API_KEYS = ("npu_json_path", "npu_path")
_KEYS = ("npu_pkl_path", "bench_pkl_path", "npu_dump_data_dir", "bench_dump_data_dir")


def compare(
    input_param: Mapping[str, Any],
    output_path: str | Path,
    stack_mode: bool = False,
    auto_analyze: bool = True,
    suffix: str = "",
    fuzzy_match: bool = False,
) -> Path:
    """Compare two dumps of one process each; returns the csv file.

    Given ``npu_json_path`` and ``bench_json_path``, as newer scripts do, two ``dump.json`` are
    compared (:func:`ait_llm.dump.api.compare`).

    Args:
        input_param: ``npu_pkl_path`` and ``bench_pkl_path``, the ``.pkl`` files;
            ``npu_dump_data_dir`` and ``bench_dump_data_dir``, the folders of their arrays; and
            ``is_print_compare_log``, whether every row is logged.
        output_path: folder of ``compare_result{_suffix}_{time}.csv``.
        stack_mode: whether mine was dumped with ``mode="api_stack"``.
        auto_analyze: also write what the first failing row suggests, ``advisor…txt``.
        suffix: part of the files' names.
        fuzzy_match: numbers of calls may differ.

    Raises:
        UsageError: a key is missing, or ``stack_mode`` does not agree with the file.
        FormatError: a file is damaged.
    """
    if any(key in input_param for key in _API_KEYS):
        if suffix:
            raise UsageError("compare: suffix names tables of .pkl files, not those of dump.json")
        found = _api.compare(input_param, output_path, stack_mode, auto_analyze, fuzzy_match)
        return found.pairs[0].files[0]
    missing = [key for key in _KEYS if not input_param.get(key)]
    if missing:
        raise UsageError(f"compare: input_param lacks {', '.join(missing)}")
    mine, golden, my_data, golden_data = (local_path(input_param[key]).absolute() for key in _KEYS)
    outcome = compare_pkl(
        PtdbgPlace(mine, data=my_data),
        PtdbgPlace(golden, data=golden_data),
        Path(output_path),
        stacks=stack_mode,
        advise=auto_analyze,
        suffix=suffix,
        fuzzy=fuzzy_match,
        log=bool(input_param.get("is_print_compare_log", False)),
    )
    return outcome.table


def compare_distributed(
    npu_dump_dir: str | Path, bench_dump_dir: str | Path, output_path: str | Path, **kwargs: Any
) -> list[Path]:
    """Compare every rank of two dumps; returns the csv files.

    Args:
        npu_dump_dir, bench_dump_dir: folders that hold ``rank*`` folders and nothing else; or two
            with the ``dump.json`` of newer captures (:func:`ait_llm.dump.api.compare_distributed`).
        output_path: folder of ``compare_result_rank{N}-rank{M}_{time}.csv``.
        kwargs: ``auto_analyze`` and ``fuzzy_match`` of :func:`compare`; ``suffix`` and
            ``stack_mode`` follow from the folders.

    Raises:
        UsageError: the folders do not hold the same number of ranks, or something else.
        FormatError: a file is damaged.
    """
    if is_api_dump(local_path(npu_dump_dir)) and is_api_dump(local_path(bench_dump_dir)):
        found = _api.compare_distributed(npu_dump_dir, bench_dump_dir, output_path, **kwargs)
        return [pair.files[0] for pair in found.pairs]
    outcomes = _compare_distributed(
        local_path(npu_dump_dir),
        local_path(bench_dump_dir),
        Path(output_path),
        advise=bool(kwargs.get("auto_analyze", True)),
        fuzzy=bool(kwargs.get("fuzzy_match", False)),
    )
    return [outcome.table for outcome in outcomes]


def parse(pkl_file: str | Path, moudule_name_prefix: str) -> None:
    """Print the call stack and the statistics of the items whose names begin so.

    Args:
        pkl_file: the ``.pkl`` file.
        moudule_name_prefix: ``Torch_norm_1_forward``; the name is ptdbg's.

    Raises:
        FormatError: the file is damaged.
    """
    for line in describe_call(local_path(pkl_file).absolute(), moudule_name_prefix):
        sys.stdout.write(f"{line}\n")
