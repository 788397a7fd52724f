"""Programs of ONNX Runtime: captured as they are, and compared with the model that was exported."""

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
pytest.importorskip("onnxruntime")
DATA = Path(__file__).parents[1] / "data" / "onnx"
PROGRAM = Path(__file__).parent / "programs" / "onnx_program.py"
MODEL = DATA / "llama.onnx"
PROMPTS = ([7, 10, 23, 42, 12, 3, 17], [1, 2, 3, 4, 5, 6, 7, 8])
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def dump(folder: Path, *options: object) -> subprocess.CompletedProcess[str]:
    """``ait llm dump --type onnx`` in a process of its own, without torch on its way."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AIT_")}
    words = ["llm", "dump", "--type", "onnx", "-o", folder, "--json", *options]
    return subprocess.run(
        [sys.executable, "-m", "ait_llm", *map(str, words)],
        env={**kept, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )


def program(model: Path, *words: str) -> str:
    return " ".join([sys.executable, str(PROGRAM), str(model), *words])


def compared(golden: Path, mine: Path, output: Path) -> tuple[int, dict[str, Any]]:
    words = ["llm", "compare", "-gp", golden, "-mp", mine, "-o", output, "-j", "1", "--json"]
    result = CliRunner().invoke(ait, list(map(str, words)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The model in transformers, by level."""
    config = LlamaConfig(**SIZES)  # type: ignore[arg-type]
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    model.load_state_dict(load_file(DATA / "llama.safetensors"))
    found = {}
    for level in ("modules", "operators"):
        found[level] = tmp_path_factory.mktemp(level)
        settings = DumpConfig(
            dump_path=found[level], operators=level == "operators", weights=True, token_range=[0, 1]
        )
        with torch.no_grad(), register_hook(model, settings) as handle:
            for prompt in PROMPTS:
                handle.begin_generation() if prompt is PROMPTS[0] else handle.mark_token()
                model(input_ids=torch.tensor([prompt]), use_cache=False)
    return found


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The exported model in ONNX Runtime, by the level of its optimisations."""
    found = {}
    for level in ("DISABLE_ALL", "ENABLE_ALL"):
        found[level] = tmp_path_factory.mktemp(level)
        done = dump(found[level], "--exec", program(MODEL, level), "-er", "all")
        assert done.returncode == 0, done.stderr
    return found


def test_the_program_prints_what_it_prints_alone(tmp_path: Path) -> None:
    alone = subprocess.run(
        [sys.executable, str(PROGRAM), str(MODEL)], capture_output=True, text=True, check=True
    )
    done = dump(tmp_path, "--exec", program(MODEL), "-er", "all")
    assert done.stdout.startswith(alone.stdout)
    assert alone.stdout.count("\n") == len(PROMPTS)


def test_every_result_of_the_graph_is_captured_in_every_run(captured: Mapping[str, Path]) -> None:
    nodes = {node.name.strip("/") for node in onnx.load(MODEL).graph.node}
    found = list(open_dump(captured["DISABLE_ALL"]).operations())
    assert {operation.step for operation in found} == {0, 1}
    assert {operation.name for operation in found if operation.step == 0} == nodes
    assert all(operation.outputs for operation in found)


def test_captured_values_are_those_of_the_reference_evaluator(
    captured: Mapping[str, Path],
) -> None:
    from onnx.reference import ReferenceEvaluator

    model = onnx.load(MODEL)
    del model.graph.output[:]
    for node in model.graph.node:
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output)
    names = [each.name for each in model.graph.output]
    values = ReferenceEvaluator(model).run(None, {"input_ids": np.array([PROMPTS[0]])})
    exact = dict(zip(names, values, strict=True))
    made_by = {node.name: node.output[0] for node in model.graph.node}
    operations = list(open_dump(captured["DISABLE_ALL"]).operations(step=0))
    for operation in operations:
        value = exact[made_by[operation.name]]
        np.testing.assert_allclose(operation.outputs[0].nd(), value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", ["DISABLE_ALL", "ENABLE_ALL"])
@pytest.mark.parametrize(("level", "least"), [("modules", 200), ("operators", 600)])
def test_a_healthy_export_passes(
    golden: Mapping[str, Path],
    captured: Mapping[str, Path],
    tmp_path: Path,
    level: str,
    way: str,
    least: int,
) -> None:
    code, summary = compared(golden[level], captured[way], tmp_path)
    assert code == 0, summary
    assert summary["counts"]["FAIL"] == summary["counts"]["ERROR"] == 0
    assert summary["counts"]["PASS"] > least


def test_nothing_is_wrong_between_an_optimised_and_a_plain_graph(
    captured: Mapping[str, Path], tmp_path: Path
) -> None:
    code, summary = compared(captured["DISABLE_ALL"], captured["ENABLE_ALL"], tmp_path)
    assert summary["counts"]["FAIL"] == summary["counts"]["ERROR"] == 0
    assert (code, summary["origins"]) == (0, [])
    assert summary["counts"]["PASS"] > 300


@pytest.mark.parametrize("way", ["DISABLE_ALL", "ENABLE_ALL"])
def test_every_node_is_right_without_golden(
    captured: Mapping[str, Path], tmp_path: Path, way: str
) -> None:
    words = ["llm", "opcheck", "-i", captured[way], "-o", tmp_path, "--format", "csv", "--json"]
    result = CliRunner().invoke(ait, list(map(str, words)))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[-1])["counts"]["PASS"] > 200


def captured_with(fault: Callable[[Any], None], folder: Path) -> None:
    """Capture the graph with a fault in it, in ``mine``."""
    model = onnx.load(MODEL)
    fault(model)
    onnx.save(model, folder / "wrong.onnx")
    done = dump(folder / "mine", "--exec", program(folder / "wrong.onnx", "DISABLE_ALL"))
    assert done.returncode == 0, done.stderr


def _node(model: Any, name: str) -> Any:
    return next(each for each in model.graph.node if each.name == name)


def _constant(model: Any, name: str, change: Callable[[Any], Any]) -> None:
    """Change a constant for one reader."""
    reader, place = name.split(":")
    node = _node(model, reader)
    found = next(each for each in model.graph.initializer if each.name == node.input[int(place)])
    value = np.asarray(change(np.array(onnx.numpy_helper.to_array(found))), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(value, "wrong"))
    node.input[int(place)] = "wrong"


def _weight(model: Any) -> None:
    _constant(model, "node_linear_13:1", lambda value: value * 1.05)


def _eps(model: Any) -> None:
    _constant(model, "node_add_521:1", lambda value: value * 1e5)


def _activation(model: Any) -> None:
    _node(model, "node_Sigmoid_377").op_type = "HardSigmoid"


def _sign(model: Any) -> None:
    _node(model, "node_neg_5").op_type = "Identity"


def _residual(model: Any) -> None:
    _node(model, "node_add_549").input[0] = _node(model, "node_add_511").input[0]


@pytest.mark.parametrize(
    ("fault", "names"),
    [
        (_weight, ("node_linear_13",)),
        # what computes the variance and its root is right, each by itself: one of these
        (_eps, ("node_pow_4", "node_mean_3", "node_add_521", "node_Sqrt_375", "node_rsqrt_3")),
        (_activation, ("node_Sigmoid_377",)),
        (_residual, ("node_add_549",)),
    ],
)
def test_the_first_wrong_node_is_named(
    golden: Mapping[str, Path],
    tmp_path: Path,
    fault: Callable[[Any], None],
    names: tuple[str, ...],
) -> None:
    captured_with(fault, tmp_path)
    code, summary = compared(golden["operators"], tmp_path / "mine", tmp_path)
    assert code == 1, summary
    assert summary["origins"][0]["op"] in names, summary["origins"]


def _scale(model: Any) -> None:
    _constant(model, "node_mul_559:1", lambda value: value * 1.1)


def _softmax(model: Any) -> None:
    _node(model, "node_Softmax_365").attribute[0].i = 2


def _mask(model: Any) -> None:
    _constant(model, "node_where:2", lambda value: np.full_like(value, -1))


@pytest.mark.parametrize("level", ["modules", "operators"])
@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (_scale, "node_mul_559"),
        (_softmax, "node_Softmax_365"),
        (_mask, "node_where"),
        (_sign, "node_cat_5"),  # nothing negates what it reads
    ],
)
def test_of_the_nodes_of_an_attention_the_first_that_golden_does_not_make_is_named(
    golden: Mapping[str, Path], tmp_path: Path, fault: Callable[[Any], None], name: str, level: str
) -> None:
    captured_with(fault, tmp_path)
    code, summary = compared(golden[level], tmp_path / "mine", tmp_path)
    assert code == 1, summary
    assert summary["origins"][0]["op"] == name, summary["origins"]


def test_another_axis_of_a_node_is_told_against_the_plain_graph(
    captured: Mapping[str, Path], tmp_path: Path
) -> None:
    captured_with(_softmax, tmp_path)
    code, summary = compared(captured["DISABLE_ALL"], tmp_path / "mine", tmp_path)
    assert (code, summary["origins"][0]["op"]) == (1, "node_Softmax_365")
    assert "is 2 instead of -1" in summary["origins"][0]["evidence"]


def test_a_wrong_sign_in_a_graph_of_right_operators_fails(
    golden: Mapping[str, Path], tmp_path: Path
) -> None:
    """Each operator is right, and what they are together is another function: no rounding is."""
    captured_with(_sign, tmp_path)
    code, summary = compared(golden["operators"], tmp_path / "mine", tmp_path)
    assert (code, summary["verdict"]) == (1, "FAIL")
    [origin] = summary["origins"]
    assert "node_neg_5" in origin["candidates"]
    assert not origin["certain"]


@pytest.mark.parametrize("way", ["bound", "async"])
def test_runs_with_bound_values_and_beside_the_program_are_captured_too(
    captured: Mapping[str, Path], tmp_path: Path, way: str
) -> None:
    done = dump(tmp_path / "out", "--exec", program(MODEL, "ENABLE_ALL", way), "-er", "all")
    assert done.returncode == 0, done.stderr
    code, summary = compared(captured["ENABLE_ALL"], tmp_path / "out", tmp_path)
    assert (code, summary["counts"]["FAIL"]) == (0, 0)
    assert summary["counts"]["PASS"] > 400


def test_a_model_runs_without_a_program(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", input_ids=np.array([PROMPTS[0]]))
    done = dump(tmp_path / "out", "--model", MODEL, "--inputs", tmp_path / "x.npz")
    assert done.returncode == 0, done.stderr
    assert len(list(open_dump(tmp_path / "out").operations())) > 100


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ((), 2, "the option --exec is missing"),
        (("--model", MODEL), 2, "--model needs --inputs FILE.npz"),
        (("--model", "no.onnx", "--inputs", "no.npz"), 2, "no.onnx: no such file"),
        (("--model", MODEL, "--exec", "true"), 2, "give one of both"),
        (("--model", PROGRAM, "--inputs", DATA / "x.npz"), 2, "is no model that ONNX Runtime"),
        (("--model", MODEL, "--inputs", DATA / "y.npz"), 2, "has no array 'input_ids'"),
        (("--model", MODEL, "--inputs", PROGRAM), 2, "is no .npz file of arrays"),
        (("--exec", "true"), 3, "no process that imports onnxruntime was seen"),
    ],
)
def test_what_cannot_run_is_said_in_a_sentence(
    tmp_path: Path, options: tuple[Any, ...], code: int, sentence: str
) -> None:
    files = {DATA / "x.npz": {"input_ids": [[1]]}, DATA / "y.npz": {"other": [[1]]}}
    for path, arrays in files.items():
        np.savez(tmp_path / path.name, **{name: np.array(each) for name, each in arrays.items()})
    given = [tmp_path / each.name if each in files else each for each in options]
    done = dump(tmp_path / "out", *given)
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
