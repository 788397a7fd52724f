"""docs/dump.md says what really happens."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ait_llm.cli.dump import dump
from ait_llm.probe.library import find_packaged

PAGE = Path(__file__).parents[2] / "docs" / "dump.md"
TEXT = PAGE.read_text(encoding="utf-8")
VARIABLE = [
    (r"[^\s,]*/(?=out/ait_dump|hostatb/cxx_abi_|libatb_probe_abi)", "…/"),
    (r"\(\S+ \S+ free", "(… free"),
    (r"cxx_abi_\d|probe_abi\d", "abi"),
    (r"process +\d+", "process PID"),
    (r"-> \[[\d, ]+\]", "-> […]"),  # argmax of nearly equal numbers may differ between CPUs
    (r"/\d+(?=,|\n|$)", "/PID"),
    (r"in \d+\.\d+ s", "in … s"),
]


def without_variables(text: str) -> str:
    """Text in which nothing is left that differs between machines and runs."""
    for pattern, replacement in VARIABLE:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


def test_every_option_of_the_command_is_on_the_page() -> None:
    table = TEXT[TEXT.index("## Options") :].split("\n\n")[1]
    described = {
        name
        for cell in re.findall(r"^\| (.*?) \|", table, re.M)
        for name in re.findall(r"(?<![\w-])--?[a-z][\w-]*", cell)
    }
    existing = {name for param in dump.params for name in param.opts}
    assert described == existing


@pytest.mark.native
def test_the_first_command_prints_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not find_packaged("libatb_probe_abi1.so", os.environ):
        pytest.skip("needs the compiled libraries")
    block = re.search(r"```console\n\$ ait (.*?)\n(.*?)```", TEXT, re.DOTALL)
    assert block is not None
    words = re.findall(r'"[^"]*"|\S+', block[1])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ATB_")}
    folder = Path(sys.executable).parent
    done = subprocess.run(
        [sys.executable, "-m", "ait_llm", *(word.strip('"') for word in words)],
        cwd=tmp_path,
        env={
            **kept,
            "PATH": f"{folder}{os.pathsep}{kept.get('PATH', '')}",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONUNBUFFERED": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    assert without_variables(done.stdout) == without_variables(block[2])
    example = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", TEXT, re.DOTALL)
    assert example is not None
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example[1], str(PAGE), "exec"), {})
    assert printed.getvalue() == example[2]
