"""docs/api-check.md is true: its example, standards and columns."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ait_llm.apicheck.standards import standards
from ait_llm.apicheck.tables import DETAIL_COLUMNS
from ait_llm.cli.main import ait

PAGE = (Path(__file__).parents[2] / "docs" / "api-check.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_page_has_every_standard_and_every_column() -> None:
    named = re.findall(r"^\| `(\w+)` \|", section("Standards"), re.MULTILINE)
    assert sorted(named) == sorted(standards)
    rows = re.findall(r"^\| (`[^|]*) \|", section("Tables"), re.MULTILINE)
    assert tuple(name for row in rows for name in re.findall(r"`([^`]+)`", row)) == DETAIL_COLUMNS


def test_the_example_gives_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture, from_python = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", capture], cwd=tmp_path, env=environment, check=True)
    monkeypatch.chdir(tmp_path)
    command, shown = re.findall(r"```console\n\$ ait (.*?)\n(.*?)```", PAGE, re.DOTALL)[0]
    result = CliRunner().invoke(ait, command.split())
    assert result.exit_code == 0, result.output
    masked = re.sub(r"_\d{14}", "_TIME", result.output).replace(str(tmp_path), "/home/me")
    assert masked == re.sub(r"_\d{14}", "_TIME", shown)
    exec(compile(from_python, "api-check.md", "exec"), {})
