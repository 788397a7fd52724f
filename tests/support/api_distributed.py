"""Two processes that train with DDP or FSDP while they are captured: ``KIND FOLDER RANK PORT``."""

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
    kind, folder, rank, port = sys.argv[1:]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    debugger = PrecisionDebugger(dump_path=folder, level="mix", task="tensor")
    dist.init_process_group("gloo", rank=int(rank), world_size=2)
    seed_all(3)
    model = wrapped(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)), kind)
    debugger.start(model)
    model(torch.full((2, 4), float(rank) + 1)).sum().backward()
    total = torch.full((2,), float(rank))
    imported_all_reduce(total)
    work = dist.all_reduce(total, op=dist.ReduceOp.MAX, async_op=True)
    assert work is not None
    work.wait()
    if rank == "0":
        dist.send(total, 1)
    else:
        dist.recv(torch.zeros(2), 0)
    debugger.stop()
    debugger.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
