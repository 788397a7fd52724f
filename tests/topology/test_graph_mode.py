"""GE and FX graphs as topologies and as ONNX."""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ge_proto
import onnx
import onnx.checker
import onnx.inliner
import pytest
import torch

from ait_llm.core import DType
from ait_llm.dump import fx_backend
from ait_llm.errors import FormatError, UsageError
from ait_llm.topology import find_graph_files, read_topology, topology_to_onnx
from ait_llm.topology.graph import Node
from ait_llm.topology.nesting import nest
from ait_llm.topology.sources import read_described

DATA = Path(__file__).parents[1] / "data"
FX = DATA / "topology" / "fx" / "graph.json"
GRAPHS = sorted((DATA / "torchair").glob("dynamo_*txt.xz"))
NO_OPERATION = {"Data", "Const", "NetOutput"}


@pytest.fixture(params=GRAPHS, ids=lambda path: path.name.split("_rank")[0] + path.suffixes[-2])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpacked(request.param, tmp_path)


@pytest.fixture
def original(tmp_path: Path) -> Path:
    return unpacked(
        next(p for p in GRAPHS if "original_graph_1_rank_0_pid_2194" in p.name), tmp_path
    )


@pytest.fixture
def fx(tmp_path: Path) -> Path:
    return Path(shutil.copy(FX, tmp_path))


def unpacked(source: Path, folder: Path) -> Path:
    path = folder / source.name.removesuffix(".xz")
    path.write_bytes(lzma.decompress(source.read_bytes()))
    return path


def checked(path: Path) -> Any:
    onnx.checker.check_model(str(path), full_check=True)
    return onnx.load(str(path))


def test_every_recorded_ge_graph_becomes_a_valid_onnx_model(recorded: Path) -> None:
    written = topology_to_onnx(recorded)
    assert written.name == f"{recorded.name}.onnx"
    model = checked(written)
    names = [node.name for node in model.graph.node]
    assert len(names) == len(set(names)) > 200
    assert {node.domain for node in model.graph.node} == {"ge"}


def test_operators_and_edges_of_a_ge_graph_are_those_of_the_file(original: Path) -> None:
    expected = [
        (op.name, op.type, [edge for edge in op.input if edge])
        for op in ge_proto.parse(original.read_text()).op
        if op.type not in NO_OPERATION
    ]
    model = checked(topology_to_onnx(original))
    found = [(node.name, node.op_type, list(node.input)) for node in model.graph.node]
    assert found == expected


def test_ends_and_constants_of_a_ge_graph(original: Path) -> None:
    ops = ge_proto.parse(original.read_text()).op
    graph = read_topology(original)
    assert (graph.kind, graph.producer, graph.name) == ("model", "ge", "graph_1")
    assert list(graph.root.inputs) == [f"{op.name}:0" for op in ops if op.type == "Data"]
    assert list(graph.weights) == [f"{op.name}:0" for op in ops if op.type == "Const"]
    assert list(graph.root.outputs) == list(ops[-1].input)


def test_types_and_symbolic_shapes_of_a_ge_graph(original: Path) -> None:
    _, table = read_described(original)
    assert table is not None
    topk = table.rows["TopKV2"]
    assert topk.ports[0] == "x"
    assert topk.inputs[0].dtype in (DType.FLOAT16, DType.FLOAT32)
    model = checked(topology_to_onnx(original))
    values = {value.name: value.type.tensor_type for value in model.graph.value_info}
    embedding = values["GatherV2:0"]
    assert onnx.TensorProto.DataType.Name(embedding.elem_type) == "FLOAT16"
    assert [dim.dim_param or dim.dim_value for dim in embedding.shape.dim] == [1, "s27", 32]


def test_fx_tensors_and_control_edges_of_a_ge_operator_are_attributes(tmp_path: Path) -> None:
    path = tmp_path / "dynamo_original_graph.txt"
    path.write_text(
        'op { name: "A" type: "Mul" output_desc { attr { key: "_fx_tensor_name" '
        'value { s: "mul_5-aten.mul.Tensor.OUTPUT.0" } } } }\n'
        'op { name: "B" type: "Neg" input: "A:0" input: "A:-1" output_desc { } '
        'attr { key: "axes" value { list { i: 1 i: -1 } } } }\n'
    )
    model = checked(topology_to_onnx(path))
    first, second = (
        {attr.name: onnx.helper.get_attribute_value(attr) for attr in node.attribute}
        for node in model.graph.node
    )
    assert first == {"fx_tensors": [b"mul_5-aten.mul.Tensor.OUTPUT.0"]}
    assert second == {"axes": [1, -1], "control_inputs": [b"A"]}


