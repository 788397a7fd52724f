"""The functions that compare, from where scripts import them."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
import torch
from api_captures import Debug
from api_dumps import call, tensor, write_dump

import ait_llm.dump.api
from ait_llm import ptdbg
from ait_llm.errors import UsageError

LINEAR = "Functional.linear.0.forward"


def two_dumps(tmp_path: Path) -> tuple[Path, Path]:
    """Files of two runs whose results differ."""
    for side, result in (("mine", 7), ("golden", 2)):
        write_dump(tmp_path / side, {LINEAR: call([tensor([1, 2])], [tensor([1, result])])})
    return next((tmp_path / "mine").rglob("dump.json")), next(
        (tmp_path / "golden").rglob("dump.json")
    )


def test_compare_of_two_files(tmp_path: Path) -> None:
    from ait_llm.dump.api import compare

    mine, golden = two_dumps(tmp_path)
    outcome = compare(
        {"npu_json_path": str(mine), "bench_json_path": str(golden)}, str(tmp_path / "out")
    )
    assert outcome.exit_code() == 1
    assert outcome.pairs[0].blamed is not None
    assert outcome.pairs[0].blamed.mine is not None
    assert outcome.pairs[0].blamed.mine.record == LINEAR


def test_compare_of_all_ranks_of_a_capture(debug: Debug, dump_path: Path, tmp_path: Path) -> None:
    from ait_llm.dump.api import compare_distributed

    debugger = debug()
    debugger.start(rank_id=0)
    torch.exp(torch.ones(3))
    debugger.stop()
    shutil.copytree(dump_path, tmp_path / "copy")
    golden, mine = (str(each / "step0") for each in (dump_path, tmp_path / "copy"))
    outcome = compare_distributed(mine, golden, str(tmp_path / "out"))
    assert [pair.suffix for pair in outcome.pairs] == ["_rank0"]
    assert outcome.exit_code() == 0


def test_names_that_are_not_there_raise_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'compare_all'"):
        ait_llm.dump.api.compare_all  # type: ignore[attr-defined]  # noqa: B018


def test_ptdbg_compares_newer_files_too(tmp_path: Path) -> None:
    mine, golden = two_dumps(tmp_path)
    paths = {"npu_json_path": str(mine), "bench_json_path": str(golden)}
    table = ptdbg.compare(paths, tmp_path / "out")
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["NPU Name"] for row in rows] == [f"{LINEAR}.input.0", f"{LINEAR}.output.0"]
    with pytest.raises(UsageError, match="suffix"):
        ptdbg.compare(paths, tmp_path / "out", suffix="later")


def test_ptdbg_compares_folders_of_newer_ranks_too(tmp_path: Path) -> None:
    mine, golden = two_dumps(tmp_path)
    tables = ptdbg.compare_distributed(
        mine.parent.parent, golden.parent.parent, tmp_path / "out", stack_mode=False
    )
    assert [table.name.split("_")[2] for table in tables] == ["rank0"]
