"""What ``scripts/test`` starts: every tool here is a stand-in that says its name."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from doc_pages import ROOT

LINTERS = ["ruff check .", "ruff format --check .", "mypy", "lint-imports"]
ALL = "pytest -n 2 --dist loadfile --no-loadscope-reorder"


def started(folder: Path, *arguments: str) -> list[str]:
    """The commands that it runs, in their order."""
    tools = folder / "bin"
    tools.mkdir()
    # The compiler is given a program to try, and python installs: nothing, here.
    stand_ins = {"c++": "cat >/dev/null", "python": "true"}
    stand_ins |= {name: f'echo "{name} $*"' for name in ("ruff", "mypy", "lint-imports", "pytest")}
    for name, body in stand_ins.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    done = subprocess.run(
        [ROOT / "scripts" / "test", *arguments],
        env={**os.environ, "AIT_VENV": str(folder), "CXX": str(tools / "c++")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line.rstrip() for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "commands"),
    [
        ([], [*LINTERS, ALL]),
        (["tests/formats", "-k", "a b"], ["pytest tests/formats -k a b"]),
        (["--lint", "tests/formats"], [*LINTERS, "pytest tests/formats"]),
        (["--lint"], LINTERS),
    ],
    ids=["all", "files", "files and linters", "linters"],
)
def test_files_are_run_at_once_and_linters_when_asked(
    tmp_path: Path, arguments: list[str], commands: list[str]
) -> None:
    assert started(tmp_path, *arguments) == commands