def test_undefined_types_of_an_optimized_graph_are_not_taken_for_floats(tmp_path: Path) -> None:
    desc = 'output_desc { dtype: DT_FLOAT attr { key: "_meta" value { s: "%s" } } }'
    meta = "Tensor(dtype=torch.bfloat16, shape=torch.Size([2, s1])"
    text = (
        f'op {{ name: "A" type: "Mul" {desc % meta} }} op {{ name: "B" type: "Neg" {desc % ""} }}'
    )
    for stage, types in (("original", ["float", "float"]), ("optimized", ["bf16", None])):
        path = tmp_path / f"dynamo_{stage}_graph_20240320101112131415.txt"
        path.write_text(text)
        _, table = read_described(path)
        assert table is not None
        infos = [table.rows[name].outputs[0] for name in "AB"]
        assert [info.dtype and info.dtype.label for info in infos] == types
        assert infos[0].shape == (2, "s1")


def test_fx_graph_keeps_its_modules_as_graphs(fx: Path) -> None:
    graph = read_topology(fx)
    assert (graph.producer, graph.name) == ("fx", "graph_1")
    first, second, *_ = graph.root.children
    assert (first.name, first.op_type) == ("L['self'].layers.0", "Block")
    assert [child.op_type for child in first.children] == [
        "LayerNorm",
        "Linear",
        "aten.split.Tensor",
        "aten.relu.default",
        "aten.cat.default",
        "Linear",
        "aten.add.Tensor",
    ]
    assert second.name == "L['self'].layers.1"
    assert graph.root.children[-1].op_type == "Linear"


def test_results_of_an_fx_node_are_read_without_the_nodes_that_select_them(fx: Path) -> None:
    nodes = {node.name: node for node in read_topology(fx).root.leaves()}
    assert not [name for name in nodes if name.startswith("getitem")]
    assert nodes["split"].outputs == ("split:0", "split:1")
    assert nodes["relu"].inputs == ("split:0",)
    assert nodes["cat"].inputs == ("relu", "split:1")
    assert nodes["cat"].param["arg1"] == -1
    assert nodes["cat"].param["source"].startswith("/home/user/model.py:")


def test_fx_model_opened_and_closed_holds_the_same_nodes(fx: Path) -> None:
    data = json.loads(fx.read_text())
    expected = [
        node["name"]
        for node in data["nodes"]
        if node["op"] == "call_function" and "getitem" not in node["name"]
    ]
    flat = checked(topology_to_onnx(fx, -1, output=fx.parent / "flat.onnx"))
    assert [node.name for node in flat.graph.node] == expected
    nested = checked(topology_to_onnx(fx))
    assert len(nested.graph.node) < 10
    inlined = onnx.inliner.inline_local_functions(nested)
    assert [node.op_type for node in inlined.graph.node] == [n.op_type for n in flat.graph.node]


def test_graph_of_our_own_capture_is_converted(tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            values, places = self.layer(x).topk(2)
            return values * values + places

    model = torch.compile(Model().eval(), backend=fx_backend.capture(tmp_path))
    with torch.no_grad():
        model(torch.ones(3, 4))
    (path,) = find_graph_files(tmp_path)
    assert path.name == "graph.json"
    graph = checked(topology_to_onnx(path)).graph
    assert "aten.topk.default" in [node.op_type for node in graph.node]
    assert [dim.dim_value for dim in graph.output[0].type.tensor_type.shape.dim] == [3, 2]
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda nodes: nodes[17].pop("name"), r"\$\.nodes\[17\]\.name is not a name"),
        (lambda nodes: nodes.insert(0, 3), r"\$\.nodes\[0\] is not a node"),
        (lambda nodes: nodes.insert(0, nodes.pop(18)), r"\$\.nodes\[0\] reads 'native_layer_norm'"),
        (lambda nodes: nodes.insert(1, dict(nodes[0])), r"\[1\]\.name 'arg0_1' is the name of an"),
    ],
)
def test_malformed_fx_graph_is_named_by_its_json_path(
    fx: Path, change: Callable[[list[Any]], object], reason: str
) -> None:
    data = json.loads(fx.read_text())
    change(data["nodes"])
    fx.write_text(json.dumps(data))
    with pytest.raises(FormatError, match=reason):
        read_topology(fx)


def test_a_table_for_a_graph_that_needs_none_is_refused(fx: Path) -> None:
    with pytest.raises(UsageError, match="tells shapes itself"):
        topology_to_onnx(fx, shapes=1)


@pytest.fixture
def listing(tmp_path: Path) -> Path:
    (source,) = (DATA / "torchair").glob("dynamo_original_graph_1_*.py.xz")
    return unpacked(source, tmp_path)


