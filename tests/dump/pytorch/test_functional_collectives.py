"""Functional collectives, which hand out memory before anything is in it, and what runs beside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.dumps import open_dump

PROGRAM = """
import sys, time
import torch
from torch import distributed, nn
from torch.distributed._functional_collectives import all_gather_tensor

from ait_llm import DumpConfig, register_hook

rank, folder = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=f"file://{folder}/met", rank=rank, world_size=2)

class Gather(nn.Module):
    def forward(self, x):
        return all_gather_tensor(x, 0, distributed.group.WORLD) + 0

model = Gather()
with torch.no_grad(), register_hook(model, DumpConfig(f"{folder}/{rank}", operators=True)):
    if rank:
        time.sleep(0.5)  # the other rank has asked for its result long before
    model(torch.full((2, 3), float(rank + 1)))
distributed.destroy_process_group()
"""
GATHER = "_c10d_functional.all_gather_into_tensor.default"


def test_what_ranks_gather_is_captured_when_it_is_there(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program)]
    ranks = [subprocess.Popen([*command, str(rank), str(tmp_path)]) for rank in (0, 1)]
    assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]
    wanted = np.repeat([1.0, 2.0], 2)[:, None] * np.ones(3)
    for rank in ("0", "1"):
        [found] = [each for each in open_dump(tmp_path / rank).operations() if each.type == GATHER]
        np.testing.assert_array_equal(found.outputs[0].numpy(), wanted)


class LooksAtShapes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        like = torch.empty(x.shape, device="meta")
        return x.view((like + like).shape) * 2


def test_shapes_that_a_program_computes_beside_are_no_loss(tmp_path: Path) -> None:
    model = LooksAtShapes()
    with torch.no_grad(), register_hook(model, DumpConfig(str(tmp_path), operators=True)):
        model(torch.ones(2, 3))
    dump = open_dump(tmp_path)
    assert [each.type for each in dump.operations() if each.type.startswith("aten.")] == [
        "aten.view.default",
        "aten.mul.Tensor",
    ]
    assert [loss for process in dump.processes for loss in process.losses] == []
