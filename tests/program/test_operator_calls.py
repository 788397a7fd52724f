"""Operators of a torch capture without modules as calls on values."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from ait_llm import DumpConfig, register_hook
from ait_llm.dumps import open_dump
from ait_llm.program.adapt_operators import graph_of_operators
from ait_llm.program.flow import flow
from ait_llm.program.passes import passes_of


class Halves(nn.Module):
    """Multiplies by either half of one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight[:4] + x * self.weight[4:] + x * self.weight[:4]


def test_pieces_of_one_parameter_are_one_value_only_where_they_begin_alike(tmp_path: Path) -> None:
    model = Halves()
    with torch.no_grad(), register_hook(model, DumpConfig(tmp_path, operators=True, modules=False)):
        model(torch.randn(3, 4))
    dump = open_dump(tmp_path)
    [run] = passes_of(dump, next(iter(dump.processes)))
    graph, _ = graph_of_operators(run, flow(run))
    first, second, third = (call.inputs[1] for call in graph.calls if call.kind == "mul")
    assert first == third
    assert first != second
