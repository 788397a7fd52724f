"""The Python example of docs/dump.md prints what the page says."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import ait_llm
from ait_llm.probe.library import find_packaged

PAGE = Path(__file__).parents[2] / "docs" / "dump.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.native
def test_reading_back_prints_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not find_packaged("libatb_probe_abi1.so", os.environ):
        pytest.skip("needs the compiled libraries")
    command = re.search(r"```console\n\$ ait (.*)\n", TEXT)
    example = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", TEXT, re.DOTALL)
    assert command is not None
    assert example is not None
    words = [word.replace("python ", f"{sys.executable} ") for word in shlex.split(command[1])]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ATB_")}
    source = str(Path(ait_llm.__file__).parents[1])
    subprocess.run(
        [sys.executable, "-m", "ait_llm", *words],
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=True,
    )
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example[1], str(PAGE), "exec"), {})
    assert printed.getvalue() == example[2]
