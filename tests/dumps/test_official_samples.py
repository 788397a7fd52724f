"""Dumps that the released msprobe probe wrote."""

from pathlib import Path

import numpy as np
import pytest

from ait_llm import open_dump
from ait_llm.core import DType
from ait_llm.dumps.describe import describe
from ait_llm.errors import FormatError

DATA = Path(__file__).parents[1] / "data" / "atb-official"
OPERATIONS = [
    ("0", "Decoder_layer", True),
    ("0_0", "RmsNormOperation", False),
    ("0_1", "Attention", True),
    ("0_1_0", "LinearOperation", False),
    ("0_1_1", "ElewiseOperation", False),
    ("0_2", "ElewiseOperation", False),
    ("0_3", "Mlp", True),
    ("0_3_0", "LinearOperation", False),
    ("0_3_1", "ActivationOperation", False),
    ("0_4", "ElewiseOperation", False),
]


@pytest.mark.parametrize("level", ["filter0", "filter1", "filter2"])
def test_operations_in_execution_order(level: str) -> None:
    operations = list(open_dump(DATA / level).operations())
    found = [(str(each.op_id), each.type, each.is_graph) for each in operations]
    assert found == OPERATIONS
    assert {(each.device, each.pid, each.step) for each in operations} == {(0, 4242, 0)}


def test_kernels_are_told_from_members_of_graphs() -> None:
    kernels = {
        str(operation.op_id): [kernel.name for kernel in operation.kernels]
        for operation in open_dump(DATA / "filter0").operations()
    }
    assert kernels == {
        "0": [],
        "0_0": ["RmsNormKernel"],
        "0_1": [],
        "0_1_0": ["PpMatMulF16Kernel"],
        "0_1_1": ["MulsF16Kernel"],
        "0_2": ["AddF16Kernel"],
        "0_3": [],
        "0_3_0": ["PpMatMulF16Kernel"],
        "0_3_1": ["SwishF16Kernel"],
        "0_4": ["AddF16Kernel"],
    }


def test_tensors_carry_role_name_type_and_values() -> None:
    operations = {str(each.op_id): each for each in open_dump(DATA / "filter0").operations()}
    linear = operations["0_1_0"]
    found = [(each.name, each.ir_name, each.phase, each.shape) for each in linear.tensors]
    assert found == [
        ("intensor0", "input", "before", (4, 32)),
        ("intensor1", "weight", "before", (32, 32)),
        ("outtensor0", "output", "after", (4, 32)),
    ]
    assert all(each.dtype is DType.FLOAT16 and each.has_data for each in linear.tensors)
    assert linear.params["transposeB"] is True
    norm = operations["0_0"]
    assert norm.outputs[0].numpy().tobytes() == linear.inputs[0].numpy().tobytes()
    kernel = linear.kernels[0]
    assert [each.name for each in kernel.tensors] == ["intensor0", "intensor1", "outtensor0"]
    assert kernel.tensors[2].numpy().tobytes() == linear.outputs[0].numpy().tobytes()


def test_statistics_agree_with_the_table_of_the_probe() -> None:
    dump = open_dump(DATA / "filter0")
    tensor = next(iter(dump.operations())).inputs[2]
    statistics = tensor.statistics
    assert statistics is not None
    # from statistic.csv: 1.000000,-1.000000,-0.001465,19.595121
    assert (statistics.max, statistics.min) == (1.0, -1.0)
    assert statistics.mean == pytest.approx(-0.001465, abs=1e-6)
    assert statistics.l2norm == pytest.approx(19.595121, rel=2e-4)  # theirs is summed in float16


def test_references_to_operations_are_followed() -> None:
    whole = {str(each.op_id): each for each in open_dump(DATA / "filter0").operations()}
    referring = {str(each.op_id): each for each in open_dump(DATA / "filter1").operations()}
    header = referring["0_1"].outputs[0].header
    assert (header.alias, header.has_data) == ("0_1_1_outtensor0.bin", False)
    for op_id, operation in referring.items():
        for mine, theirs in zip(operation.tensors, whole[op_id].tensors, strict=True):
            assert mine.has_data
            assert np.array_equal(mine.numpy(), theirs.numpy())


def test_data_that_the_probe_lost_is_told() -> None:
    operations = {str(each.op_id): each for each in open_dump(DATA / "filter2").operations()}
    lost = operations["0"].outputs[0]
    assert lost.shape == (4, 32)
    assert not lost.has_data
    assert lost.statistics is None
    with pytest.raises(FormatError, match=r"refers to '0_4_outtensor0\.bin', which cannot be read"):
        lost.numpy()
    kernel = operations["0_2"].kernels[0]
    with pytest.raises(FormatError, match=r"refers to 'intensor0\.bin', which leads back to itse"):
        kernel.tensors[0].numpy()


def test_rows_for_printing() -> None:
    rows = list(describe(open_dump(DATA / "filter0"), tensors=True, step=0))
    assert len(rows) == 10 + 32 - 2
    linear = next(row for row in rows if row.op_id == "0_1_0")
    assert (linear.type, linear.note) == ("LinearOperation", "1 kernel")
    weight = next(row for row in rows if row.op_id == "0_1_0" and "intensor1" in row.tensor)
    assert (weight.tensor, weight.shape) == ("before/intensor1 (weight)", "32,32")
    assert list(describe(open_dump(DATA / "filter0"), step=1)) == []


def test_reported_graphs_are_listed() -> None:
    dump = open_dump(DATA / "filter0")
    assert [(each.pid, each.name) for each in dump.layers] == [(4242, "Decoder_layer_0")]
    assert dump.layers[0].path.is_file()
    assert dump.models == ()


def test_process_without_a_ledger_has_an_unknown_end() -> None:
    (process,) = open_dump(DATA / "filter0").processes
    assert (process.device, process.pid, process.steps) == (0, 4242, (0,))
    assert process.state == "unknown"
    assert not process.sealed
    assert process.problem is None
