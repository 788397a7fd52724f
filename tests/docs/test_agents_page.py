"""docs/agents.md is followed word by word, by command line and over MCP; mcp.md shows schemas."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doc_pages import DOCS, Shell, blocks, check_page

anyio = pytest.importorskip("anyio")
mcp = pytest.importorskip("mcp")

PAGE = (DOCS / "agents.md").read_text("utf-8")


def objects() -> list[dict[str, Any]]:
    return [json.loads(block.text) for block in blocks(PAGE) if block.language == "json"]


def calls() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each call with the members of its answer that the page shows."""
    found = objects()[1:]
    return zip(found[::2], found[1::2], strict=True)


async def answers(folder: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    settings = objects()[0]["mcpServers"]["ait-llm"]
    assert settings["command"] == "ait"
    words = [word.replace("/home/me", str(folder)) for word in settings["args"]]
    server = mcp.StdioServerParameters(command=sys.executable, args=["-m", "ait_llm", *words])
    found = []
    async with mcp.Client(server) as client:
        for call, shown in calls():
            result = await client.call_tool(call["tool"], call["arguments"])
            found.append((shown, json.loads(result.content[0].text)))
    return found


@pytest.mark.native
def test_the_page_does_what_it_shows_by_command_line_and_over_mcp(shell: Shell) -> None:
    check_page(PAGE, shell)
    heard = anyio.run(answers, shell.folder)
    assert len(heard) == 3
    for shown, answer in heard:
        assert {name: answer.get(name) for name in shown} == shown


def test_the_commands_of_the_page_about_schemas_print_what_it_shows(shell: Shell) -> None:
    text = (DOCS / "mcp.md").read_text("utf-8")
    check_page(text.partition("## Schemas")[2].partition("## Options")[0], shell)
    written = json.loads((shell.folder / "merge-result.schema.json").read_text("utf-8"))
    assert written["$id"] == "ait-llm.merge-result/1"
