"""The fixture in a project of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ait_llm

ROOT = Path(ait_llm.__file__).parents[1]
TESTS = """
import torch

X = torch.linspace(1, 2, 64).half()

def test_right(opcheck):
    assert opcheck(lambda x: x + x, [X], golden=lambda x: 2 * x)

def test_wrong(opcheck):
    opcheck(lambda x: x + x + 1, [X], golden=lambda x: 2 * x)

def test_not_looked_at(opcheck):
    opcheck(lambda x: None, [X], golden=lambda x: 2 * x)
"""


def test_the_fixture_fails_tests_of_wrong_and_unchecked_kernels(tmp_path: Path) -> None:
    (tmp_path / "test_kernel.py").write_text(TESTS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "ait_llm.opcheck.pytest_plugin", "."],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 failed, 1 passed" in ran.stdout, ran.stdout + ran.stderr
    assert "outtensor0: FAIL [contract error<=bound of its arithmetic]" in ran.stdout
    assert "outtensor0: SKIPPED: the kernel did not return it" in ran.stdout


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    points = text.partition("[project.entry-points.pytest11]\n")[2].splitlines()
    assert points[0] == 'ait_llm_opcheck = "ait_llm.opcheck.pytest_plugin"'
