"""Experts whose weights a graph reads as one tensor, where golden captured them as one block."""

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
from safetensors.torch import save_file

from ait_llm import DumpConfig, register_hook
from ait_llm.cli.main import ait

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
EXPERTS, WIDTH, INNER, VOCABULARY = 4, 16, 24, 40
IDS = [[3, 1, 4, 1, 5, 9, 2]]


class Experts(torch.nn.Module):
    """All experts, by the shares that each token gives them."""

    def __init__(self) -> None:
        super().__init__()
        self.up_proj = torch.nn.Parameter(torch.randn(EXPERTS, INNER, WIDTH) / 4)
        self.down_proj = torch.nn.Parameter(torch.randn(EXPERTS, WIDTH, INNER) / 4)

    def forward(self, x: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        inner = torch.relu(torch.einsum("bth,eih->beti", x, self.up_proj))
        outer = torch.einsum("beti,ehi->beth", inner, self.down_proj)
        return (outer * shares.transpose(1, 2)[..., None]).sum(1)


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = torch.nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = Experts()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.experts(x, torch.softmax(self.router(x), -1))


class Mixture(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.layers = torch.nn.ModuleList([Layer()])
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers[0](self.embed(ids)))

    def by_expert(self) -> dict[str, torch.Tensor]:
        """The weights as checkpoints have them, those of each expert by themselves."""
        found = {}
        for name, value in self.state_dict().items():
            front, dot, last = name.partition("experts.")
            for number, each in enumerate(value) if dot else ():
                found[f"{front}experts.{number}.{last}.weight"] = each.contiguous()
            if not dot:
                found[name] = value
        return found


def _exported(model: Mixture, path: Path, wrong: str, expert: int) -> None:
    """The graph of the model; the weight of one expert is another one where it has a name."""
    helper, kind = onnx.helper, onnx.TensorProto
    values = {
        "embed": model.embed.weight,
        "router": model.layers[0].router.weight.T,
        "up": model.layers[0].experts.up_proj.transpose(1, 2),
        "down": model.layers[0].experts.down_proj.transpose(1, 2),
        "head": model.head.weight.T,
    }
    arrays = {name: value.detach().contiguous().numpy().copy() for name, value in values.items()}
    if wrong:
        arrays[wrong][expert] *= 1.1
    held = [onnx.numpy_helper.from_array(value, name) for name, value in arrays.items()]
    held.append(onnx.numpy_helper.from_array(np.array([1]), "one"))
    held.append(onnx.numpy_helper.from_array(np.array([3]), "three"))
    node = helper.make_node
    nodes = [
        node("Gather", ["embed", "ids"], ["x"], name="/embed/Gather"),
        node("MatMul", ["x", "router"], ["scores"], name="/router/MatMul"),
        node("Softmax", ["scores"], ["shares"], name="/Softmax", axis=-1),
        node("Unsqueeze", ["x", "one"], ["each"], name="/experts/Unsqueeze"),
        node("MatMul", ["each", "up"], ["inner"], name="/experts/up"),
        node("Relu", ["inner"], ["active"], name="/experts/Relu"),
        node("MatMul", ["active", "down"], ["outer"], name="/experts/down"),
        node("Transpose", ["shares"], ["turned"], name="/experts/Transpose", perm=[0, 2, 1]),
        node("Unsqueeze", ["turned", "three"], ["factors"], name="/experts/Unsqueeze_1"),
        node("Mul", ["outer", "factors"], ["parts"], name="/experts/Mul"),
        node("ReduceSum", ["parts", "one"], ["y"], name="/experts/ReduceSum", keepdims=0),
        node("MatMul", ["y", "head"], ["logits"], name="/head/MatMul"),
    ]
    graph = helper.make_graph(
        nodes,
        "mixture",
        [helper.make_tensor_value_info("ids", kind.INT64, [1, len(IDS[0])])],
        [helper.make_tensor_value_info("logits", kind.FLOAT, [1, len(IDS[0]), VOCABULARY])],
        held,
    )
    opset = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), path)


def _compared(
    folder: Path, wrong: str = "", expert: int = 0, *, apart: bool = False
) -> tuple[int, list[dict[str, str]]]:
    """The exit code and the origins; golden has its weights, or a checkpoint has each expert's."""
    torch.manual_seed(0)
    model = Mixture()
    with torch.no_grad(), register_hook(model, DumpConfig(folder / "golden", weights=not apart)):
        model(torch.tensor(IDS))
    save_file(model.by_expert(), folder / "model.safetensors")
    _exported(model, folder / "m.onnx", wrong, expert)
    np.savez(folder / "x.npz", ids=np.array(IDS))
    words = ["--model", folder / "m.onnx", "--inputs", folder / "x.npz", "-o", folder / "mine"]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AIT_")}
    subprocess.run(
        [sys.executable, "-m", "ait_llm", "llm", "dump", "--type", "onnx", *map(str, words)],
        env={**kept, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=True,
        capture_output=True,
    )
    sides = ["-gp", folder / "golden", "-mp", folder / "mine", "-o", folder / "report"]
    sides += ["--weights-from", f"golden={folder / 'model.safetensors'}"] if apart else []
    result = CliRunner().invoke(ait, ["llm", "compare", *map(str, sides), "-j", "1", "--json"])
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])["origins"]


@pytest.mark.parametrize("apart", [False, True])
def test_experts_with_golden_s_weights_pass(tmp_path: Path, apart: bool) -> None:
    assert _compared(tmp_path, apart=apart) == (0, [])


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("weight", "expert"), [("up", 1), ("down", 3)])
def test_the_operator_that_reads_another_weight_of_one_expert_is_named_with_the_expert(
    tmp_path: Path, weight: str, expert: int, apart: bool
) -> None:
    code, (origin,) = _compared(tmp_path, weight, expert, apart=apart)
    assert (code, origin["op"]) == (1, f"experts.{weight}")
    assert origin["kind"] == "other weight"
    named = f"`root.layers.0.experts.{weight}_proj` but for expert {expert}, most at [{expert}, "
    assert named in origin["evidence"]
