"""Operation and kernel tables."""

from pathlib import Path

import pytest
from dump_builder import DumpBuilder

from ait_llm import open_dump
from ait_llm.core import DType, OpId
from ait_llm.dumps import read_io_table
from ait_llm.dumps.io_table import COLUMNS
from ait_llm.errors import FormatError

HEADER = (
    "CaseNum|CaseName|OpName|OpParam|InNum|InDType|InFormat|InShape|OutNum|OutDType|OutFormat|"
    "OutShape|DataGenType|DataGenRange|InTensorFile|OutTensorFile|TestType|TestLevel|FromModel|"
    "SocVersion|ExpectedError\n"
)
ROW = (
    '1|ElewiseOperation_0_21|ElewiseOperation_0_2|{"elewiseType":8,"mulsParam":{"varAttr":0.0}}|2|'
    "float16;bf16|nd;fractal_nz|2,2;4|1|float16|nd|2,2|customize;customize| |"
    "/d/intensor0.bin;/d/intensor1.bin|/d/outtensor0.bin| | | | |NO_ERROR\n"
)


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(lines))
    return path


def test_row_of_the_contract(tmp_path: Path) -> None:
    (row,) = read_io_table(write(tmp_path / "t.csv", HEADER, ROW))
    assert (row.line, row.name, row.type) == (2, "ElewiseOperation_0_2", "ElewiseOperation")
    assert row.op_id == OpId((0, 2))
    assert row.params == {"elewiseType": 8, "mulsParam": {"varAttr": 0.0}}
    first, second = row.inputs
    assert (first.dtype, first.format, first.shape) == (DType.FLOAT16, 2, (2, 2))
    assert (second.dtype, second.format, second.shape) == (DType.BFLOAT16, 29, (4,))
    assert second.file == "/d/intensor1.bin"
    assert [each.file for each in row.outputs] == ["/d/outtensor0.bin"]


def fields(**changes: str) -> str:
    row = dict(zip(COLUMNS, ROW.rstrip("\n").split("|"), strict=True)) | changes
    return "|".join(row.values()) + "\n"


def test_kernel_has_no_ids(tmp_path: Path) -> None:
    content = fields(OpName="MatMulOperation", OpParam="N6AsdOps5ParamE can not be printed")
    (row,) = read_io_table(write(tmp_path / "t.csv", HEADER, content))
    assert (row.type, row.op_id, row.params) == ("MatMulOperation", None, {})


def test_operation_without_outputs_or_inputs_has_empty_fields(tmp_path: Path) -> None:
    content = fields(OutNum="0", OutDType="", OutFormat="", OutShape="", OutTensorFile="")
    empty = fields(InNum="0", InDType="", InFormat="", InShape="", InTensorFile="", DataGenType="")
    first, second = read_io_table(write(tmp_path / "t.csv", HEADER, content, empty))
    assert first.outputs == ()
    assert len(first.inputs) == 2
    assert second.inputs == ()


def test_older_names_and_blank_files(tmp_path: Path) -> None:
    content = fields(
        InDType="ACL_FLOAT16;undefined",
        InFormat="ACL_FORMAT_ND;undefined",
        InShape="2,2;",
        InTensorFile=" ",
    )
    (row,) = read_io_table(write(tmp_path / "t.csv", HEADER, content))
    assert [each.dtype for each in row.inputs] == [DType.FLOAT16, DType.UNDEFINED]
    assert [each.shape for each in row.inputs] == [(2, 2), ()]
    assert [each.file for each in row.inputs] == [None, None]


def test_type_names_may_contain_underscores(tmp_path: Path) -> None:
    (row,) = read_io_table(write(tmp_path / "t.csv", HEADER, fields(OpName="My_Plugin_3_1")))
    assert (row.type, row.op_id) == ("My_Plugin", OpId((3, 1)))


def test_last_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    rows = list(read_io_table(write(tmp_path / "t.csv", HEADER, ROW, ROW[:40])))
    assert len(rows) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a|b\n", "is not an operation table"),
        (HEADER + "1|2\n", "line 2 has 2 columns, not 21"),
        (HEADER + fields(InNum="x"), "line 2 has no number in InNum"),
        (HEADER + fields(InNum="3"), "line 2 has 2 entries in InDType, not 3"),
        (HEADER + fields(InDType="float16;float17"), "line 2: unknown dtype name 'float17'"),
        (HEADER + fields(OutFormat="xyz"), "line 2: unknown format name 'xyz'"),
        (HEADER + fields(OutShape="2x2"), "line 2: shape '2x2' is not numbers"),
    ],
)
def test_damage_is_told_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        list(read_io_table(write(tmp_path / "t.csv", content)))


def test_tables_of_a_dump(builder: DumpBuilder) -> None:
    for pid, step in ((4242, 10), (4242, 2), (7, 0)):
        folder = builder.root / "operation_io_tensors" / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / f"operation_tensors_{step}.csv", HEADER, ROW)
    builder.operation("0_LinearOperation", step=2)
    tables = open_dump(builder.root).io_tables()
    assert [(each.pid, each.step) for each in tables] == [(7, 0), (4242, 2), (4242, 10)]
    assert [row.type for row in tables[0].rows()] == ["ElewiseOperation"]
    assert open_dump(builder.root).io_tables("kernel") == []
    (only,) = open_dump(builder.root / "tensors/0_4242/2").io_tables()
    assert (only.pid, only.step) == (4242, 2)
