"""A model whose weights ONNX Runtime keeps in 4 bits (``MatMulNBits``): captured, and compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig

from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.cli.main import ait

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
DATA = Path(__file__).parents[1] / "data" / "onnx"
PROGRAM = Path(__file__).parent / "programs" / "onnx_program.py"
MODEL = DATA / "llama_4bits.onnx"
PROMPTS = ([7, 10, 23, 42, 12, 3, 17], [1, 2, 3, 4, 5, 6, 7, 8])
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
PARTS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
PARTS += ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
WEIGHTS = [f"model.layers.{layer}.{part}.weight" for layer in (0, 1) for part in PARTS]
WEIGHTS.append("lm_head.weight")


def products(model: Any) -> list[Any]:
    """The products of a model in the order of its graph, which is that of ``WEIGHTS``."""
    return [node for node in model.graph.node if node.op_type == "MatMulNBits"]


def multiplied(model: Any, product: Any) -> np.ndarray[Any, Any]:
    """The weight of a product, ``[N, K]``, as ONNX Runtime multiplies the identity by it."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    node = onnx.NodeProto()
    node.CopyFrom(product)
    node.input[0], node.output[0] = "x", "y"
    sizes = {each.name: each.i for each in node.attribute}
    held = [each for each in model.graph.initializer if each.name in node.input]
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", kind, [sizes["K"], sizes["K"]])],
        [helper.make_tensor_value_info("y", kind, [sizes["K"], sizes["N"]])],
        held,
    )
    sets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    alone = helper.make_model(graph, opset_imports=sets, ir_version=10).SerializeToString()
    session = onnxruntime.InferenceSession(alone, providers=["CPUExecutionProvider"])
    [result] = session.run(None, {"x": np.eye(sizes["K"], dtype=np.float32)})
    return np.ascontiguousarray(result.T)


def captured(model: Path, folder: Path, level: str = "DISABLE_ALL") -> Path:
    """``ait llm dump --type onnx`` in a process of its own."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AIT_")}
    command = f"{sys.executable} {PROGRAM} {model} {level}"
    words = ["llm", "dump", "--type", "onnx", "-o", str(folder), "-er", "all", "--exec", command]
    done = subprocess.run(
        [sys.executable, "-m", "ait_llm", *words],
        env={**kept, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def compared(golden: Path, mine: Path, output: Path, *options: str) -> tuple[int, dict[str, Any]]:
    words = ["llm", "compare", "-gp", golden, "-mp", mine, "-o", output, "-j", "1", "--json"]
    result = CliRunner().invoke(ait, list(map(str, (*words, *options))))
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Captures of transformers: the numbers that the weights stand for, and those before."""
    before = load_file(DATA / "llama.safetensors")
    quantised = onnx.load(MODEL)
    restored = {
        name: torch.from_numpy(multiplied(quantised, product))
        for name, product in zip(WEIGHTS, products(quantised), strict=True)
    }
    found = {}
    for name, state in (("before", before), ("restored", {**before, **restored})):
        config = LlamaConfig(**SIZES)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        model.load_state_dict(state)
        for level in ("modules", "operators") if name == "restored" else ("modules",):
            folder = tmp_path_factory.mktemp(f"{name}-{level}")
            settings = DumpConfig(
                folder, operators=level == "operators", weights=True, token_range=[0, 1]
            )
            with torch.no_grad(), register_hook(model, settings) as handle:
                for prompt in PROMPTS:
                    handle.begin_generation() if prompt is PROMPTS[0] else handle.mark_token()
                    model(input_ids=torch.tensor([prompt]), use_cache=False)
            found[f"{name}-{level}"] = folder
    return found


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captured(MODEL, tmp_path_factory.mktemp("mine"))


def test_weights_are_captured_as_the_numbers_that_the_runtime_multiplies_by(mine: Path) -> None:
    model = onnx.load(MODEL)
    by_name = {each.name: each for each in open_dump(mine).operations(step=0)}
    for product in products(model):
        weight = by_name[product.name].inputs[1]
        np.testing.assert_allclose(weight.nd(), multiplied(model, product), rtol=1e-6, atol=1e-8)
        assert weight.stored_as == "int4 in blocks of 16"
    assert len(products(model)) == len(WEIGHTS)


@pytest.mark.parametrize("level", ["modules", "operators"])
def test_golden_of_the_numbers_that_they_stand_for_passes(
    golden: Mapping[str, Path], mine: Path, tmp_path: Path, level: str
) -> None:
    code, summary = compared(golden[f"restored-{level}"], mine, tmp_path)
    assert (code, summary["counts"]["FAIL"], summary["origins"]) == (0, 0, []), summary
    assert summary["counts"]["PASS"] > 200


