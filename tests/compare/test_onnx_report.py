"""The topology of my side with the results at its nodes, as the ONNX checker accepts it."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from dump_builder import DumpBuilder
from report_builder import comparison, not_finite, record, report

from ait_llm.compare.onnx_report import write_onnx
from ait_llm.core.comparison import Comparison, Origin, Report, Side, TensorRecord, Verdict
from ait_llm.errors import UsageError
from tests.support.fx_dumps import write_add

onnx = pytest.importorskip("onnx")


def node(
    name: str, kind: str, *children: dict[str, Any], reads: str, writes: str
) -> dict[str, Any]:
    return {
        "opName": name,
        "opType": kind,
        "inTensors": [reads],
        "outTensors": [writes],
        "internalTensors": ["half"] if children else [],
        "nodes": list(children),
    }


LAYER = node(
    "Layer_3",
    "Layer",
    node("LinearOperation_3_0", "LinearOperation", reads="x", writes="half"),
    node("ElewiseOperation_3_1", "ElewiseOperation", reads="half", writes="y"),
    reads="x",
    writes="y",
)


@pytest.fixture
def dump(tmp_path: Path) -> DumpBuilder:
    builder = DumpBuilder(tmp_path / "ait_dump")
    for path in ("3_Layer", "3_Layer/0_LinearOperation", "3_Layer/1_ElewiseOperation"):
        builder.operation(path)
    builder.layer("Layer_3", LAYER)
    return builder


def mine(op: str, op_id: str, **changes: Any) -> TensorRecord:
    return record(op, op_id=op_id, pid=4242, device=0, **changes)


def report_of(dump: DumpBuilder, *items: Comparison, **changes: Any) -> Report:
    return report(*items, mine=Side(str(dump.root), "atb", ("0_4242",), (0,)), **changes)


def notes(model: Any, name: str) -> dict[str, str]:
    nodes = [*model.graph.node, *(each for function in model.functions for each in function.node)]
    (found,) = (each for each in nodes if each.name == name)
    return {prop.key: prop.value for prop in found.metadata_props} | {"doc": found.doc_string}


def test_nodes_carry_what_was_found_about_them(dump: DumpBuilder, tmp_path: Path) -> None:
    linear, elewise = mine("LinearOperation_3_0", "3_0"), mine("ElewiseOperation_3_1", "3_1")
    later = mine("LinearOperation_3_0", "3_0", step=1)
    origin = Origin("LinearOperation_3_0", "3_0", "", 0, 0, 4242, evidence="its inputs pass")
    value = report_of(
        dump,
        comparison(0.25, mine=linear),
        comparison(mine=later),
        comparison(mine=elewise),
        origins=(origin,),
    )
    (path,) = write_onnx(value, tmp_path / "report.onnx")
    assert path == tmp_path / "report.onnx"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    found = notes(model, "LinearOperation_3_0")
    assert found["ait.verdict"] == "FAIL"
    assert found["ait.relative_euclidean_distance"] == "0.25"
    assert found["ait.limit.relative_euclidean_distance"] == "0.01"
    assert found["ait.reason"] == "relative Euclidean distance 0.25 exceeds 0.01"
    assert found["ait.golden"] == "root.model.layers.0.q_proj outtensor0"
    assert found["ait.tensors"] == "token 0 outtensor0 FAIL 0.25; token 1 outtensor0 PASS 0"
    assert found["ait.origin"] == "token 0: its inputs pass"
    assert found["doc"].startswith("the error starts here at token 0: FAIL: relative Euclidean")
    assert notes(model, "ElewiseOperation_3_1")["ait.verdict"] == "PASS"
    assert {prop.key: prop.value for prop in model.metadata_props}["ait.verdict"] == "FAIL"


def test_names_that_no_file_of_this_format_can_hold_are_escaped(
    dump: DumpBuilder, tmp_path: Path
) -> None:
    item = not_finite()
    hostile = comparison(
        0.5,
        mine=mine("LinearOperation_3_0", "3_0"),
        golden=record("half \ud800"),
        reason="half \ud800",
        values=item.values,
    )
    origin = Origin("LinearOperation_3_0", "3_0", "", 0, 0, 4242, evidence="half \ud800")
    (path,) = write_onnx(
        report_of(dump, hostile, origins=(origin, origin)), tmp_path / "report.onnx"
    )
    found = notes(onnx.load(path), "LinearOperation_3_0")
    assert found["ait.reason"] == "half \\ud800"
    assert found["ait.origin"] == "token 0: half \\ud800; token 0: half \\ud800"


def test_several_topologies_make_several_files(dump: DumpBuilder, tmp_path: Path) -> None:
    dump.operation("4_Layer")
    dump.layer("Layer_4", node("Layer_4", "Layer", reads="y", writes="z"))
    item = comparison(mine=mine("Layer_4", "4"), verdict=Verdict.PASS)
    paths = write_onnx(report_of(dump, item), tmp_path / "report.onnx")
    assert [path.name for path in paths] == [
        "report_4242_Layer_3.onnx",
        "report_4242_Layer_4.onnx",
    ]
    assert notes(onnx.load(paths[1]), "Layer_4")["ait.verdict"] == "PASS"


def test_a_dump_without_topology_says_how_to_get_one(tmp_path: Path) -> None:
    builder = DumpBuilder(tmp_path / "ait_dump")
    builder.operation("3_LinearOperation")
    item = comparison(mine=mine("LinearOperation_3", "3"))
    with pytest.raises(UsageError, match="holds no topology; capture my side with --type tensor"):
        write_onnx(report_of(builder, item), tmp_path / "report.onnx")


def test_nodes_of_a_compiled_graph_carry_what_was_found_about_them(tmp_path: Path) -> None:
    root = tmp_path / "ait_dump"
    nodes = [
        {"name": "x", "op": "placeholder", "target": "x"},
        {
            "name": "model.layers.0.mlp.Add",
            "op": "call_function",
            "target": "aten.add.Tensor",
            "args": [{"node": "x"}, {"node": "x"}],
            "modules": [{"path": "model.layers.0.mlp", "type": ""}],
        },
        {
            "name": "output",
            "op": "output",
            "target": "output",
            "inputs": ["model.layers.0.mlp.Add"],
        },
    ]
    for number in (1, 2):
        folder = root / "fx_tensors" / "worldsize1_global_rank0" / f"graph_{number}"
        write_add(folder / "0", "model.layers.0.mlp.Add")
        (folder / "graph.json").write_text(
            json.dumps({"schema": 1, "graph": number, "nodes": nodes})
        )
    bad = record("model.layers.0.mlp.Add", op_id="2_0", graph="graph_2", device=0)
    origin = Origin("model.layers.0.mlp.Add", "2_0", "", 0, 0, 7, evidence="its inputs pass")
    value = report(comparison(0.25, mine=bad), mine=Side(str(root), "fx"), origins=(origin,))
    (path,) = write_onnx(value, tmp_path / "report.onnx")
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert model.graph.name == "graph_2"
    assert [box.op_type for box in model.graph.node] == ["mlp"]
    found = notes(model, "model.layers.0.mlp.Add")
    assert found["ait.verdict"] == "FAIL"
    assert found["doc"].startswith("the error starts here at token 0: FAIL")


def test_a_dump_without_its_graphs_says_so(tmp_path: Path) -> None:
    write_add(tmp_path / "fx_tensors" / "worldsize1_global_rank0" / "graph_1" / "0")
    item = comparison(mine=record("add", op_id="1_0", graph="graph_1", device=0))
    with pytest.raises(UsageError, match=r"holds no graph\.json of a graph that was compared"):
        write_onnx(report(item, mine=Side(str(tmp_path), "fx")), tmp_path / "report.onnx")


def test_a_side_without_operations_is_refused(tmp_path: Path) -> None:
    value = report(comparison(), mine=Side("/mine", "torch"))
    with pytest.raises(UsageError, match="is of kind torch; leave onnx out of --format"):
        write_onnx(value, tmp_path / "report.onnx")
