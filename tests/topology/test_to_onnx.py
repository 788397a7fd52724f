from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx.checker
import onnx.inliner
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm.common.json_fitter import atb_json_to_onnx
from ait_llm.errors import FormatError, UsageError
from ait_llm.topology import convert_topologies, topology_to_onnx

Write = Callable[..., Path]
HEADER = (
    "CaseNum|CaseName|OpName|OpParam|InNum|InDType|InFormat|InShape|OutNum|OutDType|OutFormat|"
    "OutShape|DataGenType|DataGenRange|InTensorFile|OutTensorFile|TestType|TestLevel|FromModel|"
    "SocVersion|ExpectedError\n"
)
LEAVES = [
    "LinearOperation_0_0",
    "LinearOperation_0_1_0",
    "ActivationOperation_0_1_1",
    "ReshapeAndCacheOperation_0_2",
    "ElewiseOperation_0_3",
]


def load(path: Path) -> Any:
    """The model of a file that passes the checker, plain and with shape inference."""
    onnx.checker.check_model(str(path))
    onnx.checker.check_model(str(path), full_check=True)
    return onnx.load(str(path))


def notes(target: Any) -> dict[str, str]:
    return {prop.key: prop.value for prop in target.metadata_props}


def dims(value: Any) -> list[int | str]:
    shape = value.type.tensor_type.shape
    return [dim.dim_param or dim.dim_value for dim in shape.dim]


def element(value: Any) -> str:
    return str(onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type))


@pytest.mark.parametrize(
    ("level", "names"),
    [
        (0, ["DecoderLayer_0"]),
        (1, ["LinearOperation_0_0", "Mlp_0_1", *LEAVES[3:]]),
        (2, LEAVES),
        (-1, LEAVES),
        (7, LEAVES),
    ],
)
def test_level_chooses_the_depth_of_a_layer(layer: Path, level: int, names: list[str]) -> None:
    model = load(topology_to_onnx(layer, level))
    assert [node.name for node in model.graph.node] == names
    assert not model.functions


@pytest.mark.parametrize(("level", "count"), [(0, 1), (1, 3), (2, 9), (-1, 11)])
def test_level_chooses_the_depth_of_a_model(model: Path, level: int, count: int) -> None:
    written = load(topology_to_onnx(model, level))
    assert len(written.graph.node) == count
    assert notes(written)["atb.nodes"] == str(count)


def test_level_zero_of_a_model_is_one_node_with_its_name(model: Path) -> None:
    (node,) = load(topology_to_onnx(model, 0)).graph.node
    assert (node.name, node.op_type) == ("DemoModel", "DemoModel")
    assert "DemoModel_kCache_1" in node.input


@pytest.mark.parametrize("level", [None, 0, 1, 2, -1])
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("file", ["layer/4242/DecoderLayer_0.json", "model/4242/DemoModel.json"])
@pytest.mark.parametrize("shapes", [True, False])
def test_every_form_of_the_demo_passes_the_checker(
    demo: Path, file: str, level: int | None, nested: bool, shapes: bool
) -> None:
    if not shapes:
        (demo / "operation_io_tensors" / "4242" / "operation_tensors_0.csv").unlink()
    load(topology_to_onnx(demo / file, level, nested=nested))


def test_files_of_the_official_probe_pass_the_checker(data: Path, tmp_path: Path) -> None:
    files = sorted((data / "official").glob("*.json"))
    assert len(files) == 7
    for file in files:
        for nested in (True, False):
            model = load(topology_to_onnx(file, nested=nested, output=tmp_path / "o.onnx"))
            assert model.graph.name == file.stem


def test_no_level_nests_graphs_as_functions(model: Path) -> None:
    written = load(topology_to_onnx(model))
    assert [node.name for node in written.graph.node] == [
        "DecoderLayer_0",
        "DecoderLayer_1",
        "LinearOperation_2",
    ]
    assert [(f.name, f.overload, len(f.node)) for f in written.functions] == [
        ("DecoderLayer", "DecoderLayer_0", 4),
        ("Mlp", "Mlp_0_1", 2),
        ("DecoderLayer", "DecoderLayer_1", 4),
        ("Mlp", "Mlp_1_1", 2),
    ]
    assert list(written.functions[0].input) == list(written.graph.node[0].input)


