"""The edges of a pass: who reads what which other operation computed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import ait_llm.hostatb as torch_atb
from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.core.dataflow import Dataflow
from ait_llm.dumps import TorchDump
from ait_llm.program.dataflow import dataflow_of
from ait_llm.program.flow import flow
from ait_llm.program.one_pass import Pass
from tests.match.programs.atb_program import AtbProgram
from tests.match.programs.families import read_atb

_ADD = torch_atb.ElewiseParam(elewise_type=torch_atb.ElewiseParam.ElewiseType.ELEWISE_ADD)


def _told(edges: Dataflow, names: list[str]) -> dict[str, tuple[str, list[str]]]:
    """Each operation with what is around it and the operations that it reads from."""
    return {
        name: ("" if parent < 0 else names[parent], [names[each] for each in reads])
        for name, parent, reads in zip(names, edges.parents, edges.reads, strict=True)
    }


@pytest.mark.parametrize("topology", [True, False])
def test_operations_read_from_those_that_computed_not_from_graphs_around_them(
    tmp_path: Path, topology: bool
) -> None:
    program = AtbProgram(tmp_path, topology=topology)
    x, y = (torch.randn(4, 8, generator=torch.Generator().manual_seed(n)).half() for n in (0, 1))
    with program.graph("Block") as out:
        total = program.run(_ADD, x, y)
        out.append(program.run(_ADD, total, total))
    program.run(_ADD, out[0], out[0])
    run = read_atb(tmp_path)
    edges = dataflow_of("mine", flow(run))
    assert _told(edges, [each.name for each in run.operations]) == {
        "Block_0": ("", []),
        "ElewiseOperation_0_0": ("Block_0", []),
        "ElewiseOperation_0_1": ("Block_0", ["ElewiseOperation_0_0"]),
        "ElewiseOperation_1": ("", ["ElewiseOperation_0_1"]),
    }
    assert (edges.side, edges.first_order) == ("mine", 0)
    assert not any(edges.unwritten)  # what comes from outside is no code's of a module


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = self.first(x) * 3
        return self.third(self.second(own))


def test_modules_that_read_what_code_between_them_made_say_so(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = _Model()
    with register_hook(model, DumpConfig(str(tmp_path))), torch.no_grad():
        model(torch.randn(3, 8))
    operations = list(open_dump(tmp_path).operations(step=0))
    run = Pass("torch", -1, operations[0].pid, 0, operations, traits=TorchDump.traits)
    edges = dataflow_of("golden", flow(run))
    names = [each.name for each in operations]
    assert _told(edges, names) == {
        "root": ("", []),
        "root.first": ("root", []),
        "root.second": ("root", []),
        "root.third": ("root", ["root.second"]),
    }
    # The model's own input comes from outside as well; nothing stands before it that made it.
    assert dict(zip(names, edges.unwritten, strict=True)) == {
        "root": True, "root.first": True, "root.second": True, "root.third": False,
    }  # fmt: skip
