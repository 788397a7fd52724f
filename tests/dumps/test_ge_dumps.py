"""Dumps of the graph engine: trees, names, tables, and what is wrong with them."""

import json
import shutil
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from ge_dump_files import FLOAT, FLOAT16, FRACTAL_NZ, Stored, file_bytes, nz, of, write_file

from ait_llm.cli.main import ait
from ait_llm.compare.values import open_values
from ait_llm.core import DType, OpId
from ait_llm.dumps import GeDump, open_dump
from ait_llm.dumps.describe import describe
from ait_llm.dumps.ge_names import OVERFLOW_TYPE, GeName, escape, parse_name
from ait_llm.errors import FormatError

_DATA = Path(__file__).parents[1] / "data" / "ge_dump"
_TIME = 1732533825000000
_TREE = "20241125192345/0/graph_1_0/1/0"
_HEADING = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,"
    "Nan Count,Negative Inf Count,Positive Inf Count"
)


def _op(folder: Path, name: str, value: float = 1.0, **fields: object) -> Path:
    values = np.float32([value])
    return write_file(folder / name, [of(values, FLOAT)], [of(-values, FLOAT)], **fields)


def _name(op: str, moment: int, kind: str = "Add") -> str:
    return f"{kind}.{op}.3.7.{_TIME + moment}"


def _open(path: Path) -> GeDump:
    dump = open_dump(path)
    assert isinstance(dump, GeDump)
    return dump