def test_level_limits_the_depth_of_nesting(model: Path) -> None:
    written = load(topology_to_onnx(model, 2, nested=True))
    assert [f.overload for f in written.functions] == ["DecoderLayer_0", "DecoderLayer_1"]
    assert written.functions[0].node[1].op_type == "Mlp"
    assert written.functions[0].node[1].domain == "atb"


@pytest.mark.parametrize("kind", ["layer", "model"])
def test_inlined_functions_are_the_flat_leaves(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    path = request.getfixturevalue(kind)

    def operations(model: Any) -> Counter[Any]:
        return Counter(
            (
                node.op_type,
                notes(node)["atb.path"],
                tuple((a.name, a.SerializeToString()) for a in node.attribute),
            )
            for node in model.graph.node
        )

    nested = onnx.inliner.inline_local_functions(load(topology_to_onnx(path)))
    flat = load(topology_to_onnx(path, -1, output=tmp_path / "flat.onnx"))
    assert operations(nested) == operations(flat)


def test_manual_call_writes_the_leaves_beside_the_json(layer: Path) -> None:
    written = atb_json_to_onnx(str(layer))
    assert written == layer.with_suffix(".onnx")
    assert [node.name for node in load(written).graph.node] == LEAVES
    assert len(load(atb_json_to_onnx(layer, 1)).graph.node) == 4


def test_model_metadata_name_the_origin(model: Path, data: Path, tmp_path: Path) -> None:
    written = load(topology_to_onnx(model))
    assert written.producer_name == "ait-llm"
    assert notes(written) == {
        "atb.kind": "model",
        "atb.source": "DemoModel.json",
        "atb.pid": "4242",
        "atb.level": "all",
        "atb.nodes": "11",
        "atb.shapes_from": "operation_tensors_0.csv",
        "atb.execution": "0",
    }
    elsewhere = data / "official" / "Decoder_layer_0.json"
    written = load(topology_to_onnx(elsewhere, 1, output=tmp_path / "o.onnx"))
    assert notes(written) == {
        "atb.kind": "layer",
        "atb.source": "Decoder_layer_0.json",
        "atb.level": "1",
        "atb.nodes": "5",
    }


def test_nodes_carry_type_ids_path_parameters_and_typed_attributes(model: Path) -> None:
    body = load(topology_to_onnx(model)).functions[0]
    assert body.node[1].domain == "atb.fn"
    add = body.node[3]
    assert (add.op_type, add.domain) == ("ElewiseOperation", "atb")
    assert notes(add)["atb.ids"] == "0_3"
    assert notes(add)["atb.path"] == "DemoModel/DecoderLayer_0/ElewiseOperation_0_3"
    assert json.loads(notes(add)["atb.param"])["quantParam"] == {
        "asymmetric": False,
        "inputOffset": 0,
        "inputScale": 1.0,
    }
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in add.attribute}
    assert attributes == {
        "elewiseType": 8,
        "mulsParam.varAttr": 0.0,
        "outTensorType": -1,
        "quantParam.asymmetric": 0,
        "quantParam.inputOffset": 0,
        "quantParam.inputScale": 1.0,
    }


def test_all_recorded_parameters_survive_the_conversion(data: Path, write_json: Write) -> None:
    recorded = json.loads((data / "op-params.json").read_text())
    params = [param for variants in recorded.values() for param in variants.values()]
    path = write_json(
        {
            "opName": "All_0",
            "opType": "All",
            "nodes": [
                {"opName": f"Op_0_{i}", "opType": "Op", "param": p} for i, p in enumerate(params)
            ],
        }
    )
    nodes = load(topology_to_onnx(path)).graph.node
    assert len(nodes) == 223
    for node, param in zip(nodes, params, strict=True):
        kept = notes(node).get("atb.param")
        assert (json.loads(kept) if kept else None) == param