def test_fx_graph_in_torchairs_python_listing(listing: Path) -> None:
    graph = read_topology(listing)
    assert graph.producer == "fx"
    assert [(node.name, node.op_type, node.inputs) for node in graph.root.children] == [
        ("t", "aten.t.default", ("arg0_1",)),
        ("addmm", "aten.addmm.default", ("arg1_1", "arg3_1", "t")),
        ("relu", "aten.relu.default", ("addmm",)),
        ("t_1", "aten.t.default", ("arg4_1",)),
        ("addmm_1", "aten.addmm.default", ("arg5_1", "relu", "t_1")),
        ("split", "aten.split.Tensor", ("addmm_1",)),
        ("mul_10", "aten.mul.Tensor", ("split:0", "split:1")),
        ("cat", "aten.cat.default", ("mul_10", "split:1")),
        ("topk", "aten.topk.default", ("cat",)),
    ]
    assert graph.root.inputs == tuple(f"arg{number}_1" for number in range(6))
    assert graph.root.children[-1].param["source"] == "/home/user/model.py:23"


def test_fx_listing_becomes_a_valid_onnx_model_with_types(listing: Path) -> None:
    model = checked(topology_to_onnx(listing))
    assert [value.name for value in model.graph.output] == ["topk:0", "topk:1"]
    values = {v.name: v.type.tensor_type for v in (*model.graph.value_info, *model.graph.output)}
    assert [dim.dim_param or dim.dim_value for dim in values["split:1"].shape.dim] == ["s77", 2]
    assert onnx.TensorProto.DataType.Name(values["topk:1"].elem_type) == "INT64"


def test_names_that_are_no_nodes_are_not_read_from_a_listing(tmp_path: Path) -> None:
    path = tmp_path / "dynamo_original_graph_20240320101112131415.py"
    path.write_text(
        "## FX Code: dim: torch.half[2]cpu = torch.ops.aten.neg.default(x: torch.half[2]cpu)\n"
        "## FX Code: b: torch.float32[2, 2]npu:0 = torch.ops.aten.any.dim("
        "n: \"Sym(s1)\", [dim, hidden], 'dim, x', None, dim=1, other=dim, dtype=torch.bool)\n"
    )
    graph = read_topology(path)
    assert [node.inputs for node in graph.root.children] == [("x",), ("n", "dim", "dim")]
    assert graph.root.inputs == ("x", "n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("a = 1\n", "holds no line of FX code"), ("\n## FX Code: a b\n", "line 2 is not a node")],
)
def test_listing_without_readable_fx_code_is_refused(
    tmp_path: Path, text: str, reason: str
) -> None:
    path = tmp_path / "graph.py"
    path.write_text(text)
    with pytest.raises(FormatError, match=reason):
        read_topology(path)


def leaf(name: str, *inputs: str) -> Node:
    return Node(name, "op", None, None, inputs, (name,))


def test_an_interrupted_module_becomes_two_graphs_with_what_they_pass_on() -> None:
    a, b = ("a", "A"), ("b", "B")
    first, between, second = nest(
        [
            (leaf("1", "x"), [a]),
            (leaf("2", "1"), [a]),
            (leaf("3", "x"), [b]),
            (leaf("4", "2", "3"), [a]),
        ],
        ["4"],
    )
    assert (first.name, first.inputs, first.outputs, first.internals) == (
        "a",
        ("x",),
        ("2",),
        ("1",),
    )
    assert (between.inputs, between.outputs) == (("x",), ("3",))
    assert (second.name, second.inputs, second.outputs) == ("a", ("2", "3"), ("4",))


def test_modules_within_modules_are_nested() -> None:
    a, b, c = ("a", "A"), ("a.b", "B"), ("a.c", "C")
    (outer,) = nest([(leaf("1"), [a, b]), (leaf("2", "1"), [a, c]), (leaf("3", "2"), [a])], ["3"])
    assert [child.name for child in outer.children] == ["a.b", "a.c", "3"]
    assert outer.children[0].outputs == ("1",)
    assert (outer.outputs, outer.internals) == (("3",), ("1", "2"))


def test_graph_files_of_every_kind_are_found_and_links_are_not(tmp_path: Path) -> None:
    wanted = [
        "ait_dump/fx_tensors/worldsize1_global_rank0/graph_1/graph.json",
        "ait_dump/layer/42/Layer_0.json",
        "ge/dynamo_optimized_graph_1_rank_0_pid_1_ts_20261121091647917887.pbtxt",
        "ge/dynamo_original_graph_20261121091647917887.py",
        "ge/dynamo_original_graph_20261121091647917887.txt",
        "ge/ge_proto_00000001_graph_1_Build.txt",
    ]
    others = ["ge/run.json", "ge/notes.txt", "ge/model.py"]
    for name in wanted + others:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "ge" / "graph.json").symlink_to(tmp_path / wanted[0])
    assert [str(path.relative_to(tmp_path)) for path in find_graph_files(tmp_path)] == wanted
