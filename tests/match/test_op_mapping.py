"""The user's table of operator types."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from memory_runs import call, ones, operation, run

from ait_llm.dumps.model import Operation
from ait_llm.errors import FormatError
from ait_llm.match.choose import load_matcher
from ait_llm.match.model import Match, MatchOptions, Unmatched
from ait_llm.match.op_mapping import read_op_mapping
from ait_llm.match.saved_mapping import read_either
from ait_llm.match.views import apply
from ait_llm.program.one_pass import Pass


def _file(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "op_mapping_file.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_file_or_its_folder_is_read_and_values_may_be_texts_or_lists(tmp_path: Path) -> None:
    path = _file(tmp_path, {"RmsNormOperation": "RMSNorm", "Decoder_layer": ["A", "B_output_0"]})
    expected = {"RmsNormOperation": ("RMSNorm",), "Decoder_layer": ("A", "B_output_0")}
    assert read_op_mapping(path) == read_op_mapping(tmp_path) == expected
    assert read_either(tmp_path) == (expected, None)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is not JSON"),
        ([], "is not a JSON object of ATB types"),
        ({}, "maps nothing"),
        ({"A": 1}, "'A' has the value 1, not a torch type or a list of torch types"),
        ({"A": []}, "'A' has the value"),
        ({"A": ["B", "C/D"]}, "'A' has the value"),
        ({"A B": "C"}, "'A B' is not the name of an ATB type"),
        ('{"A": "B", "A": "C"}', "has the key 'A' twice"),
    ],
)
def test_what_is_no_such_table_is_refused_with_its_key(
    tmp_path: Path, content: object, reason: str
) -> None:
    with pytest.raises(FormatError, match=reason):
        read_op_mapping(_file(tmp_path, content))


def test_a_folder_without_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"holds no op_mapping_file\.json"):
        read_op_mapping(tmp_path)


def _runs() -> tuple[Pass, Pass]:
    """Two layers, each with a norm and a projection; ATB packs ``[batch, seq]`` to tokens."""
    modules: list[Operation] = []
    operations: list[Operation] = []
    for layer in range(2):
        x = np.arange(24, dtype=np.float16).reshape(2, 3, 4) + layer
        name = f"root.layers.{layer}"
        modules += [
            call(f"{name}.norm", "MyNorm", len(modules), None, {"output": x}),
            call(f"{name}.fc", "Linear", len(modules) + 1, None, {"output_0": x * 2}),
        ]
        flat = x.reshape(6, 4)
        operations += [
            operation("Dec_layer", (layer,), [flat], [flat * 2], is_graph=True),
            operation("NormOperation", (layer, 0), [flat], [flat]),
            operation("LinearOperation", (layer, 1), [flat, ones(4, 4)], [flat * 2]),
        ]
    return run("torch", modules), run("atb", operations)


def _found(table: dict[str, tuple[str, ...]], *runs: Pass) -> list[Match | Unmatched]:
    return list(load_matcher("op_mapping")(*runs, MatchOptions(op_mapping=table)))


def _pairs(found: list[Match | Unmatched]) -> list[tuple[str, str, str]]:
    return [
        (m.golden.record.op, m.mine.record.op, m.mine.record.name)
        for m in found
        if isinstance(m, Match)
    ]


@pytest.mark.parametrize("swapped", [False, True])
def test_operations_and_modules_of_the_types_pair_in_order(swapped: bool) -> None:
    runs = _runs()[::-1] if swapped else _runs()
    found = _found({"NormOperation": ("MyNorm",)}, *runs)
    assert len(found) == 2
    for layer, match in enumerate(found):
        assert isinstance(match, Match)
        ops = match.golden.record.op, match.mine.record.op
        expected = f"root.layers.{layer}.norm", f"NormOperation_{layer}_0"
        assert ops == (expected[::-1] if swapped else expected)
        golden = apply(match.golden.tensor.nd(), match.golden.views)
        mine = apply(match.mine.tensor.nd(), match.mine.views)
        np.testing.assert_array_equal(golden, mine)


def test_types_with_underscores_and_named_tensors(tmp_path: Path) -> None:
    found = _found({"Dec_layer_outtensor0": ("Linear_output_0",)}, *_runs())
    assert _pairs(found) == [
        ("root.layers.0.fc", "Dec_layer_0", "outtensor0"),
        ("root.layers.1.fc", "Dec_layer_1", "outtensor0"),
    ]


def test_of_several_torch_types_those_of_the_model_are_taken() -> None:
    found = _found({"LinearOperation": ("GLMLinear", "Linear")}, *_runs())
    assert [mine for _, mine, _ in _pairs(found)] == ["LinearOperation_0_1", "LinearOperation_1_1"]


def test_other_counts_pair_nothing_and_say_so() -> None:
    torch_run, atb_run = _runs()
    extra = call("root.layers.1.norm2", "MyNorm", 9, None, {"output": ones(2, 3, 4)})
    more = run("torch", [*torch_run.operations, extra])
    found = _found({"NormOperation": ("MyNorm",)}, more, atb_run)
    assert {each.reason for each in found if isinstance(each, Unmatched)} == {
        "the mapping file says nothing about their order: 2 NormOperation against 3 MyNorm"
    }


def test_a_bias_that_a_second_operation_adds_belongs_to_the_product() -> None:
    x = ones(3, 4)
    product = operation("LinearOperation", (0, 0), [x, ones(4, 4)], [x], params={"hasBias": False})
    added = {"elewiseType": 8}
    bias = operation("ElewiseOperation", (0, 1), [x, ones(4)], [x * 2], params=added)
    residual = operation("ElewiseOperation", (0, 1), [x, x], [x * 2], params=added)
    module = call("root.fc", "Linear", 0, None, {"output": x * 2})
    table = {"LinearOperation": ("Linear",)}
    for following, expected in ((bias, "ElewiseOperation_0_1"), (residual, "LinearOperation_0_0")):
        found = _found(table, run("torch", [module]), run("atb", [product, following]))
        assert [mine for _, mine, _ in _pairs(found)] == [expected]
