"""Commands that speak Chinese."""

from __future__ import annotations

import html
import json
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from ait_llm.cli.llm import own_commands
from ait_llm.cli.localised import cells
from ait_llm.cli.main import ait

COMMANDS = sorted(own_commands())


def run(*words: str, language: str = "zh") -> Result:
    return CliRunner().invoke(ait, ["--lang", language, *words])


def test_an_error_is_told_in_chinese_and_ends_as_in_english(tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing")
    said, english = (run("llm", "show", missing, language=each) for each in ("zh", "en"))
    assert said.exit_code == english.exit_code == 2
    assert missing in said.stderr
    assert said.stderr.startswith("ait: 错误：")
    assert any("\u4e00" <= each <= "\u9fff" for each in said.stderr.partition("：")[2])


@pytest.mark.parametrize("words", [("llm", "nope"), ("llm", "convert"), ("llm", "show", "--nope")])
def test_wrong_usage_is_told_in_chinese(words: tuple[str, ...]) -> None:
    said = run(*words)
    assert said.exit_code == 2
    assert said.stderr.startswith("ait: 错误：")
    assert said.stderr.count("\n") == 1


def test_a_result_for_machines_is_the_same_in_all_languages() -> None:
    one, other = (run("llm", "doctor", "--json", language=each) for each in ("zh", "en"))
    assert json.loads(one.stdout).keys() == json.loads(other.stdout).keys()
    assert "错误" not in one.stdout


@pytest.mark.parametrize(
    ("language", "word"), [("zh", '<h1 id="sentence">1 个张量失败'), ("en", ">1 tensor fails")]
)
def test_the_page_of_a_comparison_is_in_the_language_of_the_command(
    tmp_path: Path, language: str, word: str
) -> None:
    paths = [tmp_path / name for name in ("golden.npy", "mine.npy")]
    for number, path in enumerate(paths):
        np.save(path, np.full(8, 1 + number, np.float32))
    words = ("llm", "compare", "-gp", str(paths[0]), "-mp", str(paths[1]), "-o", str(tmp_path))
    said = run(*words, "--format", "html", language=language)
    assert said.exit_code == 1
    (page,) = tmp_path.glob("*.html")
    assert word in html.unescape(page.read_text("ascii"))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_in_chinese_fits_into_80_columns(command: str) -> None:
    said = run("llm", command, "--help")
    assert said.exit_code == 0
    assert "用法：" in said.stdout
    names = (line.split("  ")[1] for line in said.stdout.splitlines() if line.startswith("  -"))
    long = {name for name in names if cells(name) > 70}
    for line in said.stdout.splitlines():
        assert cells(line) <= 80 or line.strip().startswith("ait ") or line.strip() in long, line


def test_chinese_help_leaves_the_commands_as_they_are() -> None:
    run("llm", "show", "--help")
    said = run("llm", "show", "--help", language="en")
    assert "Usage:" in said.stdout
    assert not any("\u4e00" <= each <= "\u9fff" for each in said.stdout)
    assert isinstance(ait, click.Group)
