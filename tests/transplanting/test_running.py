"""How programs are started again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ait_llm.core import StepRange
from ait_llm.transplanting.running import ProgramRunner

PROGRAM = """
import os
import torch
with torch.no_grad():
    torch.nn.Sequential(torch.nn.Linear(2, 2))(torch.ones(1, 2))
print("engine in a process of its own:", os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"])
"""


@pytest.mark.parametrize("chosen", [None, "1"])
def test_engines_batch_requests_alike_in_each_run_unless_the_user_says_otherwise(
    tmp_path: Path, chosen: str | None
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    own = {} if chosen is None else {"VLLM_ENABLE_V1_MULTIPROCESSING": chosen}
    words = (sys.executable, str(program))
    runner = ProgramRunner(words, {**os.environ, **own}, ("torch",), StepRange(((0, 0),)))
    runner.run(tmp_path / "run", None)
    expected = f"engine in a process of its own: {chosen or '0'}"
    assert expected in (tmp_path / "run.log").read_text("utf-8")