def _names(dump: GeDump, **wanted: int) -> list[str]:
    return [operation.name for operation in dump.operations(**wanted)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    for name in ("ge_run_fused", "ge_run_fusion_off"):
        with tarfile.open(_DATA / f"{name}.tar.xz") as archive:
            archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize(
    ("name", "operations", "tensors"),
    [("ge_run_fused", 639, 1883), ("ge_run_fusion_off", 759, 2123)],
)
def test_recorded_run_is_listed_whole(
    recorded: Path, name: str, operations: int, tensors: int
) -> None:
    truth = json.loads((recorded / name / "truth.json").read_text())["files"]
    dump = _open(recorded / name)
    found = list(dump.operations())
    assert [(f"graph_{op.graph}", op.step, op.path.name) for op in found] == [
        (one["graph"], one["step"], one["file"]) for one in truth
    ]
    assert (len(found), sum(len(op.tensors) for op in found)) == (operations, tensors)
    for op, one in zip(found, truth, strict=True):
        assert len(op.inputs) == len(one["inputs"])
        assert len(op.outputs) == len(one["output_fx"])
        assert all(tensor.problem is None for tensor in op.tensors)
        for tensor in op.tensors:
            assert tensor.nd().shape == tensor.shape
    assert [process.problem for process in dump.processes] == [None]
    assert dump.steps == (0, 1, 2)


def test_recorded_fused_operator(recorded: Path) -> None:
    dump = _open(recorded / "ge_run_fused")
    fused = next(op for op in dump.operations(step=0) if op.name == "MulCast_1")
    assert fused.type == "AutomaticBufferFusionOp"
    assert (fused.rank, fused.device, fused.pid, fused.graph) == (0, 0, 0, 1)
    assert (fused.model_name, fused.model_id, fused.step) == ("graph_1_0", 1, 0)
    assert fused.timestamp == 1732533825012131
    assert fused.outputs[0].original_op == ("Cast_1", 0)
    assert fused.inputs[0].original_op is None
    assert [tensor.phase for tensor in fused.tensors] == ["before", "before", "after"]
    first, *_ = fused.inputs
    cast = next(op for op in dump.operations(step=0) if op.name == "Cast")
    np.testing.assert_array_equal(first.nd(), cast.outputs[0].nd())


def test_recorded_graph_texts(recorded: Path) -> None:
    files = _open(recorded / "ge_run_fused").graph_files
    kinds = [path.name.split("_rank")[0] for path in files]
    assert kinds == [
        f"dynamo_{kind}_graph_{n}" for kind in ("original", "optimized") for n in (1, 2, 3)
    ]
    inner = _open(recorded / "ge_run_fused/worldsize1_global_rank0/20241125192345/0/graph_2_1")
    assert inner.graph_files == files


@pytest.mark.parametrize("rank", ["", "worldsize1_global_rank0"])
def test_every_level_of_the_tree_is_recognised(tmp_path: Path, rank: str) -> None:
    base = tmp_path / "out" / "msit_ge_dump"
    time = base / rank / "20241125192345"
    for number in (1, 2):
        for step in (0, 2, 10):
            folder = time / "0" / f"graph_{number}_0" / str(number) / str(step)
            _op(folder, _name(f"op_{number}_{step}", step))
    _op(time / "3" / "graph_1_0" / "1" / "2", _name("other_device", 2))
    (base / "dynamo_original_graph_1_rank_0_pid_7_ts_20241125192340000001.txt").write_text("")
    everything = ["op_1_0", "op_2_0", "op_1_2", "op_2_2", "op_1_10", "op_2_10"]
    cases = {
        tmp_path / "out": [*everything, "other_device"],
        base: [*everything, "other_device"],
        time: [*everything, "other_device"],
        time / "3": ["other_device"],
        time / "0": everything,
        time / "0" / "graph_2_0": ["op_2_0", "op_2_2", "op_2_10"],
        time / "0" / "graph_2_0" / "2": ["op_2_0", "op_2_2", "op_2_10"],
        time / "0" / "graph_2_0" / "2" / "10": ["op_2_10"],
    }
    if rank:
        cases[base / rank] = [*everything, "other_device"]
    for path, expected in cases.items():
        dump = _open(path)
        assert _names(dump) == expected, path
        assert len(dump.graph_files) == 1
        assert dump.root in (base, tmp_path / "out")
        assert {op.graph for op in dump.operations()} <= {1, 2}
        assert {op.rank for op in dump.operations()} == {0 if rank else -1}
    assert _open(base).steps == (0, 2, 10)
    assert _names(_open(base), step=2) == ["op_1_2", "op_2_2", "other_device"]
    assert _names(_open(base), device=3) == ["other_device"]


def test_ranks_and_devices_are_processes(tmp_path: Path) -> None:
    for rank in (0, 1, 10, 2):
        folder = tmp_path / f"worldsize16_global_rank{rank}" / f"2024112519234{rank % 10}"
        _op(folder / str(rank % 8) / "graph_1" / "1" / "0", _name(f"rank_{rank}", 0))
    dump = _open(tmp_path)
    found = [(process.device, process.pid) for process in dump.processes]
    assert found == [(0, 0), (1, 1), (2, 2), (2, 10)]
    assert _names(dump, pid=10) == ["rank_10"]
    assert [process.state for process in dump.processes] == ["unknown"] * 4
    only = _open(tmp_path / "worldsize16_global_rank10")
    assert [op.rank for op in only.operations()] == [10]


def test_runs_into_the_same_folder_are_kept_apart(tmp_path: Path) -> None:
    for time in ("20241125192345", "20241125203000"):
        _op(tmp_path / time / "0" / "graph_1" / "1" / "0", _name(f"at_{time}", 0))
    dump = _open(tmp_path)
    assert [process.pid for process in dump.processes] == [20241125192345, 20241125203000]
    assert _names(dump, pid=20241125203000) == ["at_20241125203000"]


def test_same_operator_twice_is_kept_in_execution_order(tmp_path: Path) -> None:
    folder = tmp_path / _TREE
    for moment, value in ((30, 3.0), (10, 1.0), (20, 2.0)):
        _op(folder, _name("loop", moment), value)
    _op(folder, _name("first", 5))
    dump = _open(tmp_path)
    found = list(dump.operations())
    assert [op.name for op in found] == ["first", "loop", "loop", "loop"]
    assert [op.inputs[0].nd()[0] for op in found[1:]] == [1.0, 2.0, 3.0]
    assert [op.op_id for op in found] == [OpId((index,)) for index in range(4)]


def test_models_of_a_process_interleave_by_time(tmp_path: Path) -> None:
    for model, moments in (("graph_2_0", (10, 30)), ("graph_1_0", (20, 40))):
        for moment in moments:
            folder = tmp_path / "20241125192345" / "0" / model / "1" / "0"
            _op(folder, _name(f"{model}_{moment}", moment))
    moments = [op.timestamp - _TIME for op in _open(tmp_path).operations()]
    assert moments == [10, 20, 30, 40]


def test_listing_opens_no_dump_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _op(tmp_path / _TREE, _name("op", 0))

    def refuse(*_: object) -> None:
        raise AssertionError("a dump file was opened")

    monkeypatch.setattr("ait_llm.dumps.ge_records.read_ge", refuse)
    dump = _open(tmp_path)
    assert [process.problem for process in dump.processes] == [None]
    assert [(op.name, op.type, op.timestamp) for op in dump.operations()] == [("op", "Add", _TIME)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Add.Add_2.3.7.1732533825146000", GeName("Add", "Add_2", 3, 7, 1732533825146000)),
        (
            "Relu.Relu_3.18.7.1732533840146000.4.12.1.0",
            GeName("Relu", "Relu_3", 18, 7, 1732533840146000, thread=1, context=12),
        ),
        ("Conv2D.a.b.3.7.17", GeName("Conv2D", "a.b", 3, 7, 17)),
        ("Add.Add_2.3.7.x", None),
        ("Add.Add_2.3.7.17.npy", None),
        ("12345678901234567890", None),
        (".a.1.2.3", None),
        ("readme.txt", None),
    ],
)
def test_file_names(text: str, expected: GeName | None) -> None:
    assert parse_name(text) == expected


