"""docs/api-compare.md is true: its program, its commands and what they print."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from api_dumps import call, tensor, write_dump
from click.testing import CliRunner

from ait_llm.cli.main import ait
from ait_llm.compare.api.merge import read_merge_settings
from ait_llm.compare.api.shards.layout import parse_layout
from ait_llm.compare.api.shards.saved import read_layouts

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api-compare.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def normal(text: str) -> list[str]:
    """Lines without what differs between runs."""
    text = re.sub(r"/\S*/(report|marked|first)/", r"/\1/", text)
    text = re.sub(r"_\d{14}\b", "_STAMP", text)
    text = re.sub(r"diff_analyze_\d+", "diff_analyze_NS", text)
    return [line.rstrip() for line in text.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the program of the page made its two dumps."""
    place = tmp_path_factory.mktemp("page")
    (place / "run.py").write_text(blocks("python")[0], encoding="utf-8")
    (place / "compare.json").write_text(blocks("json")[0], encoding="utf-8")
    for side in ("golden", "mine"):
        done = subprocess.run(
            [sys.executable, "run.py", side], cwd=place, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    return place


@pytest.mark.parametrize("number", range(3))
def test_the_commands_print_what_the_page_shows(
    folder: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, _, expected = blocks("console")[number].partition("\n")
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(ait, shlex.split(command.removeprefix("$ ait ")))
    assert done.exit_code == 1
    assert normal(done.stdout) == normal(expected)


def test_the_python_example_compares_one_rank_and_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = {"Functional.relu.0.forward": call([tensor()], [tensor()])}
    for side in ("golden", "mine"):
        write_dump(tmp_path / side, records)
    monkeypatch.chdir(tmp_path)
    exec(blocks("python")[1], {})
    assert capsys.readouterr().out.startswith("0 Counter({<Verdict.PASS")
    assert list((tmp_path / "report").glob("compare_result_rank0_*.csv"))


def test_the_yaml_files_are_read(tmp_path: Path) -> None:
    layout, config = (tmp_path / name for name in ("layout.yaml", "config.yaml"))
    for path, text in zip((layout, config), blocks("yaml"), strict=True):
        path.write_text(text, encoding="utf-8")
    found = read_layouts(layout).of("Functional.linear.7.forward.output.0")
    assert found is not None
    assert str(found) == "sum"
    assert read_merge_settings(config).columns == ("Max diff", "L2norm diff")


def test_the_layouts_of_the_table_are_layouts() -> None:
    table = PAGE.partition("| layout | meaning |")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| (`.*`) \| ", table, re.MULTILINE)
    texts = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell)]
    assert len(texts) == 10
    for text in texts:
        for part in text.split("\\|"):
            assert str(parse_layout(part)) == part.strip()
