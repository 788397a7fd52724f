"""Small graphs in ONNX Runtime: what the capture holds of them, and what it says it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ait_llm import open_dump
from ait_llm.core import DType

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

X = np.array([[1.0, -2.5], [0.125, 3.0]], np.float32)


def model(nodes: list[Any], output: str, *weights: Any) -> Any:
    """A model that takes ``x`` and returns one value of float32."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    given = [helper.make_tensor_value_info("x", kind, [2, 2])]
    made = [helper.make_tensor_value_info(output, kind, None)]
    graph = helper.make_graph(nodes, "small", given, made, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def dump(made: Any, folder: Path) -> tuple[Path, str, dict[str, Any]]:
    """The dump, what the command said, and its result."""
    onnx.save(made, folder / "m.onnx")
    np.savez(folder / "x.npz", x=X)
    words = ["--model", folder / "m.onnx", "--inputs", folder / "x.npz", "-o", folder / "out"]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AIT_")}
    done = subprocess.run(
        [sys.executable, "-m", "ait_llm", "llm", "dump", "--type", "onnx", "--json"]
        + [str(word) for word in words],
        env={**kept, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "out", done.stderr, json.loads(done.stdout.splitlines()[-1])


def test_weights_and_values_in_bfloat16_keep_their_type(tmp_path: Path) -> None:
    kind = onnx.TensorProto
    weight = onnx.helper.make_tensor("w", kind.BFLOAT16, [1, 2], [0.5, -3.0])
    nodes = [
        onnx.helper.make_node("Cast", ["x"], ["narrow"], name="narrow", to=kind.BFLOAT16),
        onnx.helper.make_node("Concat", ["narrow", "w"], ["all"], name="join", axis=0),
        onnx.helper.make_node("Cast", ["all"], ["y"], name="back", to=kind.FLOAT),
    ]
    folder, _, _ = dump(model(nodes, "y", weight), tmp_path)
    join = next(each for each in open_dump(folder).operations() if "cat" in each.type)
    tensors = [tensor for tensor in join.tensors if tensor.shape]  # the axis is a number
    assert [tensor.dtype for tensor in tensors] == [DType.BFLOAT16] * 3
    values = [np.asarray(tensor.nd(), np.float32) for tensor in tensors]
    np.testing.assert_array_equal(values[1], [[0.5, -3.0]])
    np.testing.assert_array_equal(values[2], [*X, [0.5, -3.0]])


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ("y[0, 0] = np.nextafter(y[0, 0], np.float32(0))", "remark", "y by 3e-08 of its size"),
        ("y *= 1.25", "differs", "y by 0.2 of its size"),
        ("y[0, 0] = np.nan", "differs", "y by inf of its size"),
    ],
)
def test_a_result_that_is_not_what_was_captured_is_told(
    tmp_path: Path, change: str, kind: str, text: str
) -> None:
    onnx.save(model([onnx.helper.make_node("Neg", ["x"], ["y"], name="neg")], "y"), tmp_path / "m")
    program = f"""
import numpy as np, onnxruntime
from pathlib import Path
from ait_llm.dump.fx.options import FxOptions
from ait_llm.dump.onnx import hooks
hooks.capture_sessions(FxOptions(Path({str(tmp_path / "out")!r})))
session = onnxruntime.InferenceSession({str(tmp_path / "m")!r})
x = np.ones((2, 2), np.float32)
(y,) = session.run(None, {{"x": x}})
{change}
hooks._captures[session].after_run({{"x": x}}, {{"y": y}})
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    (ledger,) = (tmp_path / "out" / "ait_dump" / "ledger").glob("*.jsonl")
    lines = [json.loads(line) for line in ledger.read_text("utf-8").splitlines()]
    (note,) = (line for line in lines if line["kind"] == "note")  # none of run 0
    assert note[kind] == 1
    assert text in note["text"]


def test_nodes_within_branches_are_counted(tmp_path: Path) -> None:
    helper = onnx.helper
    branches = {}
    for name, kind in (("then_branch", "Neg"), ("else_branch", "Abs")):
        node = helper.make_node(kind, ["x"], [f"{name}_y"])
        out = helper.make_tensor_value_info(f"{name}_y", onnx.TensorProto.FLOAT, [2, 2])
        branches[name] = helper.make_graph([node], name, [], [out])
    zero = helper.make_tensor("zero", onnx.TensorProto.FLOAT, [], [0.0])
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["total"], name="total", keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["positive"], name="positive"),
        helper.make_node("If", ["positive"], ["y"], name="choose", **branches),
    ]
    folder, said, _ = dump(model(nodes, "y", zero), tmp_path)
    assert "2 nodes within branches and loops are not captured" in said
    chosen = next(
        each for each in open_dump(folder).operations() if each.type.startswith("onnx.If")
    )
    np.testing.assert_array_equal(chosen.outputs[0].nd(), -X)


def test_a_number_that_is_cast_before_it_is_used_is_a_number(tmp_path: Path) -> None:
    """ONNX Runtime casts constants of 16 bits for operators that it only has for 32."""
    kind = onnx.TensorProto
    half = onnx.helper.make_tensor("half", kind.FLOAT16, [], np.float16([0.5]).tobytes(), raw=True)
    nodes = [
        onnx.helper.make_node("Cast", ["half"], ["wide"], name="cast", to=kind.FLOAT),
        onnx.helper.make_node("Div", ["x", "wide"], ["y"], name="div"),
    ]
    folder, _, _ = dump(model(nodes, "y", half), tmp_path)
    div = next(each for each in open_dump(folder).operations() if each.name == "div")
    assert div.type == "aten.div.Tensor"
    assert list(dict(div.params).values()) == [0.5]


def test_a_split_into_equal_parts_is_told_by_their_sizes(tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("Split", ["x"], ["a", "b"], name="parts", axis=1, num_outputs=2),
        onnx.helper.make_node("Sub", ["a", "b"], ["y"], name="sub"),
    ]
    folder, _, _ = dump(model(nodes, "y"), tmp_path)
    split = next(each for each in open_dump(folder).operations() if each.name == "parts")
    assert split.type == "aten.split_with_sizes.default"
    values = [tensor.nd() for tensor in split.outputs]
    np.testing.assert_array_equal(np.concatenate(values, 1), X)


RUNTIME = "com.microsoft"


def _in_the_runtime(node: Any, *weights: Any) -> Any:
    made = model([node], node.output[0], *weights)
    made.opset_import.append(onnx.helper.make_opsetid(RUNTIME, 1))
    return made


def _vector(name: str, *values: float) -> Any:
    return onnx.numpy_helper.from_array(np.array(values, np.float32), name)


@pytest.mark.parametrize("kind", ["BiasGelu", "FastGelu"])
def test_an_activation_with_a_bias_is_told_as_the_sum_and_the_activation(
    tmp_path: Path, kind: str
) -> None:
    node = onnx.helper.make_node(kind, ["x", "b"], ["y"], name="act", domain=RUNTIME)
    folder, _, _ = dump(_in_the_runtime(node, _vector("b", 0.5, -1.0)), tmp_path)
    bias, act = open_dump(folder).operations()
    assert [bias.name, bias.type] == ["act_bias", "aten.add.Tensor"]
    assert [act.name, act.type] == ["act", "aten.gelu.default"]
    np.testing.assert_array_equal(bias.outputs[0].nd(), X + np.float32([0.5, -1.0]))
    np.testing.assert_array_equal(act.inputs[0].nd(), bias.outputs[0].nd())


def test_a_norm_with_residual_and_bias_is_told_as_two_sums_and_the_norm(tmp_path: Path) -> None:
    node = onnx.helper.make_node(
        "SkipLayerNormalization", ["x", "x", "w", "o", "b"], ["y"], name="n", domain=RUNTIME
    )
    weights = [_vector("w", 1.5, 0.5), _vector("o", 0.25, 0.0), _vector("b", 0.5, -1.0)]
    folder, _, _ = dump(_in_the_runtime(node, *weights), tmp_path)
    found = {each.name: each for each in open_dump(folder).operations()}
    assert {name: each.type for name, each in found.items()} == {
        "n_bias": "aten.add.Tensor",
        "n_sum": "aten.add.Tensor",
        "n": "aten.layer_norm.default",
    }
    biased = X + np.float32([0.5, -1.0])
    np.testing.assert_array_equal(found["n_bias"].outputs[0].nd(), biased)
    np.testing.assert_allclose(found["n_sum"].outputs[0].nd(), biased + X, rtol=1e-6)
