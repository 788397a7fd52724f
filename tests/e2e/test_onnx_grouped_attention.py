"""A Llama in the nodes of onnxruntime-genai: attention in one, and norms with residuals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.cli.main import ait

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
HEADS, GROUPS, WIDTH, LAYERS, EPS = 4, 2, 16, 2, 1e-6
PROMPT = [7, 10, 23, 42, 12, 3, 17]


def llama() -> PreTrainedModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=HEADS * WIDTH,
        intermediate_size=48,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        initializer_range=0.15,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, 1.0, 0.1)
    return model


class Export:
    """Nodes and weights in the form of the model builder of onnxruntime-genai."""

    def __init__(self, model: PreTrainedModel, fault: str) -> None:
        self.weights = {name: each.numpy() for name, each in model.state_dict().items()}
        self.fault, self.nodes, self.kept = fault, [], []  # type: ignore[var-annotated]

    def keep(self, name: str, value: Any) -> str:
        self.kept.append(onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(
        self, kind: str, inputs: Sequence[str], name: str, more: Any = (), **about: Any
    ) -> str:
        domain = "com.microsoft" if kind.startswith(("Skip", "Group")) else ""
        result = f"{name}/result"
        self.nodes.append(
            onnx.helper.make_node(
                kind, inputs, [result, *more], name=f"/{name}", domain=domain, **about
            )
        )
        return result

    def product(self, x: str, weight: str, name: str) -> str:
        kept = self.keep(f"{weight}.T", self.weights[f"{weight}.weight"].T)
        return self.node("MatMul", [x, kept], f"{name}/MatMul")

    def norm(self, x: str, skip: str, weight: str, name: str, eps: float = EPS) -> tuple[str, str]:
        """The normalised sum, and the sum."""
        scale = self.keep(f"{weight}.weight", self.weights[f"{weight}.weight"])
        more, total = ("", "", f"{name}/sum"), f"{name}/sum"
        if not skip:
            about = {"axis": -1, "stash_type": 1}
            made = self.node("SimplifiedLayerNormalization", [x, scale], name, epsilon=eps, **about)
            return made, x
        last = () if weight == "model.norm" else more
        kind = "SkipSimplifiedLayerNormalization"
        return self.node(kind, [x, skip, scale], name, last, epsilon=eps), total

    def graph(self, path: Path) -> None:
        angles = np.arange(32)[:, None] / 10000.0 ** (np.arange(0, WIDTH, 2) / WIDTH)
        tables = [
            self.keep("cos_cache", np.cos(angles).astype(np.float32)),
            self.keep("sin_cache", np.sin(angles).astype(np.float32)),
        ]
        table = self.keep("embed", self.weights["model.embed_tokens.weight"])
        x, skip = self.node("Gather", [table, "input_ids"], "model/embed_tokens/Gather"), ""
        for layer in range(LAYERS):
            theirs, ours = f"model.layers.{layer}", f"model/layers.{layer}"
            is_wrong = layer == 1
            eps = 1e-2 if is_wrong and self.fault == "epsilon" else EPS
            y, x = self.norm(
                x, skip, f"{theirs}.input_layernorm", f"{ours}/input_layernorm/Norm", eps
            )
            parts = [
                self.product(y, f"{theirs}.self_attn.{part}_proj", f"{ours}/attn/{part}_proj")
                for part in "qkv"
            ]
            scale = 0.3 if is_wrong and self.fault == "scale" else WIDTH**-0.5
            past = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
            result = self.node(
                "GroupQueryAttention", [*parts, *past, "seqlens_k", "total_length", *tables],
                f"{ours}/attn/GroupQueryAttention",
                [name.replace("past_key_values", "present") for name in past],
                num_heads=HEADS, kv_num_heads=GROUPS, do_rotary=1, scale=scale,
            )  # fmt: skip
            skip = self.product(result, f"{theirs}.self_attn.o_proj", f"{ours}/attn/o_proj")
            name = f"{theirs}.post_attention_layernorm"
            y, x = self.norm(x, skip, name, f"{ours}/post_attention_layernorm/Norm")
            gate, up = (
                self.product(y, f"{theirs}.mlp.{part}_proj", f"{ours}/mlp/{part}_proj")
                for part in ("gate", "up")
            )
            bent = self.node("Sigmoid", [gate], f"{ours}/mlp/act_fn/Sigmoid")
            bent = self.node("Mul", [gate, bent], f"{ours}/mlp/act_fn/Mul")
            y = self.node("Mul", [bent, up], f"{ours}/mlp/Mul")
            skip = self.product(y, f"{theirs}.mlp.down_proj", f"{ours}/mlp/down_proj")
        y, _ = self.norm(x, skip, "model.norm", "model/norm/Norm")
        logits = self.product(y, "lm_head", "lm_head")
        self._save(path, logits)

    def _save(self, path: Path, logits: str) -> None:
        value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto
        length = len(PROMPT)
        past = [f"past_key_values.{n}.{part}" for n in range(LAYERS) for part in ("key", "value")]
        inputs = [
            value("input_ids", kind.INT64, [1, length]),
            value("seqlens_k", kind.INT32, [1]),
            value("total_length", kind.INT32, [1]),
            *(value(name, kind.FLOAT, [1, GROUPS, 0, WIDTH]) for name in past),
        ]
        presents = [name.replace("past_key_values", "present") for name in past]
        outputs = [value(logits, kind.FLOAT, [1, length, 64])]
        outputs += [value(name, kind.FLOAT, [1, GROUPS, length, WIDTH]) for name in presents]
        graph = onnx.helper.make_graph(self.nodes, "main", inputs, outputs, self.kept)
        sets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("com.microsoft", 1)]
        onnx.save(onnx.helper.make_model(graph, opset_imports=sets, ir_version=10), path)


def captured(folder: Path, model: PreTrainedModel, fault: str = "") -> Path:
    Export(model, fault).graph(folder / "model.onnx")
    empty = np.zeros((1, GROUPS, 0, WIDTH), np.float32)
    past = {
        f"past_key_values.{n}.{part}": empty for n in range(LAYERS) for part in ("key", "value")
    }
    lengths = {"seqlens_k": [len(PROMPT) - 1], "total_length": [len(PROMPT)]}
    np.savez(
        folder / "x.npz",
        input_ids=np.array([PROMPT]),
        **{name: np.array(each, np.int32) for name, each in lengths.items()},
        **past,
    )
    return dumped(folder)


def dumped(folder: Path) -> Path:
    """The capture of a model and its inputs."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AIT_")}
    given = ["--model", folder / "model.onnx", "--inputs", folder / "x.npz", "-o", folder / "mine"]
    done = subprocess.run(
        [sys.executable, "-m", "ait_llm", "llm", "dump", "--type", "onnx", *map(str, given)],
        env={**kept, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "mine"


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    model = llama()
    with torch.no_grad(), register_hook(model, DumpConfig(dump_path=folder, weights=True)):
        model(torch.tensor([PROMPT]))
    return folder


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captured(tmp_path_factory.mktemp("mine"), llama())


def run(*words: object) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(ait, ["llm", *map(str, words), "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])


def test_a_healthy_one_passes(golden: Path, healthy: Path, tmp_path: Path) -> None:
    code, summary = run("compare", "-gp", golden, "-mp", healthy, "-o", tmp_path, "-j", "1")
    assert code == 0, summary
    assert summary["counts"]["PASS"] > 90


def test_all_of_its_nodes_are_recomputed(healthy: Path, tmp_path: Path) -> None:
    code, summary = run("opcheck", "-i", healthy, "-o", tmp_path, "--format", "csv")
    assert code == 0, summary
    operations = list(open_dump(healthy).operations())
    assert summary["counts"]["PASS"] == sum(len(each.outputs) for each in operations)
    assert "ait_onnx.ms_GroupQueryAttention.default" in {each.type for each in operations}


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("epsilon", "model.layers.1.input_layernorm.Norm"),
        ("scale", "model.layers.1.attn.GroupQueryAttention"),
    ],
)
def test_the_wrong_node_is_named(golden: Path, tmp_path: Path, fault: str, name: str) -> None:
    mine = captured(tmp_path, llama(), fault)
    code, summary = run("compare", "-gp", golden, "-mp", mine, "-o", tmp_path / "report", "-j", "1")
    assert code == 1
    assert summary["origins"][0]["op"] == name


@pytest.mark.parametrize("results", [1, 3])
def test_attention_of_many_heads_and_its_positions_are_recomputed(
    results: int, tmp_path: Path
) -> None:
    make, value, kind = onnx.helper.make_node, onnx.helper.make_tensor_value_info, onnx.TensorProto
    shape, names = [1, len(PROMPT), HEADS * WIDTH], ["query", "key", "value"]
    angles = np.arange(32)[:, None] / 10000.0 ** (np.arange(0, WIDTH, 2) / WIDTH)
    tables = [
        onnx.numpy_helper.from_array(made(angles).astype(np.float32), name)
        for name, made in (("cos", np.cos), ("sin", np.sin))
    ]
    nodes = [
        make("RotaryEmbedding", [name, "positions", "cos", "sin"], [f"{name}.turned"],
             name=f"/{name}/rotary", domain="com.microsoft")
        for name in names[:2]
    ]  # fmt: skip
    kept = ["result", "present_key", "present_value"][:results]
    nodes.append(
        make("MultiHeadAttention", ["query.turned", "key.turned", "value"], kept, name="/attn",
             domain="com.microsoft", num_heads=HEADS, unidirectional=1)
    )  # fmt: skip
    inputs = [value(name, kind.FLOAT, shape) for name in names]
    inputs.append(value("positions", kind.INT64, [1, len(PROMPT)]))
    outputs = [value(name, kind.FLOAT, None) for name in kept]
    graph = onnx.helper.make_graph(nodes, "main", inputs, outputs, tables)
    sets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=sets, ir_version=10)
    onnx.save(model, tmp_path / "model.onnx")
    random = np.random.default_rng(1)
    np.savez(
        tmp_path / "x.npz",
        positions=np.arange(len(PROMPT))[None],
        **{name: random.standard_normal(shape, np.float32) for name in names},
    )
    words = ("opcheck", "-i", dumped(tmp_path), "-o", tmp_path, "--format", "csv")
    code, summary = run(*words)
    assert code == 0, summary
    assert summary["counts"] == {**summary["counts"], "PASS": 2 + results, "FAIL": 0}
