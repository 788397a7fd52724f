from __future__ import annotations

from pathlib import Path

import pytest

from ait_llm.core import DType
from ait_llm.errors import FormatError, UsageError
from ait_llm.topology import read_topology
from ait_llm.topology.shapes import TensorInfo, find_table, tensor_infos

HEADER = (
    "CaseNum|CaseName|OpName|OpParam|InNum|InDType|InFormat|InShape|OutNum|OutDType|OutFormat|"
    "OutShape|DataGenType|DataGenRange|InTensorFile|OutTensorFile|TestType|TestLevel|FromModel|"
    "SocVersion|ExpectedError\n"
)


def row(
    name: str, in_dtypes: str, in_shapes: str, out_dtypes: str, out_shapes: str, files: str = " "
) -> str:
    return (
        f"1|{name}1|{name}|{{}}|1|{in_dtypes}|nd|{in_shapes}|1|{out_dtypes}|nd|{out_shapes}|"
        f"customize| |{files}| | | | | |NO_ERROR\n"
    )


def table(path: Path, *rows: str) -> Path:
    path.write_text(HEADER + "".join(rows))
    return path


def test_the_lowest_numbered_execution_is_the_default(layer: Path) -> None:
    folder = layer.parents[2] / "operation_io_tensors" / "4242"
    for number in (2, 10):
        table(folder / f"operation_tensors_{number}.csv")
    found = find_table(layer, None)
    assert found is not None
    assert found.execution == 0
    (folder / "operation_tensors_0.csv").unlink()
    found = find_table(layer, None)
    assert found is not None
    assert found.execution == 2  # 2 before 10: numbers, not text


def test_an_execution_can_be_chosen_by_number(layer: Path) -> None:
    folder = layer.parents[2] / "operation_io_tensors" / "4242"
    table(folder / "operation_tensors_7.csv", row("A_0", "int8", "3", "bool", "1"))
    found = find_table(layer, 7)
    assert found is not None
    assert found.execution == 7
    assert list(found.rows) == ["A_0"]
    with pytest.raises(UsageError, match="no table of execution 3; executions: 0, 7"):
        find_table(layer, 3)


def test_a_table_can_be_chosen_by_its_file(layer: Path, tmp_path: Path) -> None:
    path = table(tmp_path / "mine.csv", row("A_0", "int8", "3", "bool", "1"))
    found = find_table(layer, path)
    assert found is not None
    assert found.execution is None
    assert found.rows["A_0"].outputs == (TensorInfo(DType.BOOL, "bool", (1,)),)


def test_a_run_without_tables_has_none(data: Path) -> None:
    assert find_table(data / "official" / "Decoder_layer_0.json", None) is None


def test_types_and_shapes_are_read_as_the_library_prints_them(tmp_path: Path) -> None:
    path = table(
        tmp_path / "t.csv",
        row("A_0", "float;bf16;bool", "2,3;;1", "made_up", "-1,2.5,99999999999999999999"),
    )
    found = find_table(path, path)
    assert found is not None
    assert found.rows["A_0"].inputs == (
        TensorInfo(DType.FLOAT32, "float", (2, 3)),
        TensorInfo(DType.BFLOAT16, "bf16", None),
        TensorInfo(DType.BOOL, "bool", (1,)),
    )
    assert found.rows["A_0"].outputs == (
        TensorInfo(None, "made_up", ("-1", "2.5", "99999999999999999999")),
    )


def test_an_operation_without_tensors_has_empty_fields(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", row("A_0", "", "", "", ""))
    found = find_table(path, path)
    assert found is not None
    assert found.rows["A_0"].inputs == found.rows["A_0"].outputs == ()


def test_port_names_come_from_the_names_of_the_tensor_files(tmp_path: Path) -> None:
    files = "/d/after/intensor0_x.bin;/d/after/intensor1_weight.bin"
    unnamed = "/d/after/intensor0.bin;/d/after/intensor1.bin"
    path = table(
        tmp_path / "t.csv",
        row("A_0", "int8;int8", "1;1", "int8", "1", files),
        row("B_1", "int8;int8", "1;1", "int8", "1", unnamed),
    )
    found = find_table(path, path)
    assert found is not None
    assert found.rows["A_0"].ports == ("x", "weight")
    assert found.rows["B_1"].ports == ()


def test_the_first_row_of_a_name_counts_and_a_cut_row_is_passed_over(tmp_path: Path) -> None:
    path = table(
        tmp_path / "t.csv",
        row("A_0", "int8", "1", "int8", "1"),
        row("A_0", "int8", "2", "int8", "2"),
        row("B_1", "int8", "1", "int8", "1")[:30],
    )
    found = find_table(path, path)
    assert found is not None
    assert list(found.rows) == ["A_0"]
    assert found.rows["A_0"].inputs[0].shape == (1,)


def test_a_file_that_is_no_table_is_a_format_error(layer: Path, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="21 columns"):
        find_table(layer, layer)
    with pytest.raises(FormatError, match="No such file"):
        find_table(layer, tmp_path / "absent.csv")


def test_a_table_that_changed_is_read_again(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv")
    first = find_table(path, path)
    table(path, row("A_0", "int8", "1", "int8", "1"))
    second = find_table(path, path)
    assert first is not None
    assert second is not None
    assert (len(first.rows), len(second.rows)) == (0, 1)


def test_users_that_disagree_about_a_tensor_are_all_kept(layer: Path) -> None:
    found = find_table(layer, None)
    assert found is not None
    infos = tensor_infos(read_topology(layer).root, found)
    assert infos["DecoderLayer_0_input_2"] == [TensorInfo(DType.FLOAT16, "float16", (64, 32))]
    assert len(infos["DecoderLayer_0_internal_0"]) == 1
    assert "DecoderLayer_0_input_3" not in infos


def test_a_side_with_another_number_of_tensors_says_nothing(layer: Path, tmp_path: Path) -> None:
    path = table(
        tmp_path / "t.csv",
        row("LinearOperation_0_0", "int8", "1", "int8", "5"),
        row("ElewiseOperation_0_3", "int8;int8", "1;1", "int8", "6"),
    )
    found = find_table(layer, path)
    assert found is not None
    infos = tensor_infos(read_topology(layer).root, found)
    assert "DecoderLayer_0_input_1" not in infos
    assert infos["DecoderLayer_0_internal_0"][0].shape == (5,)
    assert infos["DecoderLayer_0_input_0"][0].shape == (1,)
