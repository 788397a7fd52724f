from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ait_llm.core import OpId
from ait_llm.errors import FormatError
from ait_llm.topology import atb_json, read_topology
from ait_llm.topology.graph import op_id_of

Write = Callable[..., Path]


def leaf(name: str, **more: Any) -> dict[str, Any]:
    return {"opName": name, "opType": name.split("_")[0], **more}


def test_layer_file_becomes_a_tree_with_ids_and_parameters(layer: Path) -> None:
    graph = read_topology(layer)
    assert (graph.kind, graph.name, graph.source) == ("layer", "DecoderLayer_0", layer)
    linear, mlp, cache, add = graph.root.children
    assert [child.name for child in mlp.children] == [
        "LinearOperation_0_1_0",
        "ActivationOperation_0_1_1",
    ]
    assert mlp.is_graph
    assert mlp.internals == ("Mlp_0_1_internal_0",)
    assert mlp.children[0].op_id == OpId((0, 1, 0))
    assert linear.param["transposeB"] is True
    assert cache.param is None
    assert cache.outputs == ("DecoderLayer_0_input_3",)
    assert add.inputs == ("DecoderLayer_0_input_0", "DecoderLayer_0_internal_1")


def test_model_file_lists_weights_and_caches(model: Path) -> None:
    graph = read_topology(model)
    assert (graph.kind, graph.name, graph.root.op_id) == ("model", "DemoModel", None)
    assert graph.weights == tuple(f"DemoModel_weight_{i}" for i in range(5))
    assert graph.caches == ("DemoModel_kCache_0", "DemoModel_kCache_1")
    assert [child.op_type for child in graph.root.children] == [
        "DecoderLayer",
        "DecoderLayer",
        "LinearOperation",
    ]


def test_weights_of_an_old_model_file_are_known_by_their_names(data: Path) -> None:
    graph = read_topology(data / "old-model.json")
    assert graph.weights == ("BlockModel_weight_0", "BlockModel_weight_1")
    assert graph.root.inputs == ()
    assert graph.root.children[1].outputs == ()


def test_walk_visits_in_execution_order_with_depth(layer: Path) -> None:
    visited = [(node.name, depth) for node, depth in read_topology(layer).root.walk()]
    assert visited == [
        ("DecoderLayer_0", 0),
        ("LinearOperation_0_0", 1),
        ("Mlp_0_1", 1),
        ("LinearOperation_0_1_0", 2),
        ("ActivationOperation_0_1_1", 2),
        ("ReshapeAndCacheOperation_0_2", 1),
        ("ElewiseOperation_0_3", 1),
    ]


@pytest.mark.parametrize(
    ("name", "op_type", "ids"),
    [
        ("LinearOperation_0_1_0", "LinearOperation", (0, 1, 0)),
        ("Block_7_0", "Block_7", (0,)),
        ("Renamed_12_3", "Other", (12, 3)),
        ("NoIds", "NoIds", None),
    ],
)
def test_ids_are_what_follows_the_type(
    name: str, op_type: str, ids: tuple[int, ...] | None
) -> None:
    assert op_id_of(name, op_type) == (OpId(ids) if ids else None)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], "$, not an object"),
        ({"opName": "A_0"}, "$.opType is missing"),
        ({"opName": "", "opType": "A"}, "$.opName is an empty text"),
        ({"modelName": 3}, "$.modelName is a number"),
        (leaf("A_0", nodes=[leaf("B_0_0"), {"name": "C"}]), "$.nodes[1].opName is missing"),
        (leaf("A_0", nodes=[leaf("B_0_0", nodes=[None])]), "$.nodes[0].nodes[0] is null"),
        (leaf("A_0", nodes={}), "$.nodes is an object"),
        (leaf("A_0", inTensors="x"), "$.inTensors is a text"),
        (leaf("A_0", outTensors=["x", 1]), "$.outTensors[1] is not the name"),
        ({"modelName": "M", "kCacheTensors": True}, "$.kCacheTensors is a truth value"),
        (leaf("A" * 5000), "$.opName has 5000 characters"),
    ],
)
def test_wrong_content_is_reported_with_its_json_path(
    write_json: Write, value: Any, reason: str
) -> None:
    path = write_json(value)
    with pytest.raises(FormatError) as caught:
        read_topology(path)
    assert reason in caught.value.reason
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"opName":"A_0","opTy',
        '{"opName":"A_0","opType":"A","param":' + "9" * 5000 + "}",
        '{"opName":"A_0","opType":"A","param":"\\ud800"}',
    ],
)
def test_cut_or_malformed_json_is_a_format_error(write_json: Write, text: str) -> None:
    with pytest.raises(FormatError, match="not valid JSON"):
        read_topology(write_json(text))


def test_bytes_that_are_not_text_are_a_format_error(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b'{"opName":"\xff"}')
    with pytest.raises(FormatError, match="byte 11 is not UTF-8"):
        read_topology(path)


def test_missing_file_is_a_format_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="No such file"):
        read_topology(tmp_path / "absent.json")


def test_file_beyond_the_size_limit_is_refused_unread(
    layer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atb_json, "MAX_FILE_BYTES", 100)
    with pytest.raises(FormatError, match="bytes are more than the 100"):
        read_topology(layer)


def test_graphs_nested_beyond_the_limit_are_refused(write_json: Write) -> None:
    def chain(depth: int) -> dict[str, Any]:
        node = leaf("A_0")
        for _ in range(depth):
            node = leaf("A_0", nodes=[node])
        return node

    assert max(d for _, d in read_topology(write_json(chain(200))).root.walk()) == 200
    with pytest.raises(FormatError, match="deeper than 200"):
        read_topology(write_json(chain(201)))


def test_hostile_nesting_does_not_exhaust_the_stack(write_json: Write) -> None:
    with pytest.raises(FormatError, match="nested too deeply"):
        read_topology(write_json('{"nodes":[' * 100_000))


def test_escaped_characters_are_read(write_json: Write) -> None:
    root = read_topology(write_json('{"opName":"\\u00e4\\ud83d\\ude00_0","opType":"A"}')).root
    assert root.name == "ä😀_0"


def test_words_that_are_no_json_numbers_are_read(write_json: Write) -> None:
    text = json.dumps(leaf("A_0", param={"scale": 0})).replace("0}", "NaN}")
    scale = read_topology(write_json(text)).root.param["scale"]
    assert scale != scale
