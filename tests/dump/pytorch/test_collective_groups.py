"""Captures say whom a collective speaks to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.dumps.operations import Group


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """This process as the only rank."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Collective(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        dist.broadcast(x, 0)
        return x + 1


@pytest.mark.usefixtures("alone")
def test_the_group_and_the_reduction_of_collectives_are_recorded(tmp_path: Path) -> None:
    config = DumpConfig(dump_path=tmp_path / "dump", operators=True, modules=False)
    model = nn.Sequential(Collective())
    with torch.no_grad(), register_hook(model, config):
        model(torch.ones(3))
    found = {
        each.type.split(".")[1]: each.group for each in open_dump(tmp_path / "dump").operations()
    }
    assert found == {"allreduce_": Group((0,), 0, "MAX"), "broadcast_": Group((0,), 0), "add": None}
