"""A capture of two processes whose collective operators exchange tensors, checked by opcheck."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from fault_matrix import dump

from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.outcome import Checked, OpcheckReport
from ait_llm.opcheck.pipeline import opcheck

pytestmark = pytest.mark.native
PROGRAM = Path(__file__).with_name("programs") / "ranks.py"
# In the order of the program; Send has no output of its own, and is checked at Recv.
OPERATORS = ("AllReduce", "AllGather", "Broadcast", "ReduceScatter", "AllToAll", "LinearParallel")


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    dump([sys.executable, str(PROGRAM)], folder, "--type", "tensor", "-time", "2")
    return folder / "ait_dump"


@pytest.fixture
def copied(right: Path, tmp_path: Path) -> Path:
    return shutil.copytree(right, tmp_path / "ait_dump")


def found(report: OpcheckReport, verdict: Verdict) -> set[tuple[int, str]]:
    """Rank and operator of the items with a verdict."""
    items: list[Checked] = [item for item in report.items if item.verdict is verdict]
    return {(item.device, item.op_type.removesuffix("Operation")) for item in items}


def test_every_collective_passes_on_every_rank(right: Path) -> None:
    report = opcheck(right, standard="contract")
    expected = {(rank, name) for rank in (0, 1) for name in OPERATORS} | {(1, "Recv")}
    assert found(report, Verdict.PASS) == expected
    assert found(report, Verdict.SKIPPED) == {(0, "Send")}


def test_exactly_the_faulty_rank_fails(copied: Path) -> None:
    (path,) = copied.glob("tensors/1_*/0/3_ReduceScatterOperation/after/outtensor0*.bin")
    content = bytearray(path.read_bytes())
    content[-1] ^= 0x80  # the sign of the last element
    path.write_bytes(content)
    report = opcheck(copied, standard="contract")
    assert found(report, Verdict.FAIL) == {(1, "ReduceScatter")}
    assert len(found(report, Verdict.PASS)) == 12


def test_without_a_rank_nothing_collective_is_judged(copied: Path) -> None:
    for lost in (*copied.glob("tensors/0_*"), *copied.glob("ledger/0_*")):
        shutil.rmtree(lost) if lost.is_dir() else lost.unlink()
    report = opcheck(copied, standard="contract")
    assert found(report, Verdict.PASS) == found(report, Verdict.FAIL) == set()
    reasons = {item.op_type: item.reason for item in report.items}
    assert "the dump has none of rank 0" in reasons["AllReduceOperation"]
    assert "the dump has 0 that it sends there" in reasons["RecvOperation"]
