"""Graphs that ONNX Runtime has fused, against the graph that they were fused from."""

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
from click.testing import CliRunner
from onnx_blocks import IDS, blocks

from ait_llm import open_dump
from ait_llm.cli.main import ait

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
LLAMA = Path(__file__).parents[1] / "data" / "onnx" / "llama.onnx"
PROMPT = np.array([[7, 10, 23, 42, 12, 3, 17]])
LEVELS = ("ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_ALL")


def captured(model: Path, folder: Path, *options: str) -> Path:
    """What ``ait llm dump`` makes of a model, which runs as it is written."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {"input_ids": PROMPT} if "llama" in model.name else {"ids": IDS}
    np.savez(folder / "x.npz", **given)
    program = (
        "import sys, numpy as np, onnxruntime as ort; s = ort.SessionOptions();"
        "s.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL;"
        "r = ort.InferenceSession(sys.argv[1], s, providers=['CPUExecutionProvider']);"
        "r.run(None, dict(np.load(sys.argv[2])))"
    )
    (folder / "run.py").write_text(program, encoding="utf-8")
    command = f"{sys.executable} {folder / 'run.py'} {model} {folder / 'x.npz'}"
    words = ["llm", "dump", "--type", "onnx", "-o", folder, "--exec", command, *options]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AIT_")}
    done = subprocess.run(
        [sys.executable, "-m", "ait_llm", *map(str, words)],
        env={**kept, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def optimised(model: Path, folder: Path, level: str) -> Path:
    """The graph that ONNX Runtime makes of a model."""
    path = folder / f"{level}-{model.name}"
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    settings.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    settings.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(str(model), settings, providers=["CPUExecutionProvider"])
    return path


def compared(golden: Path, mine: Path, output: Path) -> tuple[int, dict[str, Any]]:
    words = ["llm", "compare", "-gp", golden, "-mp", mine, "-o", output, "-j", "1", "--json"]
    result = CliRunner().invoke(ait, list(map(str, words)))
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {"llama": LLAMA, "blocks": blocks(tmp_path_factory.mktemp("m") / "blocks.onnx")}


@pytest.fixture(scope="module")
def plain(models: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Captures of the graphs as they were exported."""
    return {name: captured(model, tmp_path_factory.mktemp(name)) for name, model in models.items()}


@pytest.fixture(scope="module")
def fused(
    models: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Path]]:
    """Captures of what ONNX Runtime makes of them, by the level of its optimisations."""
    found: dict[str, dict[str, Path]] = {}
    for name, model in models.items():
        folder = tmp_path_factory.mktemp(f"fused-{name}")
        found[name] = {
            level: captured(optimised(model, folder, level), folder / level) for level in LEVELS
        }
    return found


def test_the_graphs_have_fused_nodes(fused: Mapping[str, Mapping[str, Path]]) -> None:
    kinds = {
        name: {each.type.split(".")[1] for each in open_dump(found["ENABLE_ALL"]).operations()}
        for name, found in fused.items()
    }
    assert {"ms_FusedMatMul", "ms_QuickGelu"} <= kinds["llama"]
    assert {"addmm", "gelu"} <= kinds["blocks"]
    names = {each.name for each in open_dump(fused["blocks"]["ENABLE_ALL"]).operations()}
    assert {"SkipLayerNormalization", "SkipLayerNormalization_sum", "Gelu"} <= names


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["llama", "blocks"])
def test_a_fused_graph_answers_the_one_it_was_made_of(
    plain: Mapping[str, Path],
    fused: Mapping[str, Mapping[str, Path]],
    tmp_path: Path,
    name: str,
    level: str,
) -> None:
    for golden, mine in ((plain[name], fused[name][level]), (fused[name][level], plain[name])):
        code, summary = compared(golden, mine, tmp_path)
        assert (code, summary["origins"], summary["problems"]) == (0, [], [])
        counts = summary["counts"]
        assert counts["FAIL"] == counts["ERROR"] == 0
        assert counts["SKIPPED"] == summary["not_comparable"]
        assert counts["PASS"] > counts["SKIPPED"]


