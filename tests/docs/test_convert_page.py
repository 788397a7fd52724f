"""docs/convert.md is true: its commands print what it shows, its formats are all there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from ait_llm.cli.main import ait
from ait_llm.formats.save import SAVE_FORMATS, SAVES_SEVERAL

PAGE = (Path(__file__).parents[2] / "docs" / "convert.md").read_text(encoding="utf-8")


def test_the_commands_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(program, {})
    (shown,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    printed = []
    for line in shown.splitlines():
        if line.startswith("$ "):
            result = CliRunner().invoke(ait, shlex.split(line.removeprefix("$ ait ")))
            assert result.exit_code == 0, result.output
            printed += [line, *result.stdout.replace(str(tmp_path), "/home/me").splitlines()]
    assert printed == shown.splitlines()


def test_the_table_has_every_format() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| (one|several) \|$", PAGE, re.MULTILINE)
    several = {name: "several" if name in SAVES_SEVERAL else "one" for name in SAVE_FORMATS}
    assert dict(rows) == several
