"""What is listed of an operation, and that nothing outside of the dump is ever read."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from dump_builder import DumpBuilder

from ait_llm import open_dump
from ait_llm.core import FORMAT_FRACTAL_NZ, DType, TensorDesc
from ait_llm.dumps.describe import describe
from ait_llm.errors import FormatError
from ait_llm.formats import write_tensor
from ait_llm.formats.layout import nd_to_nz

HALF = TensorDesc(DType.FLOAT16, (2,))


def test_ids_are_ordered_as_numbers(builder: DumpBuilder) -> None:
    for index in (10, 9, 0):
        builder.operation(f"{index}_LinearOperation", step=10)
        builder.operation(f"{index}_LinearOperation", step=9)
    found = [(each.step, str(each.op_id)) for each in open_dump(builder.root).operations()]
    assert found == [(9, "0"), (9, "9"), (9, "10"), (10, "0"), (10, "9"), (10, "10")]


def test_graph_without_captured_tensors_is_not_listed(builder: DumpBuilder) -> None:
    builder.operation("2_Layer/1_Mlp/0_LinearOperation", params={})
    (operation,) = open_dump(builder.root).operations()
    assert str(operation.op_id) == "2_1_0"


def test_operation_of_which_only_a_kernel_was_captured_is_listed(builder: DumpBuilder) -> None:
    builder.operation("2_Layer/0_LinearOperation/0_PpMatMulF16Kernel")
    (operation,) = open_dump(builder.root).operations()
    assert str(operation.op_id) == "2_0"
    assert operation.tensors == ()
    assert [kernel.name for kernel in operation.kernels] == ["PpMatMulF16Kernel"]


def test_inputs_before_and_outputs_after_are_preferred(builder: DumpBuilder) -> None:
    names = ("intensor0", "outtensor0")
    builder.operation("0_LinearOperation", before=names, after=(*names, "intensor1"))
    (operation,) = open_dump(builder.root).operations()
    assert operation.phases == ("before", "after")
    assert [(each.name, each.phase) for each in operation.inputs] == [
        ("intensor0", "before"),
        ("intensor1", "after"),
    ]
    assert [(each.name, each.phase) for each in operation.outputs] == [("outtensor0", "after")]
    assert len(operation.tensors) == 5


def test_tensors_are_ordered_by_number(builder: DumpBuilder) -> None:
    builder.operation("0_Graph", after=tuple(f"intensor{index}_x" for index in (10, 2, 0)))
    (operation,) = open_dump(builder.root).operations()
    assert [each.index for each in operation.tensors] == [0, 2, 10]


def test_values_come_as_numpy_and_torch(builder: DumpBuilder) -> None:
    builder.operation("0_LinearOperation", value=2.5)
    (operation,) = open_dump(builder.root).operations()
    assert operation.outputs[0].numpy().tolist() == [[2.5] * 3] * 2
    assert torch.equal(operation.outputs[0].torch(), torch.full((2, 3), 2.5))
    statistics = operation.outputs[0].statistics
    assert statistics is not None
    assert statistics.mean == 2.5


def test_private_format_is_restored(builder: DumpBuilder) -> None:
    folder = builder.operation("0_LinearOperation", after=("intensor0",))
    matrix = np.arange(60, dtype=np.float16).reshape(3, 20)
    desc = TensorDesc(DType.FLOAT16, (3, 20), FORMAT_FRACTAL_NZ)
    write_tensor(folder / "after" / "intensor0.bin", nd_to_nz(matrix, 16), desc)
    (operation,) = open_dump(builder.root).operations()
    assert operation.inputs[0].nd().tolist() == matrix.tolist()


def test_private_format_that_is_not_converted(builder: DumpBuilder) -> None:
    folder = builder.operation("0_LinearOperation", after=("intensor0",))
    desc = TensorDesc(DType.FLOAT16, (2,), 4)
    write_tensor(folder / "after" / "intensor0.bin", np.ones(2, dtype=np.float16), desc)
    (operation,) = open_dump(builder.root).operations()
    with pytest.raises(FormatError, match="fractal_z is not converted to ND"):
        operation.inputs[0].nd()


def test_header_statistics_need_no_data(builder: DumpBuilder) -> None:
    folder = builder.operation("0_LinearOperation", after=("intensor0",))
    write_tensor(folder / "after" / "intensor0.bin", None, HALF, {"max": "7", "nan": "3"})
    (operation,) = open_dump(builder.root).operations()
    statistics = operation.inputs[0].statistics
    assert statistics is not None
    assert (statistics.max, statistics.nan, statistics.min) == (7.0, 3, None)
    assert not operation.inputs[0].has_data


def test_statistics_of_types_without_order_are_none(builder: DumpBuilder) -> None:
    folder = builder.operation("0_LinearOperation", after=("intensor0",))
    desc = TensorDesc(DType.COMPLEX64, (2,))
    write_tensor(folder / "after" / "intensor0.bin", np.ones(2, dtype=np.complex64), desc)
    (operation,) = open_dump(builder.root).operations()
    assert operation.inputs[0].statistics is None


def test_parameters(builder: DumpBuilder) -> None:
    builder.operation("0_LinearOperation", params={"transposeB": True})
    builder.operation("1_LinearOperation")
    first, second = open_dump(builder.root).operations()
    assert first.params == {"transposeB": True}
    assert second.params == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100000])
def test_damaged_parameters(builder: DumpBuilder, text: str) -> None:
    folder = builder.operation("0_LinearOperation", params={})
    (folder / "op_param.json").write_text(text)
    (operation,) = open_dump(builder.root).operations()
    with pytest.raises(FormatError, match=r"op_param\.json: is not"):
        dict(operation.params)


def test_tiling_data_of_a_kernel(builder: DumpBuilder) -> None:
    builder.operation("0_LinearOperation/0_AddF16Kernel")
    builder.operation("0_LinearOperation/1_AddF16Kernel")
    relative = "0_4242/0/0_LinearOperation/1_AddF16Kernel"
    (builder.root / "tiling" / relative).mkdir(parents=True)
    tiling = builder.root / "tiling" / relative / "kernel_tilingdata.bin"
    tiling.write_bytes(b"tiling")
    (operation,) = open_dump(builder.root).operations()
    assert [kernel.tiling_path for kernel in operation.kernels] == [None, tiling]


def test_foreign_files_and_folders_are_left_out(builder: DumpBuilder) -> None:
    folder = builder.operation("0_LinearOperation")
    (folder / "after" / ".intensor0.bin.1234").write_text("left over")
    (folder / "after" / "notes.txt").write_text("x")
    (folder / "after" / "intensor1.bin").mkdir()
    (folder / "notes").mkdir()
    (builder.root / "tensors" / "README").mkdir()
    (builder.root / "tensors" / "0_4242" / "00").mkdir()
    (operation,) = open_dump(builder.root).operations()
    assert [each.name for each in operation.tensors] == ["intensor0", "outtensor0"]
    assert operation.kernels == ()


def test_damaged_tensor_is_listed_and_told(builder: DumpBuilder) -> None:
    folder = builder.operation("0_LinearOperation")
    (folder / "after" / "intensor0.bin").write_bytes(b"$Version=1.0\n$Obj")
    rows = list(describe(open_dump(builder.root), tensors=True))
    assert [(row.tensor, row.note) for row in rows] == [
        ("", ""),
        ("after/intensor0", "header is cut off, it has no $End line"),
        ("after/outtensor0", ""),
    ]
    assert (rows[2].dtype, rows[2].format, rows[2].shape) == ("float", "nd", "2,3")
    assert (rows[0].process, rows[0].step, rows[0].op_id) == ("0_4242", 0, "0")


def test_linked_file_outside_of_the_dump_is_not_read(builder: DumpBuilder, tmp_path: Path) -> None:
    folder = builder.operation("0_LinearOperation", params={})
    write_tensor(tmp_path / "secret.bin", np.ones(2, dtype=np.float16), HALF)
    (tmp_path / "secret.json").write_text("{}")
    (folder / "after" / "intensor1.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "op_param.json").unlink()
    (folder / "op_param.json").symlink_to(tmp_path / "secret.json")
    (operation,) = open_dump(builder.root).operations()
    tensor = operation.inputs[1]
    for read in (lambda: tensor.shape, tensor.numpy, lambda: dict(operation.params)):
        with pytest.raises(FormatError, match="is a link that lies outside of"):
            read()


@pytest.mark.parametrize("target", ["../../../../../../../secret.bin", "/etc/passwd"])
def test_reference_outside_of_the_dump_is_not_read(
    builder: DumpBuilder, tmp_path: Path, target: str
) -> None:
    folder = builder.operation("0_LinearOperation", after=("intensor0",))
    write_tensor(tmp_path / "secret.bin", np.ones(2, dtype=np.float16), HALF)
    write_tensor(folder / "after" / "intensor0.bin", None, HALF, {"data": target})
    (operation,) = open_dump(builder.root).operations()
    assert not operation.inputs[0].has_data
    with pytest.raises(FormatError, match="which lies outside of"):
        operation.inputs[0].numpy()


def test_linked_folder_is_not_entered(builder: DumpBuilder, tmp_path: Path) -> None:
    folder = builder.operation("0_Layer")
    (folder / "0_Loop").symlink_to(folder)
    (folder / "1_Root").symlink_to("/")
    (operation,) = open_dump(builder.root).operations()
    assert str(operation.op_id) == "0"


def test_file_linked_within_the_dump_is_read(builder: DumpBuilder) -> None:
    source = builder.operation("0_LinearOperation", value=4.0)
    folder = builder.operation("1_LinearOperation", after=("outtensor0",))
    (folder / "after" / "intensor0.bin").symlink_to(source / "after" / "intensor0.bin")
    os.link(source / "after" / "intensor0.bin", folder / "after" / "intensor1.bin")
    second = list(open_dump(builder.root).operations())[1]
    assert [each.numpy()[0, 0] for each in second.inputs] == [4.0, 4.0]


def test_deduplicated_tensor_refers_to_another_operation(builder: DumpBuilder) -> None:
    builder.operation("0_LinearOperation", value=4.0)
    folder = builder.operation("1_LinearOperation", after=("outtensor0",))
    desc = TensorDesc(DType.FLOAT32, (3, 2))
    target = "../../0_LinearOperation/after/outtensor0.bin"
    write_tensor(folder / "after" / "intensor0.bin", None, desc, {"data": target})
    second = list(open_dump(builder.root).operations())[1]
    assert second.inputs[0].has_data
    assert second.inputs[0].numpy().tolist() == [[4.0] * 2] * 3


def test_many_operations_are_listed_without_opening_a_file(
    builder: DumpBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for layer in range(100):
        for member in range(10):
            after = builder.root / f"tensors/0_4242/0/{layer}_Layer/{member}_LinearOperation/after"
            after.mkdir(parents=True)
            for index in range(10):
                (after / f"intensor{index}.bin").touch()
    opened: list[object] = []
    monkeypatch.setattr(os, "open", lambda path, *_: opened.append(path))
    operations = list(open_dump(builder.root).operations())
    assert [operation.op_id.parts for operation in operations] == [
        (layer, member) for layer in range(100) for member in range(10)
    ]
    assert sum(len(operation.tensors) for operation in operations) == 10_000
    assert opened == []
