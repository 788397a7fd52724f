"""The README's commands run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }


@pytest.mark.native
@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_readme_walkthrough_runs_as_written(page: str, tmp_path: Path) -> None:
    commands = _blocks(_ROOT / page, "bash")[1].replace(". .venv/bin/activate\n", "")
    shell = subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=tmp_path,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    # The last command compares with a faulty run and says so.
    assert shell.returncode == 1, shell.stderr
    assert "ait llm compare: FAIL" in shell.stdout
    named = re.search(r"`(\w+Operation_\w+)`", (_ROOT / page).read_text("utf-8"))
    assert named is not None
    assert re.search(rf"started +{named[1]} ", shell.stdout)
    for snippet in _blocks(_ROOT / page, "python"):
        python = subprocess.run(
            [sys.executable, "-c", snippet],
            cwd=tmp_path,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert python.returncode == 0, python.stderr