@pytest.mark.parametrize(
    "param",
    [
        '{"x":["a","b"]}',
        '{"x":[{"a":1},{"b":[]}]}',
        '{"a":{"b":{"c":{"d":[1.5]}}}}',
        "{}",
        '{"x":NaN,"y":-Infinity,"z":[NaN]}',
        '"plain"',
        '{"":{"":0}}',
        '{"a.b":1,"a":{"b":2}}',
        '{"x":1e300,"y":99999999999999999999}',
    ],
)
def test_unusual_parameters_convert(write_json: Write, param: str) -> None:
    path = write_json('{"opName":"A_0","opType":"A","param":' + param + "}")
    (node,) = load(topology_to_onnx(path)).graph.node
    assert len(node.attribute) == len({a.name for a in node.attribute})
    assert repr(json.loads(notes(node)["atb.param"])) == repr(json.loads(param))


@pytest.mark.parametrize("level", [None, 0, 1, 2, -1])
def test_old_model_file_without_tensor_lists_converts(
    data: Path, tmp_path: Path, level: int | None
) -> None:
    path = data / "old-model.json"
    model = load(topology_to_onnx(path, level, output=tmp_path / "o.onnx"))
    if level != 0:
        assert {"BlockModel_input_0"} <= {value.name for value in model.graph.input}
        assert [value.name for value in model.graph.output] == ["BlockModel_internal_0"]
        weights = {init.name for init in model.graph.initializer}
        assert weights == {"BlockModel_weight_0", "BlockModel_weight_1"}


def test_in_place_cache_write_is_versioned_and_seen_by_its_reader(write_json: Write) -> None:
    path = write_json(
        {
            "opName": "L_0",
            "opType": "L",
            "inTensors": ["x", "cache"],
            "outTensors": ["cache", "y"],
            "nodes": [
                {
                    "opName": "W_0_0",
                    "opType": "W",
                    "inTensors": ["x", "cache"],
                    "outTensors": ["cache"],
                },
                {
                    "opName": "W_0_1",
                    "opType": "W",
                    "inTensors": ["x", "cache"],
                    "outTensors": ["cache"],
                },
                {"opName": "R_0_2", "opType": "R", "inTensors": ["cache"], "outTensors": ["y"]},
            ],
        }
    )
    graph = load(topology_to_onnx(path)).graph
    assert list(graph.node[1].input) == ["x", "cache__v1"]
    assert list(graph.node[2].input) == ["cache__v2"]
    assert [value.name for value in graph.output] == ["cache__v2", "y"]


def test_repeated_inputs_of_a_graph_are_declared_once(data: Path, tmp_path: Path) -> None:
    model = load(topology_to_onnx(data / "old-model.json", output=tmp_path / "o.onnx"))
    formals = list(model.functions[0].input)
    assert len(formals) == len(set(formals))
    assert list(model.graph.node[0].input) == formals


def test_output_that_nothing_writes_is_named_in_the_metadata(write_json: Write) -> None:
    path = write_json(
        {
            "opName": "L_0",
            "opType": "L",
            "outTensors": ["y", "lost"],
            "nodes": [{"opName": "A_0_0", "opType": "A", "outTensors": ["y"]}],
        }
    )
    model = load(topology_to_onnx(path))
    assert [value.name for value in model.graph.output] == ["y"]
    assert notes(model)["atb.unassigned_outputs"] == "lost"


def test_shapes_and_types_come_from_the_operation_table(model: Path) -> None:
    written = load(topology_to_onnx(model))
    values = {value.name: value for value in (*written.graph.input, *written.graph.value_info)}
    assert element(values["DemoModel_input_0"]) == "FLOAT16"
    assert dims(values["DemoModel_input_0"]) == [4, 32]
    assert element(values["DemoModel_kCache_0"]) == "UNDEFINED"
    assert dims(values["DemoModel_kCache_0"]) == ["shape(DemoModel_kCache_0)"]
    inner = {value.name: value for value in written.functions[1].value_info}
    assert dims(inner["Mlp_0_1_internal_0"]) == [4, 64]
    sparse = {init.values.name: list(init.dims) for init in written.graph.sparse_initializer}
    assert sparse == {"DemoModel_weight_0": [32, 32], "DemoModel_weight_1": [64, 32]}
    assert {init.name for init in written.graph.initializer} == {
        "DemoModel_weight_2",
        "DemoModel_weight_3",
        "DemoModel_weight_4",
    }
    assert notes(written)["atb.execution"] == "0"


