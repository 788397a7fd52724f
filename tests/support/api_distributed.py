"""Two processes that train with DDP and FSDP while they are captured: ``FOLDER RANK PORT``."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import all_reduce as imported_all_reduce

from ait_llm.dump.api import PrecisionDebugger, seed_all


def wrapped(model: nn.Module, kind: str) -> nn.Module:
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        return fully_shard(model)
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)


def main() -> None:
    folder, rank, port = sys.argv[1:]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    dist.init_process_group("gloo", rank=int(rank), world_size=2)
    for kind in ("ddp", "fsdp1", "fsdp2"):
        capture(kind, f"{folder}/{kind}", int(rank))
        dist.barrier()
    dist.destroy_process_group()


def capture(kind: str, folder: str, rank: int) -> None:
    PrecisionDebugger._reset()
    debugger = PrecisionDebugger(dump_path=folder, level="mix", task="tensor")
    seed_all(3)
    model = wrapped(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)), kind)
    debugger.start(model)
    model(torch.full((2, 4), rank + 1.0)).sum().backward()
    dist.all_reduce(torch.full((3,), rank + 1.0), group=dist.group.WORLD)
    parts = [torch.zeros(3) for _ in range(2)]
    dist.all_gather(parts, torch.full((3,), rank + 1.0))
    total = torch.full((2,), float(rank))
    imported_all_reduce(total)
    work = dist.all_reduce(total, op=dist.ReduceOp.MAX, async_op=True)
    assert work is not None
    work.wait()
    if rank == 0:
        dist.send(total, 1)
    else:
        dist.recv(torch.zeros(2), 0)
    both = [
        dist.P2POp(dist.isend, total, 1 - rank),
        dist.P2POp(dist.irecv, torch.zeros(2), 1 - rank),
    ]
    for each in dist.batch_isend_irecv(both):
        each.wait()
    debugger.stop()
    debugger.step()


if __name__ == "__main__":
    main()
