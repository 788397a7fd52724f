"""``ait llm show --program``: a pass as the matcher sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from compiled_dumps import CompiledRun, request

from ait_llm import DumpConfig, register_hook
from ait_llm.cli.main import ait

torch = pytest.importorskip("torch")


class Norm(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class Layer(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.norm, self.q_proj = Norm(eps), torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
        return x + self.q_proj(self.norm(x))


class Model(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, *eps: float) -> None:
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(16, 8)
        self.layers = torch.nn.ModuleList(map(Layer, eps))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return x


def _dump(folder: Path, *eps: float) -> Path:
    torch.manual_seed(0)
    model = Model(*eps)
    with torch.no_grad(), register_hook(model, DumpConfig(str(folder), token_range=[0, 1])):
        model(torch.arange(6).reshape(2, 3))
        model(torch.arange(2).reshape(2, 1))
    return folder


def show(*words: str) -> Result:
    return CliRunner().invoke(ait, ["llm", "show", *words])


def _lines(*words: str) -> list[str]:
    result = show(*words)
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def test_values_roles_definitions_and_rows_of_a_pass(tmp_path: Path) -> None:
    lines = _lines(str(_dump(tmp_path, 1e-5, 1e-5)), "--program", "--step", "0")
    assert "rows 2 requests x 3 positions" in lines
    assert not any(line.startswith("pass 1") for line in lines)
    (norm,) = (place for place, line in enumerate(lines) if line.startswith(".norm "))
    assert lines[norm] == ".norm norm eps=1e-05"
    source, result = lines[norm + 1], lines[norm + 2]
    assert source.endswith("fp32[2,3,8] tokens of embed_tokens")
    assert result.endswith("fp32[2,3,8] tokens for layers.0.q_proj")
    # what the norm writes is the value that the projection reads
    (read,) = (lines[n + 1] for n, line in enumerate(lines) if line.startswith(".q_proj linear"))
    assert read.split()[1] == result.split()[1]


def test_layers_that_are_alike_are_shown_once(tmp_path: Path) -> None:
    folder = str(_dump(tmp_path, 1e-5, 1e-5, 1e-6))
    lines = _lines(folder, "--program", "--step", "0")
    assert [line.split(" graph")[0] for line in lines if "graph" in line][1:] == [
        ".layers.0 x2",
        ".layers.2",  # another eps
    ]
    every = _lines(folder, "--program", "--step", "0", "--all")
    assert sum(line.startswith(".norm ") for line in every) == 3


def test_json_has_all_of_it_line_by_line(tmp_path: Path) -> None:
    result = show(str(_dump(tmp_path, 1e-5, 1e-5)), "--program", "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    heads = [row for row in rows if "batch" in row]
    assert [(head["pass"], head["batch"], head["seq"]) for head in heads] == [(0, 2, 3), (1, 2, 1)]
    assert heads[0]["requests"] == [[0, 2], [3, 5]]
    operations = [row for row in rows if row["pass"] == 0 and "role" in row]
    names = [row["name"] for row in operations]
    assert heads[0]["layers"] == [[names.index("root.layers.0"), names.index("root.layers.1")]]
    norm = operations[names.index("root.layers.1.norm")]
    assert (norm["role"], norm["definition"]["eps"]) == ("norm", 1e-5)
    (value,) = norm["outputs"]
    (reader,) = value["readers"]
    assert names[reader] == "root.layers.1.q_proj"
    assert value["writer"] == norm["number"]


def test_a_pass_that_is_not_there_is_refused(tmp_path: Path) -> None:
    result = show(str(_dump(tmp_path, 1e-5)), "--program", "--step", "7")
    assert result.exit_code == 2
    assert "has no forward pass 7; it has 0, 1" in result.output


@pytest.mark.parametrize("words", [("--step", "0"), ("--all",)])
def test_options_of_programs_need_one(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = show(str(tmp_path), *words)
    assert result.exit_code == 2
    assert "--step and --all are for --program" in result.output


def test_executions_of_compiled_graphs_are_passes(tmp_path: Path) -> None:
    run = CompiledRun(tmp_path)
    for number in (1, 2):  # each graph counts its own executions from 0
        run.graph(number)
        run.ge(request(number), number=number, call=number)
    heads = [line for line in _lines(str(tmp_path), "--program") if line.startswith("pass")]
    assert [head.partition(" of process")[0] for head in heads] == [
        "pass 0 of graph_1",
        "pass 1 of graph_2",
    ]