def test_what_lies_within_a_fused_node_says_where_it_is_compared(
    plain: Mapping[str, Path], fused: Mapping[str, Mapping[str, Path]], tmp_path: Path
) -> None:
    compared(plain["blocks"], fused["blocks"]["ENABLE_ALL"], tmp_path)
    (report,) = tmp_path.glob("*.csv")
    [line] = [each for each in report.read_text("utf-8").splitlines() if "gelu_erf-" in each][:1]
    assert "SKIPPED: my dump computes Gelu without it" in line


def test_a_node_that_was_lost_is_not_taken_for_a_fused_one(
    plain: Mapping[str, Path], models: Mapping[str, Path], tmp_path: Path
) -> None:
    graph = optimised(models["blocks"], tmp_path, "ENABLE_ALL")
    mine = captured(graph, tmp_path / "mine")
    for path in mine.rglob("Gelu-*.OUTPUT.0.*"):
        path.unlink()
    code, _ = compared(plain["blocks"], mine, tmp_path)
    assert code == 3


def test_in_float16_a_fused_norm_leaves_results_out_and_nothing_is_lost(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    sides = []
    for graph in (models["blocks"], optimised(models["blocks"], tmp_path, "ENABLE_ALL")):
        half = convert_float_to_float16(onnx.load(graph), keep_io_types=True)
        for node in half.graph.node:
            if node.op_type == "SkipLayerNormalization":
                node.output.extend(["", "", f"{node.output[0]}.sum"])
        onnx.save(half, tmp_path / f"half-{graph.name}")
        sides.append(captured(tmp_path / f"half-{graph.name}", tmp_path / f"of-{graph.name}"))
    kinds = {each.type.split(".")[1] for each in open_dump(sides[1]).operations()}
    assert "ms_SkipLayerNormalization" in kinds
    code, summary = compared(sides[0], sides[1], tmp_path)
    assert (code, summary["problems"]) == (0, []), summary


def _node(model: Any, name: str) -> Any:
    return next(each for each in model.graph.node if each.name == name)


def _scaled(name: str, place: int, by: float) -> Callable[[Any], str]:
    """A weight of a node times a number."""

    def change(model: Any) -> str:
        node = _node(model, name)
        found = next(w for w in model.graph.initializer if w.name == node.input[place])
        value = onnx.numpy_helper.to_array(found) * np.float32(by)
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, "wrong"))
        node.input[place] = "wrong"
        return name

    return change


def _attribute(name: str, attribute: str, value: float, told_at: str = "") -> Callable[[Any], str]:
    def change(model: Any) -> str:
        node = _node(model, name)
        for each in [each for each in node.attribute if each.name == attribute]:
            node.attribute.remove(each)
        node.attribute.append(onnx.helper.make_attribute(attribute, value))
        return told_at or name

    return change


def _tanh(model: Any) -> str:
    _node(model, "Gelu").op_type = "FastGelu"
    return "Gelu"


def _residual(model: Any) -> str:
    """The sum within a fused norm takes another value than it should."""
    _node(model, "SkipLayerNormalization").input[0] = "embed.out"
    return "SkipLayerNormalization_sum"


PRODUCT = "node_matmul/MatmulTransposeFusion//MatMulScaleFusion/"
FAULTS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "before a fused product": ("llama", _scaled("node_linear_2", 1, 1.05)),
    "in a fused product": ("llama", _attribute(PRODUCT, "alpha", 0.4)),
    "in a fused activation": ("llama", _attribute("node_silu_1/QuickGeluFusion/", "alpha", 1.702)),
    "behind a fused activation": ("llama", _scaled("node_linear_6", 1, 1.05)),
    "before a fused GELU": ("blocks", _scaled("layers.0.up/MatMulAddFusion", 2, 1.5)),
    "in a fused GELU": ("blocks", _tanh),
    "epsilon of a fused norm": ("blocks", _attribute("SkipLayerNormalization", "epsilon", 0.1)),
    "residual of a fused norm": ("blocks", _residual),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_a_fused_node_is_named_and_nothing_else(
    models: Mapping[str, Path], plain: Mapping[str, Path], tmp_path: Path, fault: str
) -> None:
    name, change = FAULTS[fault]
    model = onnx.load(optimised(models[name], tmp_path, "ENABLE_ALL"))
    wrong = tmp_path / f"wrong-{name}.onnx"
    culprit = change(model).strip("/").replace("/", ".")
    onnx.save(model, wrong)
    code, summary = compared(plain[name], captured(wrong, tmp_path / "mine"), tmp_path)
    assert code == 1, summary
    assert {origin["op"] for origin in summary["origins"]} == {culprit}


