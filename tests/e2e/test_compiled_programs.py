"""``ait llm dump --type fx`` around compiled programs that know nothing of it, and what follows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import ait_llm
from ait_llm.cli.main import ait
from ait_llm.dumps import open_dump

PROGRAMS = Path(__file__).parent / "programs"
PAGE = (Path(__file__).parents[2] / "docs" / "graph-mode.md").read_text(encoding="utf-8")


def dump(folder: Path, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AIT_")}
    words = [sys.executable, "-m", "ait_llm", "llm", "dump", "--type", "fx", "--exec", command]
    return subprocess.run(
        [*words, "-o", str(folder), "--json", *options],
        cwd=PROGRAMS,
        env={
            **kept,
            "PYTHONPATH": str(Path(ait_llm.__file__).parent.parent),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def compare(golden: Path, mine: Path, report: Path) -> Result:
    words = ["llm", "compare", "-gp", str(golden), "-mp", str(mine), "-o", str(report)]
    return CliRunner().invoke(ait, [*words, "--json"])


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """What the captures wrote to stderr, by name."""
    return {}


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory, said: dict[str, str]) -> dict[str, Path]:
    """Three runs of the decoder: twice as it is, once with a wrong operator."""
    found = {}
    for name, fault in (("golden", ""), ("same", ""), ("wrong", "silu")):
        found[name] = tmp_path_factory.mktemp(name)
        done = dump(found[name], f"{sys.executable} compiled_llama.py {fault}", "-er", "all")
        assert done.returncode == 0, done.stderr
        said[name] = done.stderr
        assert done.stdout.splitlines()[0] == "6 True"
        assert json.loads(done.stdout.splitlines()[-1])["complete"] is True
    return found


def test_prefill_and_decode_are_graphs_of_their_own(captured: dict[str, Path]) -> None:
    operations = list(open_dump(captured["golden"]).operations())
    shapes = [each.outputs[0].shape for each in operations if each.name == "embedding"]
    assert shapes == [(5, 32), (1, 32)]
    types = {each.type for each in operations}
    assert {"aten.mm.default", "aten.silu.default", "aten._softmax.default"} <= types


def test_two_runs_of_one_program_agree(captured: dict[str, Path], tmp_path: Path) -> None:
    result = compare(captured["golden"], captured["same"], tmp_path)
    assert result.exit_code == 0, result.output
    assert "FAIL" not in result.output.replace('"FAIL": 0', "")


def test_the_first_wrong_operator_is_the_origin(captured: dict[str, Path], tmp_path: Path) -> None:
    result = compare(captured["golden"], captured["wrong"], tmp_path)
    assert result.exit_code == 1
    summary = json.loads(result.stdout.splitlines()[-1])
    origins = summary["origins"]
    assert [(each["op"], each["op_id"].partition("_")[0]) for each in origins[:2]] == [
        ("silu", "1"),
        ("silu", "2"),
    ]
    assert "from its own inputs recomputed" in origins[0]["evidence"]


def normal(line: str) -> str:
    """A line without what differs between runs and machines."""
    line = re.sub(r"(run +)\S+ \S+\.py *$", r"\1PROGRAM", line)
    line = re.sub(r"/\S*/ait_dump", "/ait_dump", line)
    line = re.sub(r"process +\d+", "process PID", line)
    return re.sub(r"\([\d.]+ GiB free\)", "", line).rstrip()


def test_the_page_shows_what_is_printed(
    captured: dict[str, Path], said: dict[str, str], tmp_path: Path
) -> None:
    section = PAGE.partition("## torch.compile without an NPU")[2]
    dumped, compared = re.findall(r"```console\n\$ [^\n]*\n(.*?)```", section, re.DOTALL)[:2]
    printed = [normal(line) for line in said["golden"].splitlines()]
    assert [normal(line) for line in dumped.splitlines() if line != "6 True"] == printed
    words = ["llm", "compare", "-gp", str(captured["golden"]), "-mp", str(captured["wrong"])]
    output = CliRunner().invoke(ait, [*words, "-o", str(tmp_path)]).stdout.splitlines()
    shown = compared.splitlines()[1:]  # the first line has paths and goes to stderr
    assert output[: len(shown)] == shown


def test_tools_that_read_torchair_read_it_too(captured: dict[str, Path]) -> None:
    peer = os.environ.get("AIT_LLM_PEER_PYTHON")
    if not peer:
        pytest.skip("AIT_LLM_PEER_PYTHON does not name a Python with mindstudio-probe")
    code = (
        "import sys; from msprobe.core.compare.torchair_acc_cmp import *;"
        "found = init_fx_dump_data_from_path(sys.argv[1], rank_info_existed=True);"
        "print([{step: len(nodes) for step, nodes in graph.items()} for graph in found])"
    )
    folder = captured["golden"] / "ait_dump" / "fx_tensors"
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [peer, "-c", code, str(folder)], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.splitlines()[-1] == "[{0: 112}, {0: 112}]"


def test_options_select_executions_targets_and_sides(tmp_path: Path) -> None:
    options = ("-opname", "silu,aten.mm", "-er", "0,0", "-stp", "1")
    code = (
        "import torch; x = torch.ones(2, 2);"
        "f = torch.compile(lambda x: torch.nn.functional.silu(x) @ x + 1); f(x); f(x)"
    )
    done = dump(tmp_path, f'{sys.executable} -c "{code}"', *options)
    assert done.returncode == 0, done.stderr
    operations = list(open_dump(tmp_path).operations())
    assert {each.type for each in operations} == {"aten.silu.default", "aten.mm.default"}
    assert {each.step for each in operations} == {0}
    assert not any(each.inputs for each in operations)


def test_a_program_that_never_compiles_is_told_so(tmp_path: Path) -> None:
    done = dump(tmp_path, f"{sys.executable} -c 'import torch; print(torch.ones(2).sum().item())'")
    assert done.returncode == 3
    assert done.stdout.splitlines()[0] == "2.0"
    assert "the program never calls torch.compile" in done.stderr
    assert "--type torch-op" in done.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("torch",), "run once for each"),
        (("tensor",), "run once for each kind"),
        (("--weights",), "--weights is not for --type fx"),
        (("--module-name", "*.mlp"), "-opname"),
        (("-ids", "0_1"), "is for ATB types"),
        (("-sd",), "is not for --type fx"),
        (("-device", "0"), "is not for --type fx"),
    ],
)
def test_options_that_mean_nothing_to_graphs_are_refused(
    tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    words = ["llm", "dump", "--exec", "true", "-o", str(tmp_path), "--type", "fx", *options]
    result = CliRunner().invoke(ait, words)
    assert result.exit_code == 2
    assert reason in result.stderr