def test_unusual_tables_convert_and_the_chosen_execution_is_recorded(layer: Path) -> None:
    folder = layer.parents[2] / "operation_io_tensors" / "4242"
    rows = [
        "1|a|LinearOperation_0_0|{}|2|float;bf16|nd;nd|2,-1;|1|bool|nd|9|c| | | | | | | |NO_ERROR",
        "2|a|ElewiseOperation_0_3|{}|2|made_up;bool|nd;nd|1;7,1.5|1|bf16|nd|3|c| | | | | | | |N",
    ]
    (folder / "operation_tensors_5.csv").write_text(HEADER + "\n".join(rows) + "\n")
    model = load(topology_to_onnx(layer, -1, shapes=5))
    assert notes(model)["atb.execution"] == "5"
    values = {
        value.name.removeprefix("DecoderLayer_0_"): value
        for value in (*model.graph.input, *model.graph.output, *model.graph.value_info)
    }
    assert (element(values["input_0"]), dims(values["input_0"])) == ("FLOAT", [2, "-1"])
    assert notes(values["input_0"])["atb.shapes"] == "float[2,-1]; made_up[1]"
    assert element(values["input_1"]) == "BFLOAT16"
    assert (element(values["internal_0"]), dims(values["internal_0"])) == ("BOOL", [9])
    assert dims(values["internal_1"]) == [7, "1.5"]
    with pytest.raises(UsageError, match="executions: 0, 5"):
        topology_to_onnx(layer, shapes=1)


