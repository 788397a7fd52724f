"""docs/dump.md is true: its example is what happens."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ait_llm.probe.library import find_packaged

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dump.md").read_text(encoding="utf-8")


def normal(line: str) -> str:
    """A line without what differs between runs and machines."""
    line = re.sub(r"/\S*/(?=(out|ait_llm|lib|hostatb|libatb_probe))", "/", line)
    line = re.sub(r"/(layer|model|\w+_io_tensors)/\d+", r"/\1/PID", line)
    line = re.sub(r"process( +)\d+", r"process\1PID", line)
    line = re.sub(r"/\S*(hostatb/cxx_abi_1|libatb_probe)", r"/\1", line)
    return re.sub(r"[\d.]+ GiB free|in [\d.]+ s", "MEASURED", line)


@pytest.mark.native
def test_the_example_prints_what_the_page_shows(tmp_path: Path) -> None:
    if not (find_packaged("libatb_probe_abi1.so", os.environ)):
        pytest.skip("needs the compiled libraries")
    command, *expected = PAGE.partition("```console\n$ ")[2].partition("```")[0].splitlines()
    words = shlex.split(command)
    words[words.index("--exec") + 1] = words[words.index("--exec") + 1].replace(
        "python", sys.executable
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ATB_")}
    done = subprocess.run(
        [sys.executable, "-m", "ait_llm", *words[1:]],
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    printed = done.stdout.replace(sys.executable, "python").splitlines()
    assert list(map(normal, printed)) == list(map(normal, expected))
