"""The decision tree: its commands exist, its branches lead somewhere.

Every command in its console blocks is run by test_pages.py, with the output and the exit code that
the page shows.
"""

from __future__ import annotations

import re
import shlex

import click
import pytest
from doc_pages import DOCS, anchors, links, page_steps

from ait_llm.cli.llm import llm

PAGE = (DOCS / "what-now.md").read_text("utf-8")
SECTIONS = re.findall(r"^## (\d+)\. (.*?)\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
MENTIONED = sorted(set(re.findall(r"`(ait llm [^`]+)`", PAGE)))


def test_the_table_leads_to_every_symptom_in_order() -> None:
    table = PAGE.partition("| what you see | go to |")[2].partition("\n\n")[0]
    targets = re.findall(r"\[(\d+)\]\(#([^)]+)\)", table)
    assert [int(number) for number, _ in targets] == list(range(1, len(SECTIONS) + 1))
    assert [int(number) for number, _, _ in SECTIONS] == list(range(1, len(SECTIONS) + 1))
    assert all(anchor.startswith(f"{number}-") for number, anchor in targets)
    assert {anchor for _, anchor in targets} <= anchors(PAGE)


@pytest.mark.parametrize(("number", "title", "text"), SECTIONS, ids=[s[1] for s in SECTIONS])
def test_every_symptom_has_commands_a_reading_and_a_next_step(
    number: str, title: str, text: str
) -> None:
    if title == "Too large to dump":  # a list of ways to write less
        assert text.count("| `") + text.count(" `-") > 4
        return
    steps = page_steps(text)
    assert any(step.shown for step in steps)
    assert steps[-1].exit_code in (1, 3, 5), "a fault was injected, and the last command finds it"
    rows = text.partition("| --- |")[2].splitlines()[1:]
    rows = [row for row in rows if row.startswith("| ")]
    assert len(rows) >= 2
    assert all(cell.strip() for row in rows for cell in row.split(" | ")[-2:])
    assert links(text), f"{number} leads nowhere"


@pytest.mark.parametrize("line", MENTIONED)
def test_a_command_that_is_only_mentioned_is_one_that_the_tool_takes(line: str) -> None:
    name, *words = shlex.split(line.removeprefix("ait llm ").replace("…", "program"))
    command = llm.get_command(click.Context(llm), name)
    assert command is not None, name
    context = click.Context(command, info_name=name, resilient_parsing=True)
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    assert {word for word in words if word.startswith("-")} <= known
    command.parse_args(context, words)
