"""Layer and model topology."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from native_host import Host, Run, call

pytestmark = pytest.mark.native

DATA = Path(__file__).parents[1] / "data"
LINEAR = (
    '{"enAccum":false,"hasBias":false,"matmulType":0,"outDataType":-1,"quantMode":0,'
    '"transposeA":false,"transposeB":true}'
)
SWISH = '{"activationType":4,"dim":-1,"scale":1.0}'
ADD = (
    '{"elewiseType":8,"mulsParam":{"varAttr":0.0},"outTensorType":-1,'
    '"quantParam":{"asymmetric":false,"inputOffset":0,"inputScale":1.0}}'
)


def nodes_of_layer(x: str, weights: tuple[str, str], y: str, layer: str) -> str:
    """The nodes of the worked layer with these outer tensor names."""
    number = layer.rpartition("_")[2]
    inner = [f"{layer}_internal_{i}" for i in (0, 1)]
    hidden = f"Mlp_{number}_1_internal_0"

    def node(name: str, op_type: str, param: str, ins: list[str], outs: list[str]) -> str:
        return (
            f'{{"opName":"{name}","opType":"{op_type}","param":{param},'
            f'"inTensors":{json.dumps(ins, separators=(",", ":"))},'
            f'"outTensors":{json.dumps(outs, separators=(",", ":"))}'
        )

    linear = node(
        f"LinearOperation_{number}_0", "LinearOperation", LINEAR, [x, weights[0]], [inner[0]]
    )
    mlp = node(f"Mlp_{number}_1", "Mlp", '""', [inner[0], weights[1]], [inner[1]])
    mlp_linear = node(
        f"LinearOperation_{number}_1_0", "LinearOperation", LINEAR, [inner[0], weights[1]], [hidden]
    )
    swish = node(
        f"ActivationOperation_{number}_1_1", "ActivationOperation", SWISH, [hidden], [inner[1]]
    )
    add = node(f"ElewiseOperation_{number}_2", "ElewiseOperation", ADD, [x, inner[1]], [y])
    return (
        f'"internalTensors":["{inner[0]}","{inner[1]}"],"nodes":[{linear}}},{mlp},'
        f'"internalTensors":["{hidden}"],"nodes":[{mlp_linear}}},{swish}}}]}},{add}}}]'
    )


def text_of(run: Run, kind: str, name: str) -> str:
    (file,) = (run.dump / kind).glob(f"*/{name}.json")
    return file.read_text()


def test_the_worked_layer_is_written_character_for_character(host: Host) -> None:
    run = host.trace(ATB_DUMP_TYPE="layer")
    layer = "DecoderLayer_0"
    inputs = [f"{layer}_input_{i}" for i in range(3)]
    expected = (
        f'{{"opName":"{layer}","opType":"DecoderLayer","param":"","inTensors":["'
        + '","'.join(inputs)
        + f'"],"outTensors":["{layer}_output_0"],'
        + nodes_of_layer(inputs[0], (inputs[1], inputs[2]), f"{layer}_output_0", layer)
        + "}\n"
    )
    assert text_of(run, "layer", layer) == expected
    assert not (run.dump / "model").exists()


def test_a_model_names_its_layers_and_holds_their_nodes(host: Host) -> None:
    run = host.trace("layers=2", "models=1", ATB_DUMP_TYPE="model")
    model = "DemoModel"
    weights = (f"{model}_weight_0", f"{model}_weight_1")
    nodes = []
    for i, (x, y) in enumerate((("input_0", "internal_0"), ("internal_0", "output_0"))):
        x, y = f"{model}_{x}", f"{model}_{y}"
        nodes.append(
            f'{{"inTensors":["{x}","{weights[0]}","{weights[1]}"],"opName":"DecoderLayer_{i}",'
            f'"outTensors":["{y}"],"opType":"DecoderLayer",'
            + nodes_of_layer(x, weights, y, f"DecoderLayer_{i}")
            + "}"
        )
    assert text_of(run, "model", model) == (
        f'{{"inTensors":["{model}_input_0"],"modelName":"{model}","nodes":['
        + ",".join(nodes)
        + f'],"outTensors":["{model}_output_0"]}}\n'
    )
    assert len(list((run.dump / "layer").rglob("*.json"))) == 2


def test_two_models_of_one_process_use_their_own_layers(host: Host) -> None:
    run = host.trace("layers=2", "models=2", ATB_DUMP_TYPE="model")
    for name, numbers in (("DemoModel", [0, 1]), ("DemoModel1", [2, 3])):
        loaded = json.loads(text_of(run, "model", name))
        assert [node["opName"] for node in loaded["nodes"]] == [
            f"DecoderLayer_{number}" for number in numbers
        ]
        assert all("nodes" in node for node in loaded["nodes"])


def graph(name: str, number: int) -> str:
    return (
        f'{{"inTensorNum":1,"internalTensorNum":0,"nodes":[],"opName":"{name}_{number}",'
        f'"opType":"{name}","outTensorNum":1,"param":""}}'
    )


def test_operations_outside_the_model_do_not_shift_its_layers(host1: Host) -> None:
    model = (
        '{"modelName":"M","nodes":[{"opName":"A","inTensors":["x"],"outTensors":["y"]},'
        '{"opName":"B","inTensors":["y"],"outTensors":["z"]},'
        '{"opName":"C","inTensors":["z"],"outTensors":["w"]}]}'
    )
    run = host1.script(
        call("graph", "Alone_0", graph("Alone", 0)),
        call("graph", "B_1", graph("B", 1)),
        call("graph", "A_2", graph("A", 2)),
        call("model", "M", model),
        ATB_DUMP_TYPE="model",
    )
    loaded = json.loads(text_of(run, "model", "M"))
    names = [node["opName"] for node in loaded["nodes"]]
    assert names[:2] == ["A_2", "B_1"]
    assert "internalTensors" not in loaded["nodes"][2]


def reported_graphs() -> list[str]:
    graphs = set()
    for file in (DATA / "atb-trace").glob("*.jsonl.gz"):
        with gzip.open(file, "rt") as lines:
            for line in lines:
                event: dict[str, Any] = json.loads(line)
                if event.get("fn") == "ReportOperationGraph":
                    # An address of the recorded run is a placeholder there.
                    graphs.add(event["args"]["graph"].replace("${PTR}", "0"))
    return sorted(graphs)


@pytest.mark.parametrize(
    "file", sorted((DATA / "topology" / "official").glob("*.json")), ids=lambda file: file.stem
)
def test_layers_equal_those_of_the_official_probe(host1: Host, file: Path) -> None:
    matching = [g for g in reported_graphs() if json.loads(g)["opName"] == file.stem]
    assert matching
    texts = [
        text_of(
            host1.script(call("graph", file.stem, g), ATB_DUMP_TYPE="layer"), "layer", file.stem
        )
        for g in matching
    ]
    assert file.read_text().strip() in [text.strip() for text in texts]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("A_0", "not json"),
        ("A_0", '{"opName":"A_0"'),
        ("A_0", '{"opName":"A_0","opType":"A","inTensorNum":1}'),
        ("A_0", graph("A", 1)),
        ("../A_0", graph("../A", 0)),
        ("A_0", "[" * 100000),
    ],
    ids=["text", "cut", "keys", "name", "path", "depth"],
)
def test_a_graph_that_is_not_usable_is_recorded_and_ignored(
    host1: Host, name: str, text: str
) -> None:
    run = host1.script(call("graph", name, text), ATB_DUMP_TYPE="layer")
    assert run.returncode == 0
    assert list(host1.output.rglob("*.json")) == []
    (line,) = [line for line in run.ledger() if line["kind"] == "file"]
    assert line["state"] == "failed"
    assert run.ledger()[-1]["lost_files"] == 1


def test_a_tensor_id_out_of_range_leaves_the_node_incomplete(host1: Host) -> None:
    text = graph("A", 0).replace(
        '"nodes":[]',
        '"nodes":[{"inTensorIds":[0,9],"inTensorNum":2,"opName":"B_0_0","opType":"B",'
        '"outTensorIds":[1],"outTensorNum":1,"param":null}]',
    )
    run = host1.script(call("graph", "A_0", text), ATB_DUMP_TYPE="layer")
    (node,) = json.loads(text_of(run, "layer", "A_0"))["nodes"]
    assert node["inTensors"] == ["A_0_input_0"]
    assert node["param"] is None
    assert "out of range" in run.stderr


def test_numbers_and_keys_pass_unchanged(host1: Host) -> None:
    param = '{"z":1e-05,"a":9.999999747378752e-06,"m":"\\u00e9\\n","big":18446744073709551615}'
    text = graph("A", 0).replace('"param":""', f'"param":{param}')
    run = host1.script(call("graph", "A_0", text), ATB_DUMP_TYPE="layer")
    assert f'"param":{param},' in text_of(run, "layer", "A_0")


def test_written_topologies_are_handed_over_for_onnx(host1: Host, tmp_path: Path) -> None:
    folder = tmp_path / "launcher"
    folder.mkdir()
    run = host1.trace(
        "models=1",
        ATB_DUMP_TYPE="model|layer|onnx",
        ATB_DUMP_SUB_PROC_INFO_SAVE_PATH=str(folder),
    )
    lines = (folder / "subprocess_info.txt").read_text().splitlines()
    pid = run.summary["pid"]
    assert lines == [
        str(run.dump / "layer" / str(pid) / "DecoderLayer_0.json"),
        str(run.dump / "model" / str(pid) / "DemoModel.json"),
    ]
