"""A decoder whose phases share operations, against its transformers twin: pass by pass."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ait_llm.compare import compare
from ait_llm.core import Verdict
from ait_llm.core.comparison import Report

pytestmark = pytest.mark.native
PROGRAM = Path(__file__).parent / "programs" / "shared_decoder.py"


def _dump(folder: Path, *words: str) -> None:
    command = [sys.executable, "-m", "ait_llm", "llm", "dump", "-o", str(folder), "-er", "all"]
    done = subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("shared")
    table = folder / "passes.json"
    python = f"{sys.executable} {PROGRAM}"
    _dump(folder / "golden", "--type", "torch", "--exec", f"{python} --twin")
    _dump(folder / "mine", "--type", "tensor", "layer", "--exec", f"{python} {table} table")
    pid = json.loads(table.read_text())["table"]["pid"]
    return compare(folder / "golden", folder / "mine" / "ait_dump" / "tensors" / f"0_{pid}")


def test_every_pass_has_its_counterpart(report: Report) -> None:
    assert not report.problems


def test_everything_that_was_compared_passes(report: Report) -> None:
    counts = report.counts
    assert counts[Verdict.FAIL] == counts[Verdict.ERROR] == 0
    assert not report.origins


def test_layers_of_all_passes_are_compared(report: Report) -> None:
    compared = {
        (item.record.op, item.record.step)
        for item in report.with_verdict(Verdict.PASS)
        if item.record.name == "outtensor0"
    }
    prefill = {(f"Prefill_layer_{top}", 0) for top in (1, 2, 3)}
    decode = {(f"Decoder_layer_{top}", count) for top in (6, 7, 8) for count in range(3)}
    shared = {
        (name, count)
        for name in ("GatherOperation_0", "RmsNormOperation_4", "LinearOperation_5")
        for count in range(4)
    }
    assert prefill | decode | shared <= compared
