"""Which tensors of a run are the same value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import ait_llm.hostatb as torch_atb
from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.dumps import TorchDump
from ait_llm.program.flow import Flow, Value, flow
from ait_llm.program.one_pass import Pass
from ait_llm.program.passes import Graphs
from tests.match.programs.atb_program import AtbProgram
from tests.match.programs.families import read_atb

_ADD = torch_atb.ElewiseParam(elewise_type=torch_atb.ElewiseParam.ElewiseType.ELEWISE_ADD)


def _uses(found: Flow, value: Value | None) -> list[str]:
    assert value is not None
    return [f"{found.run.operations[use.op].name} {use.tensor.name}" for use in value.uses]


def _value(found: Flow, operation: str, role: str, index: int = 0) -> Value:
    (op,) = (n for n, each in enumerate(found.run.operations) if each.name == operation)
    value = found.at(op, "in" if role == "in" else "out", index)
    assert value is not None
    return value


def _block(program: AtbProgram, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    with program.graph("Block") as out:
        total = program.run(_ADD, x, y)
        twice = program.run(_ADD, total, total)
        out.append(twice)
    return twice


def _atb(folder: Path, *, topology: bool, constant: bool = False) -> Flow:
    program = AtbProgram(folder, topology=topology)
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(4, 8, generator=generator).half() for _ in range(2))
    if constant:
        x, y = torch.full((4, 8), float("nan")).half(), torch.full((4, 8), float("nan")).half()
    x = _block(program, x, y)
    program.run(_ADD, program.view(x, 2, 2, 8), program.view(x, 2, 2, 8))
    return flow(read_atb(folder))


@pytest.mark.parametrize("topology", [True, False])
def test_a_value_goes_from_its_writer_through_graphs_to_its_readers(
    tmp_path: Path, topology: bool
) -> None:
    found = _atb(tmp_path, topology=topology)
    assert _uses(found, _value(found, "ElewiseOperation_0_1", "out")) == [
        "ElewiseOperation_0_1 outtensor0",
        "Block_0 outtensor0",
        "ElewiseOperation_1 intensor0",
        "ElewiseOperation_1 intensor1",
    ]
    assert _uses(found, _value(found, "Block_0", "in", 1)) == [
        "Block_0 intensor1",
        "ElewiseOperation_0_0 intensor1",
    ]


def test_names_connect_values_of_which_numbers_prove_nothing(tmp_path: Path) -> None:
    found = _atb(tmp_path, topology=True, constant=True)
    assert _uses(found, _value(found, "ElewiseOperation_0_0", "out")) == [
        "ElewiseOperation_0_0 outtensor0",
        "ElewiseOperation_0_1 intensor0",
        "ElewiseOperation_0_1 intensor1",
    ]


def test_numbers_lead_on_where_a_topology_is_damaged(tmp_path: Path) -> None:
    whole = _atb(tmp_path, topology=True)
    (file,) = (tmp_path / "ait_dump" / "layer").rglob("Block_0.json")
    file.write_text(file.read_text()[:40])
    damaged = flow(replace(whole.run, graphs=Graphs({"Block_0": file})))
    for role, index in (("in", 0), ("in", 1), ("out", 0)):
        name = "ElewiseOperation_0_0"
        assert _uses(damaged, _value(damaged, name, role, index)) == _uses(
            whole, _value(whole, name, role, index)
        )


def test_constant_tensors_are_not_connected_by_their_numbers(tmp_path: Path) -> None:
    found = _atb(tmp_path, topology=False, constant=True)
    assert all(len(value.reads) <= 1 for value in found.values)


def test_a_graph_without_names_and_numbers_writes_what_its_last_member_wrote(
    tmp_path: Path,
) -> None:
    found = _atb(tmp_path, topology=False, constant=True)
    assert _uses(found, _value(found, "Block_0", "out")) == [
        "ElewiseOperation_0_1 outtensor0",
        "Block_0 outtensor0",
    ]


def test_the_tree_of_operations_is_found(tmp_path: Path) -> None:
    found = _atb(tmp_path, topology=False)
    assert found.parents == (None, 0, 0, None)
    assert list(found.ancestors(2)) == [0]


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, 8)
        self.dropout = nn.Dropout()
        self.cast = nn.Identity()
        self.second = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = self.dropout(self.first(x)).half()
        y: torch.Tensor = self.second(self.cast(half).float())
        return y


def _torch(folder: Path) -> Flow:
    model = _Model().eval()
    with register_hook(model, DumpConfig(str(folder))), torch.no_grad():
        model(torch.randn(3, 8, generator=torch.Generator().manual_seed(1)))
    operations = list(open_dump(folder).operations(step=0))
    return flow(Pass("torch", -1, operations[0].pid, 0, operations, traits=TorchDump.traits))


def test_a_module_that_returns_what_it_received_passes_the_value_on(tmp_path: Path) -> None:
    found = _torch(tmp_path)
    assert _uses(found, _value(found, "root.first", "out")) == [
        "root.first outtensor0",
        "root.dropout intensor0",
        "root.dropout outtensor0",
    ]


def test_a_wider_type_does_not_make_another_value(tmp_path: Path) -> None:
    found = _torch(tmp_path)
    assert _uses(found, _value(found, "root.cast", "out")) == [
        "root.cast intensor0",
        "root.cast outtensor0",
        "root.second intensor0",
    ]


def test_a_module_writes_what_its_last_member_wrote(tmp_path: Path) -> None:
    found = _torch(tmp_path)
    value = _value(found, "root.second", "out")
    assert _uses(found, value) == ["root.second outtensor0", "root outtensor0"]
    assert [use.op for use in value.writes] == [4, 0]
    assert value.reads == []


def test_a_damaged_file_is_a_value_of_its_own(tmp_path: Path) -> None:
    _torch(tmp_path)
    (path,) = tmp_path.glob("**/root.second/input_0.pth")
    path.unlink()
    path.write_bytes(b"no tensor")
    operations = list(open_dump(tmp_path).operations(step=0))
    found = flow(Pass("torch", -1, operations[0].pid, 0, operations, traits=TorchDump.traits))
    assert _uses(found, _value(found, "root.second", "in")) == ["root.second intensor0"]
