"""Each command has a page of one shape, with exactly its options."""

from __future__ import annotations

import re
from itertools import pairwise

import click
import pytest
from doc_pages import DOCS, blocks

from ait_llm.cli.llm import llm

# A page may hold a second command that belongs to the first.
TOGETHER = {
    "api-precision-compare": ("api-check", "## Two devices"),
    "schema": ("mcp", "## Schemas"),
}
COMMANDS = sorted(set(llm.list_commands(click.Context(llm))) - {"completion"})
OWN_PAGE = [name for name in COMMANDS if name not in TOGETHER]


def command(name: str) -> click.Command:
    found = llm.get_command(click.Context(llm), name)
    assert found is not None
    return found


def options(name: str) -> list[tuple[str, ...]]:
    return [
        (*param.opts, *param.secondary_opts)
        for param in command(name).params
        if isinstance(param, click.Option) and not param.hidden
    ]


def text_of(name: str) -> str:
    page, heading = TOGETHER.get(name, (name, ""))
    text = (DOCS / f"{page}.md").read_text("utf-8")
    return text.partition(heading)[2].partition("\n## ")[0] if heading else text


def section(name: str, title: str) -> str:
    found = text_of(name).partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert found, f"docs/{name}.md has no section {title!r}"
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_lists_exactly_the_options_of_the_command(name: str) -> None:
    table = text_of(name) if name in TOGETHER else section(name, "Options")
    rows = re.findall(r"^\| (`-[^|]*) \|", table, re.MULTILINE)
    documented = [tuple(re.findall(r"`([^`]+)`", row)) for row in rows]
    assert sorted(map(sorted, documented)) == sorted(map(sorted, options(name)))


@pytest.mark.parametrize("name", OWN_PAGE)
def test_a_page_starts_with_its_question_and_an_example(name: str) -> None:
    title, _, rest = text_of(name).partition("\n\n")
    assert title == f"# `ait llm {name}`"
    assert re.match(r"Answers: [^?]+\?\s", rest)
    example = next(block for block in blocks(rest) if block.language == "console")
    # A page whose example needs a program shows that program first.
    before = rest.splitlines()[: example.line]
    assert len(before) < 60
    commands = re.findall(r"^\$ (.*)", example.text, re.MULTILINE)
    assert any(
        line.startswith(f"ait llm {name} ") or line == f"ait llm {name}" for line in commands
    )


@pytest.mark.parametrize("name", OWN_PAGE)
def test_a_page_has_its_sections_in_one_order(name: str) -> None:
    headings = re.findall(r"^## (.*)", text_of(name), re.MULTILINE)
    common = ["Options", "Exit codes", "In Python", "Limits"]
    places = [headings.index(title) for title in common]
    assert all(one < other for one, other in pairwise(places)), headings


@pytest.mark.parametrize("name", OWN_PAGE)
def test_exit_codes_are_a_table_with_the_codes_of_every_command(name: str) -> None:
    codes = re.findall(r"^\| (\w+) \|", section(name, "Exit codes"), re.MULTILINE)
    assert codes[0] == "code"
    assert {"0", "2"} <= set(codes)
    numbers = [int(code) for code in codes if code.isdigit()]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("name", OWN_PAGE)
def test_the_imports_of_the_python_examples_exist(name: str) -> None:
    code = "".join(b.text for b in blocks(section(name, "In Python")) if b.language == "python")
    imports = re.findall(r"^(?:from ait_llm\S* import \(?[^)\n]+|import ait_llm\S*)", code, re.M)
    assert imports, f"docs/{name}.md shows no import"
    for line in imports:
        exec(line.replace("(", ""), {})