def test_port_names_of_the_dump_label_the_inputs(layer: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(
        HEADER + "1|a|LinearOperation_0_0|{}|2|int8;int8|nd;nd|1;1|1|int8|nd|1|c| |"
        "/d/intensor0_x.bin;/d/intensor1_weight.bin| | | | | |NO_ERROR\n"
    )
    model = load(topology_to_onnx(layer, -1, shapes=table))
    assert notes(model.graph.node[0])["input_names"] == "['x', 'weight']"
    assert "input_names" not in notes(model.graph.node[1])


def test_one_cut_file_does_not_stop_a_batch(data: Path, tmp_path: Path) -> None:
    text = (data / "official" / "Decoder_layer_0.json").read_text()
    files = [tmp_path / f"layer_{number}.json" for number in range(10)]
    for file in files:
        file.write_text(text)
    files[4].write_text(text[:1000])
    result = convert_topologies(files)
    assert result.written == tuple(
        file.with_suffix(".onnx") for file in files if file is not files[4]
    )
    (error,) = result.failed
    assert isinstance(error, FormatError)
    assert error.path == files[4]
    assert error.exit_code != 0
    assert not files[4].with_suffix(".onnx").exists()


def test_equal_inputs_give_equal_bytes_in_another_process(model: Path, tmp_path: Path) -> None:
    here = topology_to_onnx(model).read_bytes()
    code = (
        "import sys; from ait_llm.topology import topology_to_onnx; "
        "topology_to_onnx(sys.argv[1], output=sys.argv[2])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    output = tmp_path / "again.onnx"
    subprocess.run([sys.executable, "-c", code, model, output], check=True, env=environment)
    assert output.read_bytes() == here


def test_thousands_of_operations_convert_with_linear_size(write_json: Write) -> None:
    def sizes(layers: int) -> tuple[int, int]:
        nodes = [
            {
                "opName": f"Layer_{i}",
                "opType": "Layer",
                "inTensors": [f"M_internal_{i}", f"M_weight_{i}"],
                "outTensors": [f"M_internal_{i + 1}"],
                "nodes": [
                    {
                        "opName": f"Op_{i}_{j}",
                        "opType": "Op",
                        "param": {"a": 1, "b": {"c": 0.5}},
                        "inTensors": [f"M_internal_{i}" if j == 0 else f"t_{i}_{j}"],
                        "outTensors": [f"t_{i}_{j + 1}" if j < 49 else f"M_internal_{i + 1}"],
                    }
                    for j in range(50)
                ],
            }
            for i in range(layers)
        ]
        path = write_json({"modelName": "M", "nodes": nodes})
        written = topology_to_onnx(path)
        return sum(len(f.node) for f in load(written).functions), written.stat().st_size

    count, size = sizes(80)
    assert count == 4000
    _, small = sizes(8)
    assert size < 11 * small


@pytest.mark.parametrize(
    ("name", "written"),
    [("topo", "topo.onnx"), ("topo.txt", "topo.txt.onnx"), ("a.json", "a.onnx")],
)
def test_name_of_the_file_written(
    layer: Path, monkeypatch: pytest.MonkeyPatch, name: str, written: str
) -> None:
    monkeypatch.chdir(layer.parent)
    layer.rename(name)
    assert topology_to_onnx(name) == Path(written)
    load(Path(written))


def test_file_is_replaced_at_once_and_readable_by_the_group(layer: Path) -> None:
    target = layer.with_suffix(".onnx")
    target.write_bytes(b"old")
    old = target.stat().st_ino
    topology_to_onnx(layer)
    assert target.stat().st_ino != old
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(p.name for p in layer.parent.iterdir()) == [
        "DecoderLayer_0.json",
        "DecoderLayer_0.onnx",
    ]


def test_place_that_cannot_be_written_is_told_with_the_way_out(layer: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent.*No such file.*output="):
        topology_to_onnx(layer, output=tmp_path / "absent" / "x.onnx")
    occupied = tmp_path / "occupied"
    (occupied / "inside").mkdir(parents=True)
    with pytest.raises(UsageError, match="cannot be written"):
        topology_to_onnx(layer, output=occupied)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ait_dump", "occupied"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes into read-only folders")
def test_read_only_folder_is_told(layer: Path) -> None:
    layer.parent.chmod(0o550)
    with pytest.raises(UsageError, match="Permission denied"):
        topology_to_onnx(layer)


@pytest.mark.parametrize("level", [-2, -10])
def test_level_below_minus_one_is_refused(layer: Path, level: int) -> None:
    with pytest.raises(UsageError, match="not a depth"):
        topology_to_onnx(layer, level)


def test_what_the_checker_says_becomes_a_warning(
    layer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(model: object, **_: object) -> None:
        raise onnx.checker.ValidationError("not to my liking")

    monkeypatch.setattr(onnx.checker, "check_model", refuse)
    with pytest.warns(UserWarning, match="not to my liking"):
        written = topology_to_onnx(layer)
    assert written.exists()
    topology_to_onnx(layer, check=False)


def test_missing_onnx_package_names_the_extra(layer: Path) -> None:
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "from ait_llm.topology import read_topology, topology_to_onnx\n"
        "from ait_llm.errors import MissingDependencyError\n"
        "read_topology(sys.argv[1])\n"
        "try: topology_to_onnx(sys.argv[1])\n"
        "except MissingDependencyError as error: print(error)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, layer],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "ait-llm[onnx]" in done.stdout


names = st.lists(st.sampled_from(["a", "b", "M_weight_0", "x__v1", ""]), max_size=3)


def operations(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {
            "opName": st.sampled_from(["N_0", "N_1", "Gelu"]),
            "opType": st.sampled_from(["N", "Gelu"]),
        },
        optional={
            "inTensors": names,
            "outTensors": names,
            "internalTensors": names,
            "param": st.none() | st.just("") | st.dictionaries(st.text(max_size=2), st.floats()),
            "nodes": children,
        },
    )


trees = st.recursive(operations(st.just([])), lambda inner: operations(st.lists(inner, max_size=3)))


@settings(max_examples=60, deadline=None)
@given(
    trees,
    st.booleans(),
    st.sampled_from([None, -1, 0, 1, 2]),
    st.booleans(),
    st.lists(st.sampled_from(["a", "M_weight_0"]), unique=True),
)
def test_any_topology_passes_the_checker(
    tree: Any, is_model: bool, level: int | None, nested: bool, weights: list[str]
) -> None:
    if is_model:
        tree = {**tree, "modelName": "M", "weightTensors": weights, "kCacheTensors": ["b"]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.json")
        path.write_text(json.dumps(tree))
        load(topology_to_onnx(path, level, nested=nested))