def test_name_with_slashes_and_dots(tmp_path: Path) -> None:
    full = "layers.0/attn/qkv proj\\x"
    _op(tmp_path / _TREE, _name(escape(full), 0), op_name=full)
    operation = next(_open(tmp_path).operations())
    assert operation.name == "layers_0_attn_qkv_proj_x"
    assert operation.full_name == full


def test_ffts_plus_slices_are_all_listed(tmp_path: Path) -> None:
    for thread in (1, 0):
        _op(tmp_path / _TREE, f"Relu.Relu_3.18.7.{_TIME}.4.12.{thread}.0", float(thread))
    found = list(_open(tmp_path).operations())
    threads = [(op.name, op.path.name.split(".")[7]) for op in found]
    assert threads == [("Relu_3", "0"), ("Relu_3", "1")]


def test_hashed_names_are_found_in_the_mapping(tmp_path: Path) -> None:
    folder = tmp_path / _TREE
    long = "x" * 300
    _op(folder, "12345678901234567", 5.0)
    _op(folder, "999", 6.0)
    (folder / "mapping.csv").write_text(
        f"12345678901234567,{_name(long, 1, 'MulAdd')}\n999,{_name('y' * 260, 2)}\n"
    )
    dump = _open(tmp_path)
    assert [(op.type, op.name) for op in dump.operations()] == [
        ("MulAdd", long),
        ("Add", "y" * 260),
    ]
    assert [op.inputs[0].nd()[0] for op in dump.operations()] == [5.0, 6.0]
    assert dump.processes[0].problem is None
    assert _names(_open(folder)) == [long, "y" * 260]


def test_hashed_name_that_is_not_mapped_comes_from_the_header(tmp_path: Path) -> None:
    folder = tmp_path / _TREE
    _op(folder, "777", op_name="layer/long", time=_TIME + 3)
    _op(folder, _name("before", 1))
    (folder / "888").write_bytes(b"garbage that is no header")
    dump = _open(tmp_path)
    found = [(op.type, op.name) for op in dump.operations()]
    assert found == [("Add", "before"), ("unknown", "layer_long")]
    losses = dump.processes[0].losses
    assert [loss.op for loss in losses] == ["888"]
    assert losses[0].reason.startswith("is not in mapping.csv, and ")


def test_mapping_names_a_file_that_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / _TREE
    _op(folder, _name("op", 1))
    (folder / "mapping.csv").write_text(f"55,{_name('gone', 2)}\n")
    losses = _open(tmp_path).processes[0].losses
    assert [(loss.op, loss.reason) for loss in losses] == [
        ("55", "is listed in mapping.csv and not there")
    ]


def test_damaged_mapping_is_a_loss(tmp_path: Path) -> None:
    folder = tmp_path / _TREE
    _op(folder, _name("op", 1))
    (folder / "mapping.csv").write_text("1,a\nno comma here\n")
    dump = _open(tmp_path)
    assert _names(dump) == ["op"]
    assert [loss.op for loss in dump.processes[0].losses] == ["mapping.csv"]


def test_strange_files_are_losses_and_converted_ones_are_not(tmp_path: Path) -> None:
    folder = tmp_path / _TREE
    path = _op(folder, _name("op", 1))
    (folder / f"{path.name}.input.0.npy").touch()
    (folder / "notes.txt").touch()
    dump = _open(tmp_path)
    assert [(loss.op, loss.step) for loss in dump.processes[0].losses] == [("notes.txt", 0)]
    assert dump.processes[0].problem == (
        "process 0 on device 0: lost tensors of 1 operation; "
        "notes.txt: its name is not that of a dump file"
    )


