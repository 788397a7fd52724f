"""A dump as a data frame, as an Arrow table, and as what a notebook shows."""

from __future__ import annotations

from pathlib import Path

import numpy
import pyarrow.types
import pytest
import torch
from generating import captured, model

from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.dumps import Dump


@pytest.fixture(scope="module", name="dump")
def _dump(tmp_path_factory: pytest.TempPathFactory) -> Dump:
    return open_dump(captured(model(), tmp_path_factory.mktemp("dump")))


def test_a_data_frame_has_a_row_for_each_tensor_in_order(dump: Dump) -> None:
    frame = dump.to_pandas()
    listed = [
        (operation.name, operation.step, tensor.name)
        for operation in dump.operations()
        for tensor in operation.tensors
    ]
    assert [*zip(frame["op"], frame["step"], frame["tensor"], strict=True)] == listed
    row = frame[(frame["op"] == "root.lm_head") & (frame["role"] == "out")].iloc[0]
    assert (row["dtype"], [*row["shape"]], row["problem"]) == ("float", [1, 1, 96], "")
    assert torch.load(row["path"], weights_only=True).shape == (1, 1, 96)
    assert frame["mean"].isna().all()  # none were recorded


def test_statistics_are_computed_when_they_are_asked_for(dump: Dump) -> None:
    frame = dump.to_pandas(statistics=True)
    row = frame[(frame["op"] == "root.lm_head") & (frame["role"] == "out")].iloc[0]
    values = torch.load(row["path"], weights_only=True).double().numpy()
    assert row["min"] == values.min()
    assert row["max"] == values.max()
    assert row["l2norm"] == pytest.approx(numpy.linalg.norm(values), rel=1e-12)
    assert (row["nan"], row["inf"]) == (0, 0)


def test_recorded_statistics_are_there_without_values(tmp_path: Path) -> None:
    made = model()
    with register_hook(made, DumpConfig(tmp_path, mode="stats")), torch.no_grad():
        made(torch.tensor([[1, 2, 3]]))
    frame = open_dump(tmp_path).to_pandas()
    heads = frame[frame["op"] == "root.lm_head"]
    assert heads["l2norm"].gt(0).all()
    assert heads["problem"].ne("").all()


def test_a_damaged_file_is_told_in_its_row(tmp_path: Path) -> None:
    folder = captured(model(), tmp_path)
    [damaged] = folder.rglob("torch_tensors/*/0/root.lm_head/output.pth")
    damaged.write_bytes(b"PK\x03\x04 no more")
    frame = open_dump(folder).to_pandas(statistics=True)
    told = frame[frame["problem"] != ""]
    assert str(damaged) in told["path"].tolist()
    assert all(Path(path).samefile(damaged) for path in told["path"])  # one value, two names
    assert told["min"].isna().all()


def test_an_arrow_table_says_the_same_with_its_types(dump: Dump) -> None:
    table, frame = dump.to_arrow(), dump.to_pandas()
    assert table.column_names == [*frame.columns]
    assert table["op"].to_pylist() == frame["op"].tolist()
    assert pyarrow.types.is_list(table.schema.field("shape").type)
    assert pyarrow.types.is_float64(table.schema.field("mean").type)


def test_a_dump_shows_itself_in_a_line_and_as_a_table(dump: Dump) -> None:
    assert repr(dump) == f"<Dump of torch in {dump.root}: 1 process, 6 steps, 0 to 5>"
    shown = dump._repr_html_()
    assert "<table>" in shown
    assert "6 steps, 0 to 5" in shown
