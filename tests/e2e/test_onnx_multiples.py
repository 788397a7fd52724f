"""A division behind a product, which ONNX Runtime takes into the product."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.cli.main import ait

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
CAP = 30.0


class Capped(torch.nn.Module):
    """Logits that do not exceed a number, as Gemma2 computes them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(40, 16)
        self.head = torch.nn.Linear(16, 40, bias=False)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.head(self.embed(input_ids)) / CAP) * CAP


def _exported(model: Capped, path: Path, divided_by: float = CAP) -> None:
    helper, kind = onnx.helper, onnx.TensorProto
    weights = {
        "embed.weight": model.embed.weight,
        "head.weight": model.head.weight.T,
        "cap": torch.tensor(CAP),
        "divisor": torch.tensor(divided_by),
    }
    nodes = [
        helper.make_node("Gather", ["embed.weight", "input_ids"], ["x"], name="/embed/Gather"),
        helper.make_node("MatMul", ["x", "head.weight"], ["y"], name="/head/MatMul"),
        helper.make_node("Div", ["y", "divisor"], ["small"], name="/Div"),
        helper.make_node("Tanh", ["small"], ["bent"], name="/Tanh"),
        helper.make_node("Mul", ["bent", "cap"], ["logits"], name="/Mul"),
    ]
    graph = helper.make_graph(
        nodes,
        "capped",
        [helper.make_tensor_value_info("input_ids", kind.INT64, [1, 5])],
        [helper.make_tensor_value_info("logits", kind.FLOAT, [1, 5, 40])],
        [
            onnx.numpy_helper.from_array(value.detach().contiguous().numpy(), name)
            for name, value in weights.items()
        ],
    )
    opset = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), path)


def _captured(folder: Path, divided_by: float, *, operators: bool) -> tuple[Path, Path]:
    """Dumps of the program and of its graph, in which ONNX Runtime fuses the division."""
    torch.manual_seed(0)
    model, ids = Capped(), torch.tensor([[3, 1, 4, 1, 5]])
    config = DumpConfig(folder / "golden", operators=operators, weights=True)
    with torch.no_grad(), register_hook(model, config):
        model(ids)
    _exported(model, folder / "m.onnx", divided_by)
    np.savez(folder / "x.npz", input_ids=ids.numpy())
    words = ["--model", folder / "m.onnx", "--inputs", folder / "x.npz", "-o", folder / "out"]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AIT_")}
    subprocess.run(
        [sys.executable, "-m", "ait_llm", "llm", "dump", "--type", "onnx", *map(str, words)],
        env={**kept, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=True,
        capture_output=True,
    )
    return folder / "golden", folder / "out"


@pytest.mark.parametrize("by", [0.5, 0.9, 1.1])
@pytest.mark.parametrize("operators", [False, True])
def test_a_wrong_number_in_a_fused_division_is_named(
    tmp_path: Path, operators: bool, by: float
) -> None:
    golden, mine = _captured(tmp_path, by * CAP, operators=operators)
    sides = ["-gp", golden, "-mp", mine, "-o", tmp_path / "report"]
    result = CliRunner().invoke(ait, ["llm", "compare", *map(str, sides), "-j", "1", "--json"])
    summary = json.loads(result.stdout.splitlines()[-1])
    assert result.exit_code == 1, summary
    (origin,) = summary["origins"]
    assert "FusedMatMul" in origin["op_type"]
    assert origin.get("certain", True)
    if not operators:  # modules show no number, but what they make tells it
        assert "is capped at 30," in origin["evidence"]


@pytest.mark.parametrize("operators", [False, True])
def test_a_fused_division_leaves_nothing_uncompared(tmp_path: Path, operators: bool) -> None:
    golden, mine = _captured(tmp_path, CAP, operators=operators)
    kinds = {operation.type for operation in open_dump(mine).operations()}
    assert "ait_onnx.ms_FusedMatMul.default" in kinds
    sides = ["-gp", golden, "-mp", mine, "-o", tmp_path / "report"]
    result = CliRunner().invoke(ait, ["llm", "compare", *map(str, sides), "-j", "1", "--json"])
    summary = json.loads(result.stdout.splitlines()[-1])
    assert result.exit_code == 0, summary
    assert summary["problems"] == []
    (report,) = (tmp_path / "report").glob("*.csv")
    heads = [line for line in report.read_text("utf-8").splitlines() if ",root.head,Linear" in line]
    assert any("FusedMatMul" in line and "SKIPPED" not in line for line in heads)