def test_statistics_in_place_of_values(tmp_path: Path) -> None:
    folder = tmp_path / _TREE
    folder.mkdir(parents=True)
    # The first two rows are from the tests of the writer, the third is what it leaves of strings.
    (folder / f"{_name('op', 1)}.csv").write_text(
        f"{_HEADING}\n"
        "Output,0,640000,DT_FLOAT,NHWC,4x50x50x16,1.99999,1,1.50004,160000,3,1,2\n"
        "Input,0,268435456,DT_INT64,ND,100x20x40,100,-200,10.1,80000,0,0,0\n"
        "Input,1,16,DT_STRING,ND,1,,,,,,,\n"
    )
    operation = next(_open(tmp_path).operations())
    assert (operation.name, operation.type) == ("op", "Add")
    first, second, out = operation.tensors
    assert (first.role, first.index, first.dtype) == ("in", 0, DType.INT64)
    assert first.shape == (100, 20, 40)
    assert first.statistics is not None
    assert (first.statistics.max, first.statistics.min) == (100.0, -200.0)
    assert second.statistics is not None
    assert second.statistics.max is None
    assert (out.format, out.shape, out.has_data) == (1, (4, 50, 50, 16), False)
    assert out.statistics is not None
    assert (out.statistics.nan, out.statistics.inf) == (3, 3)
    assert out.problem == "only its statistics were saved"
    with pytest.raises(FormatError, match="holds only statistics"):
        out.nd()
    assert out.payload() is None


def test_statistics_beside_values(tmp_path: Path) -> None:
    folder = tmp_path / _TREE
    path = _op(folder, _name("op", 1), 4.0)
    path.with_name(path.name + ".csv").write_text(
        f"{_HEADING}\nOutput,0,4,DT_FLOAT,ND,1,-4,-4,-4,1,0,0,0\n"
    )
    (operation,) = _open(tmp_path).operations()
    assert operation.outputs[0].nd().tolist() == [-4.0]
    assert operation.outputs[0].statistics is not None
    assert operation.outputs[0].statistics.l2norm is None  # recorded, not computed
    assert operation.inputs[0].statistics is not None
    assert operation.inputs[0].statistics.l2norm == 4.0


def test_damaged_table_is_an_output_that_says_why(tmp_path: Path) -> None:
    folder = tmp_path / _TREE
    folder.mkdir(parents=True)
    (folder / f"{_name('op', 1)}.csv").write_text(f"{_HEADING}\nOutput,zero\n")
    (operation,) = _open(tmp_path).operations()
    assert operation.tensors[0].problem == "line 2 is damaged"


def test_overflow_report_is_marked(tmp_path: Path) -> None:
    _op(tmp_path / _TREE, f"Opdebug.Node_OpDebug.1.2.{_TIME}")
    (operation,) = _open(tmp_path).operations()
    assert operation.type == OVERFLOW_TYPE


def test_file_that_cannot_be_read_is_listed_with_its_reason(tmp_path: Path) -> None:
    folder = tmp_path / _TREE
    (_op(folder, _name("whole", 1))).chmod(0o640)
    data = file_bytes([of(np.float32([1]), FLOAT)], [of(np.float32([2]), FLOAT)])
    (folder / _name("no_header", 2)).write_bytes(data[:30])
    (folder / _name("short", 3)).write_bytes(data[:-2])
    (folder / _name("empty", 4)).touch()
    rows = [row for row in describe(_open(tmp_path), tensors=True) if row.tensor]
    assert [(row.tensor, row.note[:12]) for row in rows] == [
        ("before/intensor0", ""),
        ("after/outtensor0", ""),
        ("after/outtensor0", "header of 50"),
        ("before/intensor0", ""),
        ("after/outtensor0", "is cut off: "),
        ("after/outtensor0", "is cut off, "),
    ]
    operations = {op.name: op for op in _open(tmp_path).operations()}
    assert operations["short"].outputs[0].problem == "is cut off: 2 of its 4 bytes are in the file"
    assert operations["short"].inputs[0].nd().tolist() == [1.0]
    assert operations["no_header"].tensors[0].problem is not None
    with pytest.raises(FormatError, match="header of"):
        operations["no_header"].tensors[0].nd()


