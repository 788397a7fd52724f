"""The server as an agent sees it: the SDK's own client, over stdin and stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from odd_dumps import half, write_operation

from ait_llm.errors import UsageError
from ait_llm.mcp import tools
from ait_llm.mcp.limits import limits_of

anyio = pytest.importorskip("anyio")
mcp = pytest.importorskip("mcp")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tensor files that differ, and a dump with a NaN."""
    folder = tmp_path_factory.mktemp("runs")
    np.save(folder / "golden.npy", np.ones(8, np.float32))
    np.save(folder / "mine.npy", np.full(8, 2, np.float32))
    odd = half(2, 3, at_1_2=np.nan)
    write_operation(folder / "dump", "0_RmsNormOperation", [half(2, 3)], [odd])
    write_operation(folder / "dump", "1_LinearOperation", [odd, half(3, 3)], [odd])
    return folder


def with_client(
    folder: Path, talk: Callable[[Any], Awaitable[dict[str, Any]]], *words: str
) -> dict[str, Any]:
    """What a client hears."""
    arguments = ["-m", "ait_llm", "llm", "mcp", "--allow", str(folder), *words]
    server = mcp.StdioServerParameters(command=sys.executable, args=arguments)

    async def main() -> dict[str, Any]:
        async with mcp.Client(server) as client:
            return await talk(client)

    found: dict[str, Any] = anyio.run(main)
    return found


def text_of(result: Any) -> str:
    (content,) = result.content
    return str(content.text)


def test_tools_are_listed_with_their_arguments_and_answer_in_json(runs: Path) -> None:
    async def talk(client: Any) -> dict[str, Any]:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        paths = {"golden": "golden.npy", "mine": "mine.npy", "output": "report"}
        heard = {"tools": tools, "compare": await client.call_tool("compare", paths)}
        heard["show"] = await client.call_tool("show", {"dump": "dump"})
        odd = {"dump": "dump", "output": "odd"}
        heard["errcheck"] = await client.call_tool("errcheck", odd)
        heard["outside"] = await client.call_tool("show", {"dump": "/etc"})
        heard["program"] = await client.call_tool("dump", {"program": "rm -r x", "output": "out"})
        heard["failing"] = await client.call_tool("show", {"dump": "golden_of_nobody"})
        return heard

    heard = with_client(runs, talk)
    assert sorted(heard["tools"]) == sorted(
        ["doctor", "plan", "dump", "compare", "show", "opcheck", "errcheck"]
    )
    schema = heard["tools"]["compare"].input_schema
    assert schema["required"] == ["golden", "mine", "output"]
    assert all(tool.description for tool in heard["tools"].values())
    compared = json.loads(text_of(heard["compare"]))
    assert (compared["schema"], compared["verdict"], compared["exit_code"]) == (
        "ait-llm.compare-result",
        "FAIL",
        1,
    )
    assert all(Path(path).is_relative_to(runs) for path in compared["reports"])
    rows = json.loads(text_of(heard["show"]))["rows"]
    assert [row["type"] for row in rows] == ["RmsNormOperation", "LinearOperation"]
    found = json.loads(text_of(heard["errcheck"]))
    assert (found["exit_code"], found["findings"][0]["place"]["name"]) == (1, "RmsNormOperation_0")
    for name, said in (
        ("outside", "/etc is outside of the permitted folders; permitted: "),
        ("program", "the program 'rm -r x' may not be run; permitted: none"),
        ("failing", "ait llm show ended with exit code 2: "),
    ):
        assert heard[name].is_error, name
        assert said in text_of(heard[name])
        assert "Traceback" not in text_of(heard[name])


def test_no_argument_becomes_an_option_of_a_command(tmp_path: Path) -> None:
    limits = limits_of([tmp_path], ["true"], any_program=False, most=1000, seconds=9)
    for call in (
        lambda: tools.opcheck(limits, "dump", "out", names="--rerun-with=os:getcwd"),
        lambda: tools.plan(limits, "true", budget="--msprobe-config=/etc/passwd"),
        lambda: tools.plan(limits, "true", kind="--keep"),
        lambda: tools.dump(limits, "true", "out", kind="api"),
    ):
        with pytest.raises(UsageError, match=r"begins with '-'|no kind of this tool"):
            call()


def test_a_file_that_an_agent_wrote_is_not_imported(tmp_path: Path) -> None:
    for name in ("ait_llm", "numpy", "json"):
        (tmp_path / f"{name}.py").write_text("open('owned', 'w')\n")
    np.save(tmp_path / "t.npy", np.ones(2, np.float32))
    limits = limits_of([tmp_path], [], any_program=False, most=1000, seconds=60)
    assert tools.show(limits, "t.npy")["exit_code"] == 0
    assert not (tmp_path / "owned").exists()


def test_a_long_answer_is_shortened_and_a_slow_tool_is_ended(runs: Path) -> None:
    for place in range(40):
        write_operation(runs / "many", f"{place}_LinearOperation", [half(2, 3)], [half(2, 3)])

    async def talk(client: Any) -> dict[str, Any]:
        waits = f"{sys.executable} -c 'import time; time.sleep(60)'"
        slow = {"program": waits, "output": "slow", "kind": "tensor"}
        return {
            "many": await client.call_tool("show", {"dump": "many", "tensors": True}),
            "slow": await client.call_tool("dump", slow),
        }

    heard = with_client(runs, talk, "--any-program", "--characters", "3000", "--seconds", "5")
    many = json.loads(text_of(heard["many"]))
    assert len(text_of(heard["many"])) <= 3000
    assert many["shortened"] == {"rows": 120}
    assert heard["slow"].is_error
    assert "ait llm dump was ended after 5 s" in text_of(heard["slow"])
