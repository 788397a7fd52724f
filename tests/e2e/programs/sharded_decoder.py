"""A small decoder whose layers are cut over ranks: ``sharded_decoder.py FOLDER WORLD [LEVEL]``.

One process is forked for each rank; with a world of 1 nothing is cut. Four steps are captured, of
the same input. In a world of more than one, the last three have a fault each:

- step 1: a row of rank 3's weight of the fused projection in layer 1 has the wrong sign;
- step 2: an element that rank 5 brings to the sum of layer 0's last matrix is wrong;
- step 3: the sum of layer 1's attention arrives on rank 2 with a wrong element.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from ait_llm.dump.api import PrecisionDebugger

HIDDEN, HEADS, INNER, WORDS, LAYERS = 32, 8, 64, 50, 2
SIZE = HIDDEN // HEADS


class Place:
    """Which rank this is, and the fault that it has in this step."""

    rank, world, fault = 0, 1, 0
    is_faulty = False  # in the part of the model that is run now


linear, allreduce = F.linear, dist.ProcessGroup.allreduce


def faulty_linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A kernel that leaves a wrong element on one rank."""
    found = linear(x, weight)
    if Place.is_faulty and Place.fault == 2 and Place.rank == 5:
        found.data[0, 1, 7] += 3.0
    return found


def faulty_allreduce(self: Any, tensors: Any, *args: Any) -> Any:
    """Communication that delivers a wrong element to one rank."""
    work = allreduce(self, tensors, *args)
    if Place.is_faulty and Place.fault == 3 and Place.rank == 2:
        work.wait()
        tensors[0].data[1, 2, 3] += 4.0
    return work


# Before they are captured, so that the faults are inside of what is.
F.linear = faulty_linear
dist.ProcessGroup.allreduce = faulty_allreduce


def part(whole: torch.Tensor, axis: int) -> torch.Tensor:
    """The part of a rank, as even as possible."""
    return whole.tensor_split(Place.world, axis)[Place.rank].clone()


def summed(x: torch.Tensor) -> torch.Tensor:
    if Place.world > 1:
        dist.all_reduce(x)
    return x


class VocabParallelEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = [len(each) for each in torch.arange(WORDS).tensor_split(Place.world)]
        self.first = sum(sizes[: Place.rank])
        self.weight = nn.Parameter(part(torch.randn(WORDS, HIDDEN), 0))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        if Place.world == 1:
            return F.embedding(ids, self.weight)
        outside = (ids < self.first) | (ids >= self.first + len(self.weight))
        local = torch.sub(ids, self.first).masked_fill(outside, 0)
        found = F.embedding(local, self.weight)
        return summed(found.masked_fill(outside.unsqueeze(-1), 0.0))


class ColumnParallelLinear(nn.Module):
    def __init__(self, inputs: int, outputs: int, blocks: int = 1) -> None:
        super().__init__()
        whole = torch.randn(outputs, inputs) / inputs**0.5
        self.weight = nn.Parameter(torch.cat([part(each, 0) for each in whole.chunk(blocks)]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight)


class RowParallelLinear(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(part(torch.randn(outputs, inputs) / inputs**0.5, 1))
        self.bias = nn.Parameter(torch.randn(outputs))
        self.fault = -1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Place.is_faulty = self.fault == Place.fault
        found = summed(F.linear(x, self.weight))
        Place.is_faulty = False
        return torch.add(found, self.bias)


class Attention(nn.Module):
    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.qkv = ColumnParallelLinear(HIDDEN, 3 * HIDDEN, 3)
        self.out = RowParallelLinear(HIDDEN, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        packed = self.qkv(x)
        q, k, v = (
            each.reshape(batch, length, -1, SIZE).transpose(1, 2) for each in packed.chunk(3, -1)
        )
        scores = torch.matmul(q, k.transpose(-1, -2)) / SIZE**0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
        mixed = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))


class Layer(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attention = Attention(number)
        self.up = ColumnParallelLinear(HIDDEN, INNER)
        self.down = RowParallelLinear(INNER, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.add(x, self.attention(self.before(x)))
        return torch.add(x, self.down(F.gelu(self.up(self.after(x)))))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = VocabParallelEmbedding()
        self.layers = nn.ModuleList(Layer(number) for number in range(LAYERS))
        self.head = ColumnParallelLinear(HIDDEN, WORDS)
        self.layers[0].down.fault = 2
        self.layers[1].attention.out.fault = 3

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return torch.sub(self.head(x), 0.5)


def main(folder: Path, level: str) -> None:
    torch.set_num_threads(1)
    if Place.world > 1:
        store = f"file://{folder}/store"
        dist.init_process_group("gloo", store, rank=Place.rank, world_size=Place.world)
    torch.manual_seed(7)
    model = Decoder()
    ids = torch.randint(0, WORDS, (2, 6))
    config = folder / f"config{Place.rank}.json"
    config.write_text(
        json.dumps(
            {
                "task": "tensor",
                "level": level,
                "dump_path": str(folder / "dump"),
                "risk_level": "ALL",
                "tensor": {},
            }
        )
    )
    debugger = PrecisionDebugger(config_path=str(config))
    weight = model.layers[1].attention.qkv.weight
    for step in range(4):
        Place.fault = step if Place.world > 1 else 0
        if Place.fault == 1 and Place.rank == 3:
            weight.data[1] *= -1
        with torch.no_grad():
            debugger.start(model=model)
            model(ids)
            debugger.stop()
        debugger.step()
        if Place.fault == 1 and Place.rank == 3:
            weight.data[1] *= -1
    if Place.world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    Place.world = int(sys.argv[2])
    children = []
    for rank in range(Place.world):
        child = os.fork()
        if not child:
            Place.rank = rank
            main(Path(sys.argv[1]), sys.argv[3] if len(sys.argv) > 3 else "mix")
            sys.stdout.flush()
            os._exit(0)
        children.append(child)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
