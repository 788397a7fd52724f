"""Scripts that show a failure without this package."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from operator_dumps import LINEAR, OperatorDump
from safetensors.torch import load_file

from ait_llm.opcheck.pipeline import opcheck
from ait_llm.opcheck.repro import Repros, write_safetensors

X = torch.linspace(1, 2, 64).reshape(4, 16).bfloat16()
RIGHT = (X.double() @ X.double().T).bfloat16()
# Only Python, torch and NumPy: every other package of this environment is refused.
LONE = """
import runpy, sys
sys.modules.update(dict.fromkeys(("ait_llm", "safetensors", "ml_dtypes", "click", "onnx")))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
KERNEL = """
def right(inputs, params):
    assert params["transposeB"] and len(inputs) == 2
    return (inputs[0].double() @ inputs[1].double().T).bfloat16()

def wrong(inputs, params):
    return (right(inputs, params) * 2,)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A failure with one wrong row."""
    dump = OperatorDump(tmp_path / "ait_dump")
    wrong = RIGHT.clone()
    wrong[2, 1:] *= 1.5
    dump.add("0_LinearOperation", [X, X], [RIGHT], LINEAR)
    dump.add("1_LinearOperation", [X, X], [wrong], LINEAR)
    repros = Repros(tmp_path / "repro")
    opcheck(dump.root, on_failure=repros)
    (made,) = repros.scripts
    return made


def run(script: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LONE, str(script)],
        cwd=script.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_script_alone_prints_golden_the_dumped_value_and_the_first_bad_index(
    script: Path,
) -> None:
    ran = run(script)
    assert ran.returncode == 1, ran.stderr
    golden = float(RIGHT[2, 1])
    assert "LinearOperation_1 outtensor0, step 0" in ran.stdout
    assert (
        f"first bad index [2, 1]: golden {golden!r}, dumped {float(RIGHT[2, 1] * 1.5)!r}"
        in ran.stdout
    )
    assert "dumped: 3 of 16 elements beyond a relative error of 0.004" in ran.stdout


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [("right", 0, "kernel: 0 of 16 elements"), ("wrong", 1, "first bad index [0, 0]")],
)
def test_the_script_judges_a_kernel(
    script: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    code: int,
    said: str,
) -> None:
    kernel = script.parent / "kernel.py"
    kernel.write_text(KERNEL)
    monkeypatch.setattr(sys, "argv", [str(script), f"{kernel}:{name}"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == code
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("size", "said"),
    [(3, "is damaged; copy it again"), (1 << 40, "is cut off; copy it again")],
)
def test_a_damaged_file_is_no_verdict(script: Path, size: int, said: str) -> None:
    file = script.with_suffix(".safetensors")
    file.write_bytes(size.to_bytes(8, "little") + file.read_bytes()[8:])
    ran = run(script)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"{file.name}: it {said}\n"


def test_a_kernel_that_fails_is_no_verdict(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = script.parent / "kernel.py"
    kernel.write_text("def kernel(inputs, params):\n    return 1 / 0\n")
    monkeypatch.setattr(sys, "argv", [str(script), f"{kernel}:kernel"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_the_tensors_are_those_of_the_dump_and_readable_by_the_group(script: Path) -> None:
    tensors = load_file(script.with_suffix(".safetensors"))
    assert torch.equal(tensors["intensor0"], X)
    assert torch.equal(tensors["golden"], RIGHT)
    assert not torch.equal(tensors["dumped"], RIGHT)
    for file in (script, script.with_suffix(".safetensors")):
        assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int64, torch.uint8, torch.float16, torch.float8_e4m3fn]
)
def test_every_type_survives_the_file(tmp_path: Path, dtype: torch.dtype) -> None:
    tensor = torch.tensor([[0, 1, 1]]).to(dtype)
    write_safetensors(tmp_path / "a.safetensors", {"a": tensor, "none": tensor[:0]}, {})
    loaded = load_file(tmp_path / "a.safetensors")
    assert loaded["a"].dtype == dtype
    assert torch.equal(loaded["a"].float(), tensor.float())
    assert loaded["none"].shape == (0, 3)
