"""Collectives in processes that one program starts, by the ranks in their parameters."""

from __future__ import annotations

import atexit
import multiprocessing
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp

import ait_llm.hostatb as torch_atb
from ait_llm.errors import OperationError
from ait_llm.hostatb import meeting

pytestmark = pytest.mark.native
SIZE = 2


def _sum(rank: int, folder: str, factor: float) -> None:
    param = torch_atb.AllReduceParam(rank=rank, rank_size=SIZE, all_reduce_type="sum")
    operation = torch_atb.Operation(param)
    for _ in range(2):
        (found,) = operation.forward([torch.full((3,), factor * (rank + 1)).half()])
    torch.save(found, Path(folder) / f"{factor}-{rank}.pt")


def _threads() -> list[str]:
    return [task.joinpath("comm").read_text("utf-8") for task in Path("/proc/self/task").iterdir()]


def _sum_and_leave(rank: int, folder: str) -> None:
    _sum(rank, folder, 1.0)
    assert any("gloo" in name for name in _threads())
    atexit._run_exitfuncs()
    assert not any("gloo" in name for name in _threads())


def _alone(folder: str) -> None:
    meeting.SECONDS = 1.0
    try:
        torch_atb.Operation(torch_atb.AllReduceParam(rank=0, rank_size=SIZE)).forward(
            [torch.ones(3).half()]
        )
    except OperationError as error:
        (Path(folder) / "said").write_text(str(error), encoding="utf-8")


@pytest.mark.usefixtures("native_library")
def test_ranks_of_one_program_meet_each_time_that_it_starts_some(tmp_path: Path) -> None:
    for factor in (1.0, 4.0):
        mp.spawn(_sum, args=(str(tmp_path), factor), nprocs=SIZE)
        for rank in range(SIZE):
            assert torch.load(tmp_path / f"{factor}-{rank}.pt").tolist() == [3 * factor] * 3


@pytest.mark.usefixtures("native_library")
def test_no_thread_of_the_group_lives_on_while_the_interpreter_ends(tmp_path: Path) -> None:
    mp.spawn(_sum_and_leave, args=(str(tmp_path),), nprocs=SIZE)


@pytest.mark.usefixtures("native_library")
def test_a_rank_that_waits_in_vain_says_what_it_needs(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_alone, args=(str(tmp_path),))
    process.start()
    process.join()
    said = (tmp_path / "said").read_text("utf-8")
    assert "tensors of all 2 ranks" in said
    assert "run one process for each rank" in said