def test_golden_of_the_weights_before_accuses_nobody_and_says_how_they_are_stored(
    golden: Mapping[str, Path], mine: Path, tmp_path: Path
) -> None:
    code, summary = compared(golden["before-modules"], mine, tmp_path, "--format", "jsonl")
    assert (code, summary["counts"]["FAIL"], summary["origins"]) == (0, 0, []), summary
    [report] = tmp_path.glob("*.jsonl")
    text = report.read_text("utf-8")
    assert text.count("of int4 in blocks of 16") >= len(WEIGHTS)
    assert "behind quantised products" in text


def test_every_product_is_recomputed_without_golden(mine: Path, tmp_path: Path) -> None:
    words = ["llm", "opcheck", "-i", mine, "-o", tmp_path, "--format", "csv", "--json"]
    result = CliRunner().invoke(ait, list(map(str, words)))
    assert result.exit_code == 0, result.output
    [report] = tmp_path.glob("*.csv")
    lines = report.read_text("utf-8").splitlines()
    for product in products(onnx.load(MODEL)):
        found = [line for line in lines if product.name in line]
        assert found, product.name
        assert all("PASS" in line for line in found)


def _changed(place: int, change: Callable[[Any], None], number: int, path: Path) -> str:
    """Change what is stored for the weight of a product; the name of its node."""
    model = onnx.load(MODEL)
    node = products(model)[number]
    held = next(each for each in model.graph.initializer if each.name == node.input[place])
    value = np.array(onnx.numpy_helper.to_array(held))
    change(value)
    model.graph.initializer.append(onnx.numpy_helper.from_array(value, "wrong"))
    node.input[place] = "wrong"
    onnx.save(model, path)
    return str(node.name)


def _scale(scales: Any) -> None:
    scales[5, 1] *= 1.5


def _zero(zeros: Any) -> None:
    zeros[5, 0] ^= 3  # of the first block of a row


@pytest.mark.parametrize("level", ["modules", "operators"])
@pytest.mark.parametrize(
    ("place", "change", "number"), [(2, _scale, 3), (3, _zero, 8), (2, _scale, 14), (3, _zero, 6)]
)
def test_one_wrong_scale_or_zero_point_is_named_at_its_product(
    golden: Mapping[str, Path],
    tmp_path: Path,
    place: int,
    change: Callable[[Any], None],
    number: int,
    level: str,
) -> None:
    wrong = _changed(place, change, number, tmp_path / "wrong.onnx")
    mine = captured(tmp_path / "wrong.onnx", tmp_path / "mine")
    code, summary = compared(golden[f"restored-{level}"], mine, tmp_path / "out")
    assert code == 1, summary
    assert {origin["op"] for origin in summary["origins"]} == {wrong}
    assert "is not that of golden, [5, " in summary["origins"][0]["evidence"]


def test_scales_that_are_all_wrong_are_named_against_the_weights_before(
    golden: Mapping[str, Path], tmp_path: Path
) -> None:
    def double(scales: Any) -> None:
        scales *= 2

    wrong = _changed(2, double, 3, tmp_path / "wrong.onnx")
    mine = captured(tmp_path / "wrong.onnx", tmp_path / "mine")
    code, summary = compared(golden["before-modules"], mine, tmp_path / "out")
    assert code == 1, summary
    assert summary["origins"][0]["op"] == wrong


def test_a_product_that_rounds_what_it_is_given_is_held_to_that(
    golden: Mapping[str, Path], tmp_path: Path
) -> None:
    model = onnx.load(MODEL)
    for product in products(model):
        product.attribute.append(onnx.helper.make_attribute("accuracy_level", 4))
    onnx.save(model, tmp_path / "int8.onnx")
    mine = captured(tmp_path / "int8.onnx", tmp_path / "mine")
    targets = {each.type for each in open_dump(mine).operations(step=0) if "linear" in each.type}
    assert targets == {"onnx.linear.default"}
    code, summary = compared(golden["restored-modules"], mine, tmp_path / "out")
    assert (code, summary["origins"]) == (0, []), summary


def test_a_weight_without_zero_points_has_its_zero_in_the_middle(tmp_path: Path) -> None:
    model = onnx.load(MODEL)
    for product in products(model):
        del product.input[3:]
    onnx.save(model, tmp_path / "symmetric.onnx")
    mine = captured(tmp_path / "symmetric.onnx", tmp_path / "mine", "ENABLE_ALL")
    by_name = {each.name: each for each in open_dump(mine).operations(step=0)}
    for product in products(model):
        weight = by_name[product.name].inputs[1].nd()
        np.testing.assert_allclose(weight, multiplied(model, product), rtol=1e-6, atol=1e-8)
