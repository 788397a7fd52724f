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
group, functional = distributed.group.WORLD, torch.ops._c10d_functional

class Gather(nn.Module):
    def forward(self, x):
        return all_gather_tensor(x, 0, group) + 0

class SwapAfterSending(nn.Module):
    def forward(self, x):
        sent = functional.isend(x, 1 - rank, 0, group.group_name)
        got = functional.irecv(torch.zeros_like(x), 1 - rank, 0, group.group_name)
        functional.wait_tensor(sent)
        return functional.wait_tensor(got) + x

model = MODEL()
with torch.no_grad(), register_hook(model, DumpConfig(f"{folder}/{rank}", operators=True)):
    if rank:
        time.sleep(0.5)  # the other rank has asked for its result long before
    out = model(torch.full((2, 300000), float(rank + 1)))
print(float(out[0, 0]))
distributed.destroy_process_group()
"""
GATHER = "_c10d_functional.all_gather_into_tensor.default"


def on_two_ranks(folder: Path, model: str) -> None:
    program = folder / "program.py"
    program.write_text(PROGRAM.replace("MODEL()", f"{model}()"))
    command = [sys.executable, str(program)]
    ranks = [subprocess.Popen([*command, str(rank), str(folder)]) for rank in (0, 1)]
    try:
        assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()


def test_what_ranks_gather_is_captured_when_it_is_there(tmp_path: Path) -> None:
    on_two_ranks(tmp_path, "Gather")
    wanted = np.repeat([1.0, 2.0], 2)[:, None] * np.ones(300000)
    for rank in ("0", "1"):
        [found] = [each for each in open_dump(tmp_path / rank).operations() if each.type == GATHER]
        np.testing.assert_array_equal(found.outputs[0].numpy(), wanted)


def test_ranks_that_send_before_they_receive_go_on(tmp_path: Path) -> None:
    on_two_ranks(tmp_path, "SwapAfterSending")
    for rank in ("0", "1"):
        last = [each for each in open_dump(tmp_path / rank).operations() if each.name == "root"]
        np.testing.assert_array_equal(last[0].outputs[0].numpy(), np.full((2, 300000), 3.0))


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


class TakesItsShape(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        like = torch.empty(x.shape, device="meta")
        return torch.zeros_like(like, device="cpu") + x


def test_what_has_data_is_recorded_although_its_shape_is_of_the_meta_device(tmp_path: Path) -> None:
    model = TakesItsShape()
    with torch.no_grad(), register_hook(model, DumpConfig(str(tmp_path), operators=True)):
        model(torch.ones(2, 3))
    types = [each.type for each in open_dump(tmp_path).operations()]
    assert [each for each in types if each.startswith("aten.")] == [
        "aten.zeros_like.default",
        "aten.add.Tensor",
    ]