def test_link_out_of_the_dump_is_refused(tmp_path: Path) -> None:
    outside = _op(tmp_path / "elsewhere", _name("secret", 0))
    folder = tmp_path / "dump" / _TREE
    _op(folder, _name("op", 1))
    (folder / _name("link", 2)).symlink_to(outside)
    operations = {op.name: op for op in _open(tmp_path / "dump").operations()}
    assert "outside" in (operations["link"].tensors[0].problem or "")


def test_private_layout_in_logical_dims(tmp_path: Path) -> None:
    matrix = np.arange(100, dtype=np.float16).reshape(5, 20)
    stored = nz(matrix, 16)
    tensor = Stored(stored.tobytes(), FLOAT16, stored.shape, FRACTAL_NZ, matrix.shape)
    write_file(tmp_path / _TREE / _name("op", 1), [tensor], [])
    (operation,) = _open(tmp_path).operations()
    (found,) = operation.inputs
    assert (found.shape, found.numpy().shape, found.format) == (
        (5, 20),
        (2, 1, 16, 16),
        FRACTAL_NZ,
    )
    np.testing.assert_array_equal(found.nd(), matrix)
    np.testing.assert_array_equal(found.numpy(), stored)
    np.testing.assert_array_equal(found.torch().numpy(), matrix)
    with open_values(found) as opened:
        np.testing.assert_array_equal(opened.array, matrix)


def test_files_copied_out_of_their_tree(tmp_path: Path) -> None:
    folder = tmp_path / "copied"
    shutil.copytree(_DATA / "samples", folder)
    dump = _open(folder)
    found = list(dump.operations())
    assert Counter(op.type for op in found)["Add"] == 1
    assert len(found) == 9
    assert (found[0].device, found[0].rank, found[0].graph, found[0].step) == (-1, -1, None, 0)


def test_time_folders_of_the_user_do_not_mislead(tmp_path: Path) -> None:
    # Somebody sorts runs by time and rank; one of them is a dump, the other holds something else.
    base = tmp_path / "20250101000000"
    _op(base / "run" / _TREE, _name("op", 1))
    other = base / "0" / "ait_dump" / "tensors" / "0_4242" / "0"
    other.mkdir(parents=True)
    assert _names(_open(base / "run")) == ["op"]
    assert open_dump(base / "0").kind == "atb"


def test_graphs_of_other_runs_are_left_alone(tmp_path: Path) -> None:
    own, other = (
        f"dynamo_original_graph_1_rank_0_pid_{pid}_ts_20241125192340000001.txt" for pid in (7, 8)
    )
    _op(tmp_path / _TREE, _name("op", 1))
    (tmp_path / own).touch()
    (tmp_path / "other_run").mkdir()
    (tmp_path / "other_run" / other).touch()
    assert [path.name for path in _open(tmp_path / "20241125192345").graph_files] == [own]
    assert {path.name for path in _open(tmp_path).graph_files} == {own, other}


@pytest.mark.parametrize(
    "entries",
    [["20241125192345/notes/a.txt"], ["a/b.npy"], ["1/2/3/x.bin"], ["mapping.csv"], []],
    ids=str,
)
def test_other_folders_are_no_dump(tmp_path: Path, entries: list[str]) -> None:
    for entry in entries:
        (tmp_path / entry).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / entry).touch()
    with pytest.raises(FormatError, match="is not a dump"):
        open_dump(tmp_path)


def test_graphs_without_data_are_explained(tmp_path: Path) -> None:
    (tmp_path / "dynamo_original_graph_1_rank_0_pid_7_ts_20241125192340000001.txt").touch()
    with pytest.raises(FormatError, match=r"holds graphs .* and no dump.*enable_dump"):
        open_dump(tmp_path)


def test_show_lists_operators_and_tensors(recorded: Path) -> None:
    result = CliRunner().invoke(ait, ["llm", "show", str(recorded / "ge_run_fused"), "--tensors"])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].endswith("ge_run_fused: dump of kind ge")
    assert lines[1].startswith("process 0_0: tokens 0-2")
    assert any(line.endswith("MulCast_1  AutomaticBufferFusionOp  (graph_1_0)") for line in lines)
    assert any("intensor1" in line and "fractal_nz" in line for line in lines)
