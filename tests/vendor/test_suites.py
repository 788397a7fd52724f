"""The suites against a checkout of a few lines, and what is put down to the vendor."""

from __future__ import annotations

from pathlib import Path

import torch
from vendor.cases import CASES
from vendor.explanations import explain
from vendor.outcome import Side
from vendor.programs import PROGRAMS
from vendor_checkout import HEAD, LINE, checkout, run

from ait_llm.opcheck.selftest.recorded import Recorded


def test_the_vendors_generator_runs_where_it_lies_and_a_difference_is_ours(tmp_path: Path) -> None:
    ran = run(str(checkout(tmp_path)), "--only", "goldens")
    assert ran.returncode == 1, ran.stderr
    assert "1 of 2 agree" in ran.stdout
    assert "SoftmaxOperation some 2: output 0: 32 of 32 elements" in ran.stdout
    assert run(str(tmp_path), "--only", "goldens", "--operator", "CumsumOperation").returncode == 0
    largest = run(str(tmp_path), "--only", "goldens", "--largest", "63")
    assert "1 skipped, more than 63 elements" in largest.stdout


def test_a_healthy_case_that_is_refused_is_ours_but_for_an_output_that_the_library_refuses(
    tmp_path: Path,
) -> None:
    folder = checkout(tmp_path)
    narrow = LINE.replace("nd|4,8|random", "nd|4,7|random")
    lines = [
        LINE.format(1, "CumsumOperation", '{"axes":[1]}', "NO_ERROR"),
        narrow.format(2, "CumsumOperation", '{"axes":[1]}', "NO_ERROR"),
        narrow.replace("0,1|||", "0,1|||Generalization").format(
            3, "CumsumOperation", '{"axes":[1]}', "NO_ERROR"
        ),
        LINE.format(4, "CumsumOperation", '{"axes":[9]}', "NO_ERROR"),
    ]
    (folder / CASES / "some.csv").write_text("\n".join((HEAD, *lines)), encoding="utf-8")
    ran = run(str(folder), "--only", "accepted")
    assert ran.returncode == 1, ran.stderr
    assert "2 of 4 agree" in ran.stdout
    (theirs,) = (line for line in ran.stdout.splitlines() if "some 2: S:" in line)
    assert "vendor" in theirs
    (ours,) = (line for line in ran.stdout.splitlines() if "some 4: I:ERROR_INVALID_PARAM" in line)
    assert ours.endswith("ours")


PROGRAM = """
import unittest
import torch
import torch_atb
import torch.multiprocessing as mp

def add(x):
    kind = torch_atb.ElewiseParam.ElewiseType.ELEWISE_ADD
    operation = torch_atb.Operation(torch_atb.ElewiseParam(elewise_type=kind))
    return operation.forward([x.npu(), x.npu()])[0].cpu()

def gather(rank):
    param = torch_atb.AllGatherParam(rank=rank, rank_size=2)
    (found,) = torch_atb.Operation(param).forward([torch.full((2,), rank).half()])
    assert found.tolist() == [[0, 0], [1, 1]]

class TestSome(unittest.TestCase):
    def test_right(self):
        assert torch.equal(add(torch.ones(2).half()), torch.full((2,), 2.0).half())
    def test_wrong(self):
        self.assertEqual(add(torch.ones(2).half()).tolist(), [3.0, 3.0])
    def test_ranks(self):
        mp.spawn(gather, nprocs=2)
"""


def test_programs_run_on_hostatb_where_they_lie(tmp_path: Path) -> None:
    folder = tmp_path / PROGRAMS
    folder.mkdir(parents=True)
    (folder / "some_test.py").write_text(PROGRAM, encoding="utf-8")
    (folder / "no_test.py").write_text("import unittest\n", encoding="utf-8")
    (folder / "utils.py").write_text("import torch_atb\n", encoding="utf-8")
    ran = run(str(tmp_path), "--only", "programs")
    assert ran.returncode == 1, ran.stderr
    assert "2 of 3 agree" in ran.stdout
    assert "some_test test_wrong: AssertionError" in ran.stdout
    assert "no_test: 1 skipped, it has no tests that unittest finds" in ran.stdout
    assert "utils" not in ran.stdout
    assert not list(tmp_path.rglob("__pycache__"))


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    ran = run(str(tmp_path / "nowhere"))
    assert ran.returncode == 2
    assert "is no folder" in ran.stderr


def overflowing(golden: torch.Tensor) -> Recorded:
    """FaUpdate with an exponential beyond float32 in its second row."""
    lse = torch.tensor([[0.0, 200.0], [1.0, 1.0]])
    return Recorded("FaUpdateOperation", "f 1", {"faUpdateType": 0, "sp": 2}, [lse, _OUT], [golden])


_OUT = torch.arange(8.0).reshape(2, 2, 2)


def test_a_fault_is_the_vendors_only_where_it_gives_the_vendors_numbers() -> None:
    first = _OUT[:, 0].T @ torch.tensor([0.0, 1.0]).softmax(0)
    golden = torch.stack([first, torch.full((2,), torch.nan)])
    assert explain(overflowing(golden))[0] is Side.VENDOR
    assert overflowing(golden).differs() != ""
    assert explain(overflowing(golden + 1))[0] is Side.OURS


def sums_in_16_bits() -> Recorded:
    """IndexAdd of many terms to one element, each sum rounded."""
    x, terms = torch.full((1, 1), 2048.0).half(), torch.ones(64, 1).half()
    indices, factor = torch.zeros(64, dtype=torch.int32), torch.ones(1).half()
    golden = x.index_add(0, indices, terms)
    return Recorded(
        "IndexAddOperation", "i 1", {"indexType": 1}, [x, indices, terms, factor], [golden]
    )


def test_sums_in_16_bits_are_the_vendors_fault_only_where_they_give_its_numbers() -> None:
    one = sums_in_16_bits()
    assert one.differs() != ""
    assert explain(one)[0] is Side.VENDOR
    wrong = Recorded(one.op, one.case, one.params, one.inputs, [one.golden[0] * 2])
    assert explain(wrong)[0] is Side.OURS
