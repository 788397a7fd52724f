"""A tensor-parallel block under torchrun: each process holds half of the inner layer."""

import os

import torch
import torch.distributed as dist
from tiny_net import Net, inputs
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

if __name__ == "__main__":
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {
        # Its output stays a distributed tensor, which the next layer takes.
        "up": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
        "down": RowwiseParallel(input_layouts=Shard(-1), output_layouts=Replicate()),
    }
    model = parallelize_module(Net(), mesh, plan)
    with torch.no_grad():
        output = model(inputs())
    if isinstance(output, DTensor):
        output = output.to_local()
    if os.environ["RANK"] == "0":
        print(output.sum().item(), flush=True)
    dist.barrier()  # gloo aborts now and then when one side is gone before the other is done
    dist.destroy_process_group()
