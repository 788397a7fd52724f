from __future__ import annotations

from pathlib import Path

import onnx

from ait_llm.core import DType
from ait_llm.topology import read_topology, topology_to_onnx
from ait_llm.topology.shapes import TensorInfo
from ait_llm.topology.tensor_shapes import table_from_tensors


def describe(path: Path, dtype: int, dims: str) -> None:
    """A description-only tensor file as the probe writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"$Version=1.0\n$Object.Count=0\n$Object.Length=0\nformat=2\n"
        + f"dtype={dtype}\ndims={dims}\n$End=1\n".encode()
    )


def step(demo: Path, number: int = 0) -> Path:
    return demo / "tensors" / "0_4242" / str(number) / "0_DecoderLayer"


def test_leaves_are_described_by_their_tensor_files(demo: Path, layer: Path) -> None:
    linear = step(demo) / "1_Mlp" / "0_LinearOperation"
    describe(linear / "after" / "intensor0_x.bin", 1, "4,32")
    describe(linear / "after" / "intensor1_weight.bin", 27, "64,32")
    describe(linear / "after" / "outtensor0_output.bin", 0, "4,64")
    table = table_from_tensors(layer, read_topology(layer).root)
    assert table is not None
    row = table.rows["LinearOperation_0_1_0"]
    assert row.inputs == (
        TensorInfo(DType.FLOAT16, "float16", (4, 32)),
        TensorInfo(DType.BFLOAT16, "bf16", (64, 32)),
    )
    assert row.outputs == (TensorInfo(DType.FLOAT32, "float", (4, 64)),)
    assert row.ports == ("x", "weight")


def test_the_lowest_step_counts_by_number(demo: Path, layer: Path) -> None:
    for number in (10, 9):
        describe(
            step(demo, number) / "0_LinearOperation" / "after" / "outtensor0.bin", 1, str(number)
        )
    table = table_from_tensors(layer, read_topology(layer).root)
    assert table is not None
    assert table.execution == 9
    assert table.rows["LinearOperation_0_0"].outputs[0].shape == (9,)


def test_a_gap_or_a_broken_file_leaves_its_side_undescribed(demo: Path, layer: Path) -> None:
    linear = step(demo) / "0_LinearOperation" / "after"
    describe(linear / "intensor1.bin", 1, "3")
    describe(linear / "outtensor0.bin", 1, "5")
    table = table_from_tensors(layer, read_topology(layer).root)
    assert table is not None
    assert table.rows["LinearOperation_0_0"].inputs == ()
    assert table.rows["LinearOperation_0_0"].outputs[0].shape == (5,)
    (linear / "outtensor0.bin").write_bytes(b"$Version=1.0\ncut")
    table = table_from_tensors(layer, read_topology(layer).root)
    assert table is not None
    assert table.rows["LinearOperation_0_0"].outputs == ()


def test_a_folder_of_another_operation_type_is_not_used(demo: Path, layer: Path) -> None:
    describe(step(demo) / "0_OtherOperation" / "after" / "outtensor0.bin", 1, "3")
    table = table_from_tensors(layer, read_topology(layer).root)
    assert table is not None
    assert not table.rows


def test_tensors_of_another_process_are_not_used(demo: Path, layer: Path) -> None:
    describe(demo / "tensors" / "0_77" / "0" / "0_DecoderLayer" / "x.bin", 1, "3")
    assert table_from_tensors(layer, read_topology(layer).root) is None


def test_conversion_uses_tensors_only_where_there_is_no_table(demo: Path, model: Path) -> None:
    describe(step(demo) / "0_LinearOperation" / "after" / "outtensor0.bin", 1, "77")

    def shapes() -> tuple[str, list[int]]:
        written = onnx.load(str(topology_to_onnx(model)))
        (value,) = (
            v for v in written.functions[0].value_info if v.name == "DecoderLayer_0_internal_0"
        )
        notes = {prop.key: prop.value for prop in written.metadata_props}
        sizes = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        return notes["atb.shapes_from"], sizes

    assert shapes() == ("operation_tensors_0.csv", [4, 32])
    (demo / "operation_io_tensors" / "4242" / "operation_tensors_0.csv").unlink()
    assert shapes() == ("tensors/0_4242/0", [77])