def _norm(path: Path, *, told: bool) -> Path:
    """A norm whose weight is as it is, or made by a node of which nobody tells the size."""
    helper, kind = onnx.helper, onnx.TensorProto
    draw = np.random.default_rng(0)
    values = {
        "table": draw.normal(size=(40, 16)),
        "weight": 1 + draw.normal(size=16),
        "bias": draw.normal(size=16),
    }
    weights = [
        onnx.numpy_helper.from_array(value.astype(np.float32), name)
        for name, value in values.items()
    ]
    weights.append(onnx.numpy_helper.from_array(np.ones(16, np.bool_), "all"))
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"], name="embed"),
        helper.make_node("Compress", ["weight", "all"], ["kept"], name="keep"),
        helper.make_node(
            "LayerNormalization", ["x", "weight" if told else "kept", "bias"], ["y"], name="norm"
        ),
        helper.make_node("Add", ["y", "kept"], ["out"], name="sum"),
    ]
    graph = helper.make_graph(
        nodes,
        "norm",
        [helper.make_tensor_value_info("ids", kind.INT64, [1, 5])],
        [helper.make_tensor_value_info("out", kind.FLOAT, [1, 5, 16])],
        weights,
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


@pytest.mark.parametrize("told", [True, False])
def test_a_norm_that_only_one_side_knows_as_that_of_torch_passes(
    tmp_path: Path, told: bool
) -> None:
    golden, mine = (
        captured(_norm(tmp_path / f"{name}.onnx", told=each), tmp_path / name)
        for name, each in (("golden", told), ("mine", not told))
    )
    types = {
        operation.type
        for folder in (golden, mine)
        for operation in open_dump(folder).operations()
        if operation.name == "norm"
    }
    assert types == {"aten.layer_norm.default", "onnx.LayerNormalization.default"}
    assert compared(golden, mine, tmp_path / "out")[0] == 0


def _heads(path: Path, sizes: list[int], shift: float = 0.0) -> Path:
    """Rows of a table in heads of four, by sizes that are told in one way or another."""
    helper, kind = onnx.helper, onnx.TensorProto
    table = np.random.default_rng(0).normal(size=(40, 16)).astype(np.float32)
    weights = [
        onnx.numpy_helper.from_array(table, "table"),
        onnx.numpy_helper.from_array(np.array(sizes), "sizes"),
        onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32) + shift, "bias"),
    ]
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"], name="embed"),
        helper.make_node("Reshape", ["x", "sizes"], ["heads"], name="heads"),
        helper.make_node("Add", ["heads", "bias"], ["out"], name="shift"),
    ]
    graph = helper.make_graph(
        nodes,
        "heads",
        [helper.make_tensor_value_info("ids", kind.INT64, [1, 5])],
        [helper.make_tensor_value_info("out", kind.FLOAT, [1, 5, 4, 4])],
        weights,
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


@pytest.mark.parametrize(("shift", "accused"), [(0.0, set()), (1.0, {"shift"})])
def test_sizes_that_two_graphs_tell_in_other_words_are_not_accused(
    tmp_path: Path, shift: float, accused: set[str]
) -> None:
    golden = captured(_heads(tmp_path / "golden.onnx", [0, -1, 4, 4]), tmp_path / "golden")
    mine = captured(_heads(tmp_path / "mine.onnx", [0, 5, 4, 4], shift), tmp_path / "mine")
    code, summary = compared(golden, mine, tmp_path / "out")
    assert code == int(bool(accused))
    assert {origin["op"] for origin in summary["origins"]} == accused
