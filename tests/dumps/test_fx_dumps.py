"""FX dumps: the recorded one of torchair, and trees of all its versions."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.cli.main import ait
from ait_llm.core import DType
from ait_llm.dumps import FxDump, open_dump
from ait_llm.dumps.fx_place import FILE_NAME
from ait_llm.errors import FormatError
from tests.support.fx_dumps import TIME, unpack_sample, write_add, write_node

GM = "gm_20240102030405000000_dump"
LATER_GM = "gm_20240102030405000001_dump"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_sample(tmp_path_factory.mktemp("fx"))


def units(path: Path) -> list[tuple[int, int | None, int, int]]:
    """Rank, graph, step and folder number in the order of execution."""
    found = [
        (each.rank, each.graph, each.step, each.step + each.run.counted_from)
        for each in open_fx(path).operations()
    ]
    return list(dict.fromkeys(found))


def open_fx(path: Path) -> FxDump:
    dump = open_dump(path)
    assert isinstance(dump, FxDump)
    return dump


def test_the_recorded_dump_is_listed_in_the_order_of_execution(recorded: Path) -> None:
    operations = list(open_fx(recorded).operations())
    assert sum(len(each.tensors) + len(each.not_captured) for each in operations) == 2956
    times = [each.timestamp for each in operations]
    assert times == sorted(times)
    assert [each.name for each in operations[:4]] == ["embedding", "_to_copy", "pow_1", "mean"]
    assert [each.type for each in operations[:2]] == ["aten.embedding.default",
                                                      "aten._to_copy.default"]  # fmt: skip
    assert units(recorded) == [(0, 1, 0, 0), (0, 2, 0, 0), *((0, 3, n, n) for n in range(3))]


def test_recorded_values_have_the_types_and_numbers_of_their_files(recorded: Path) -> None:
    first = next(iter(open_fx(recorded).operations()))
    weights, ids = first.inputs
    (found,) = first.outputs
    assert (weights.dtype, weights.shape) == (DType.FLOAT16, (96, 32))
    assert ids.dtype is DType.INT64
    np.testing.assert_array_equal(found.numpy(), weights.numpy()[ids.numpy()])
    payload = found.payload()
    assert payload is not None
    assert Path(payload.path).read_bytes()[payload.offset :] == found.numpy().tobytes()


def test_elements_of_a_list_are_arguments_of_their_own(recorded: Path) -> None:
    cat = next(each for each in open_fx(recorded).operations() if each.type.startswith("aten.cat"))
    assert [each.name for each in cat.inputs] == ["intensor0.0", "intensor0.1", "intensor1"]
    assert [each.index for each in cat.inputs] == [0, 1, 2]
    axis = int(cat.inputs[2].numpy())
    joined = np.concatenate([each.numpy() for each in cat.inputs[:2]], axis)
    np.testing.assert_array_equal(joined, cat.outputs[0].numpy())


@pytest.mark.parametrize(
    ("part", "graphs"),
    [
        ("", {1, 2, 3}),
        ("worldsize1_global_rank0", {1, 2, 3}),
        ("worldsize1_global_rank0/graph_3", {3}),
        ("worldsize1_global_rank0/graph_3/1", {3}),
    ],
)
def test_any_folder_of_the_tree_can_be_given(recorded: Path, part: str, graphs: set[int]) -> None:
    dump = open_fx(recorded / part)
    assert dump.root == recorded
    assert {each.graph for each in dump.operations()} == graphs
    assert dump.steps == ((1,) if part.endswith("/1") else (0, 1, 2))


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ([f"{GM}/1", f"{GM}/2", f"{LATER_GM}/1"], [(0, 1, 0, 1), (0, 1, 1, 2), (0, 2, 0, 1)]),
        ([f"data_dump/1/{GM}", f"data_dump/10/{GM}", f"data_dump/1/{LATER_GM}"],
         [(0, 1, 0, 1), (0, 1, 9, 10), (0, 2, 0, 1)]),
        (["graph_2/0", "graph_10/0"], [(0, 2, 0, 0), (0, 10, 0, 0)]),
        (["worldsize2_global_rank0/graph_1/0", "worldsize2_global_rank1/graph_1/3"],
         [(0, 1, 0, 0), (1, 1, 3, 3)]),
    ],
)  # fmt: skip
def test_trees_of_all_versions_are_read(
    tmp_path: Path, tree: list[str], expected: list[tuple[int, int, int, int]]
) -> None:
    for number, folder in enumerate(tree):
        write_add(tmp_path / folder, time=TIME + number)
    assert units(tmp_path) == expected
    for folder, unit in zip(tree, expected, strict=True):
        assert units(tmp_path / folder) == [unit]


def test_a_folder_of_files_in_no_tree_is_one_execution(tmp_path: Path) -> None:
    write_add(tmp_path / "copied")
    assert units(tmp_path / "copied") == [(0, None, 0, 0)]


def test_a_number_as_folder_name_above_the_dump_is_no_step(tmp_path: Path) -> None:
    write_add(tmp_path / "7" / "graph_1" / "0")
    assert open_fx(tmp_path / "7").root == tmp_path / "7"
    assert units(tmp_path / "7" / "graph_1" / "0") == [(0, 1, 0, 0)]


def test_arguments_are_ordered_by_number(tmp_path: Path) -> None:
    values = {str(place): np.full(2, place, dtype=np.int64) for place in range(12)}
    write_node(tmp_path / "graph_1" / "0", "many", "aten.many.default", values, {"0": values["0"]})
    (operation,) = open_fx(tmp_path).operations()
    assert [each.index for each in operation.inputs] == list(range(12))
    assert [int(each.numpy()[0]) for each in operation.inputs] == list(range(12))


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.path,)  # type: ignore[return-value]


def test_objects_are_listed_with_a_reason_and_never_unpickled(tmp_path: Path) -> None:
    folder = tmp_path / "graph_1" / "0"
    array = np.ones(2, dtype=np.float32)
    write_node(folder, "_to_copy", "aten._to_copy.default", {"0": array}, {"0": array})
    trap = np.empty((), dtype=object)
    trap[()] = Trap(tmp_path / "executed")
    np.save(folder / f"_to_copy-aten._to_copy.default.INPUT.1.{TIME}.npy", trap, allow_pickle=True)
    write_node(folder, "_to_copy", "aten._to_copy.default", {"2": "text"}, {"1": np.ones((0, 3))})
    (operation,) = open_fx(tmp_path).operations()
    assert [each.stem for each in operation.tensors] == ["INPUT.0", "OUTPUT.0"]
    reasons = {each["name"]: each["reason"] for each in operation.not_captured}
    assert set(reasons) == {"INPUT.1", "INPUT.2", "OUTPUT.1"}
    assert reasons["OUTPUT.1"] == "has no elements: [0,3]"
    lines = CliRunner().invoke(ait, ["llm", "show", str(tmp_path), "--tensors"]).stdout
    assert "INPUT.1" in lines
    assert "is no tensor but another object" in lines
    assert not (tmp_path / "executed").exists()


def test_a_node_that_ran_twice_is_two_operations(tmp_path: Path) -> None:
    write_add(tmp_path / "graph_1" / "0", time=TIME)
    write_add(tmp_path / "graph_1" / "0", time=TIME + 1)
    assert [each.call for each in open_fx(tmp_path).operations()] == [0, 1]


def test_types_of_the_graph_replace_those_that_were_widened(tmp_path: Path) -> None:
    folder = tmp_path / "graph_1" / "0"
    values = np.asarray([1.5, -2.0, np.nan, np.inf], dtype=np.float32)
    write_node(folder, "cat", "aten.cat.default", {"0.0": values, "0.1": values}, {"0": values})
    write_node(folder, "exp", "aten.exp.default", {"0": values}, {"0": values}, TIME + 1)
    bf16, fp32 = {"dtype": "bfloat16", "shape": [4]}, {"dtype": "float32", "shape": [4]}
    graph = {
        "nodes": [
            {"name": "x", "outputs": [bf16]},
            {"name": "y", "outputs": [fp32]},
            {"name": "cat", "args": [[{"node": "x"}, {"node": "y"}]], "outputs": [bf16]},
            {"name": "exp", "args": [{"node": "cat"}], "outputs": [fp32]},
        ]
    }
    (tmp_path / "graph_1" / "graph.json").write_text(json.dumps(graph))
    cat, exp = open_fx(tmp_path).operations()
    types = [each.dtype for each in (*cat.tensors, *exp.tensors)]
    assert types == [DType.BFLOAT16, DType.FLOAT32, DType.BFLOAT16, DType.BFLOAT16, DType.FLOAT32]
    assert cat.tensors[0].numpy().dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(cat.tensors[0].numpy().astype(np.float32), values)
    assert cat.tensors[0].payload() is None  # its bytes are of another type
    assert exp.tensors[1].payload() is not None


@pytest.mark.parametrize("text", ["", "[]", '{"nodes": 3}', '{"nodes": [{"op": "x"}]}', "[" * 9999])
def test_a_damaged_graph_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    write_add(tmp_path / "graph_1" / "0")
    (tmp_path / "graph_1" / "graph.json").write_text(text)
    with pytest.raises(FormatError, match="is not the description of a graph"):
        list(open_fx(tmp_path).operations())


def test_folders_beside_the_one_that_was_given_are_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_add(tmp_path / "graph_1" / "0")
    write_add(tmp_path / "graph_1" / "1", time=TIME + 1)
    listed: list[Path] = []
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(Path(path)) or real(path))
    assert units(tmp_path / "graph_1" / "1") == [(0, 1, 1, 1)]
    assert set(listed) == {tmp_path / "graph_1" / "1"}


@pytest.mark.parametrize("header", ['"pid":[1]', '"pid":"x","options":{"rank":[]}', '"options":7'])
def test_strange_ledgers_do_not_hide_the_nodes(tmp_path: Path, header: str) -> None:
    write_add(tmp_path / "ait_dump" / "fx_tensors" / "graph_1" / "0")
    ledger = tmp_path / "ait_dump" / "ledger" / "fx_1.jsonl"
    ledger.parent.mkdir()
    ledger.write_text(f'{{"kind":"header","schema":1,"producer":"fx",{header}}}\n')
    dump = open_fx(tmp_path)
    assert [each.name for each in dump.operations()] == ["add"]
    assert [process.state for process in dump.processes] == ["unfinished"]


def test_a_link_out_of_the_dump_is_not_followed(tmp_path: Path) -> None:
    write_add(tmp_path / "dump" / "graph_1" / "0")
    target = next((tmp_path / "dump" / "graph_1" / "0").glob("*OUTPUT*"))
    shutil.move(target, tmp_path / "secret.npy")
    target.symlink_to(tmp_path / "secret.npy")
    (operation,) = open_fx(tmp_path / "dump").operations()
    with pytest.raises(FormatError, match="lies outside of"):
        operation.outputs[0].numpy()


@given(
    node=st.from_regex(r"[A-Za-z_][A-Za-z_0-9]{0,20}", fullmatch=True),
    target=st.text(st.characters(blacklist_characters="/\n\x00"), min_size=1, max_size=40),
    argument=st.integers(0, 999),
    element=st.none() | st.integers(0, 999),
    time=st.integers(10**19, 10**20 - 1),
)
def test_file_names_give_back_what_they_were_made_of(
    node: str, target: str, argument: int, element: int | None, time: int
) -> None:
    place = str(argument) if element is None else f"{argument}.{element}"
    match = FILE_NAME.fullmatch(f"{node}-{target}.INPUT.{place}.{time}.npy")
    assert match is not None
    assert match[1] == node
    if "INPUT." not in target:
        found = match[2], int(match[4]), None if match[5] is None else int(match[5]), match[6]
        assert found == (target, argument, element, str(time))
