"""SIGTERM in the middle of a command: what was done is told, and what was left counts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from dump_builder import DumpBuilder

from ait_llm.cli.main import ait
from ait_llm.convert import files
from ait_llm.errcheck import check


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(ait, ["llm", *map(str, words)])


def terminated_after(count: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, and this process gets SIGTERM when it was called that often."""
    calls = 0

    def called(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        result = function(*arguments, **named)
        if calls == count:
            os.kill(os.getpid(), signal.SIGTERM)
        return result

    return called


def test_convert_says_how_many_files_it_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(200):
        np.save(tmp_path / f"{number:03}.npy", np.zeros(2))
    monkeypatch.setattr(files, "convert_file", terminated_after(3, files.convert_file))
    said = run("convert", tmp_path, "--to", "bin", "-o", tmp_path / "out", "-j", "1")
    assert said.exit_code == 3, said.output
    written = len(list((tmp_path / "out").glob("*.bin")))
    assert 3 <= written < 200
    assert f"INCOMPLETE: {written} tensors in {written} files" in said.output
    assert f"missing {200 - written} files left, because it was interrupted" in said.output


def test_errcheck_tells_what_it_found_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = DumpBuilder(tmp_path / "ait_dump")
    for step in range(5):
        builder.operation("0_LinearOperation", step=step, value=1.0)
    monkeypatch.setattr(check, "look_at", terminated_after(2, check.look_at))
    said = run("errcheck", "--dump", tmp_path, "-o", tmp_path / "out")
    assert said.exit_code == 3, said.output
    assert "the check was interrupted, passes that follow were not looked at" in said.output
    assert "2 passes" in said.output
